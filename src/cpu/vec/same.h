/* SPDX-License-Identifier: MIT
 *
 * What every instruction set does with f64 vectors in the same way, by its own loads, stores, vd_sum and vd_add. */
#ifndef RMS_VEC_SAME_H
#define RMS_VEC_SAME_H

static inline int vd_lane(int element, int eo) {
  (void)eo;
  return element;
}

static inline void vd_store_clean(void *p, vd a, rms_dtype type, int eo, int stream) {
  if (stream)
    vd_stream(p, a, type, eo);
  else
    vd_store(p, a, type, eo);
}

static inline vd vd_round(vd a, rms_dtype type) {
  (void)type;
  return a;
}

static inline vd vd_round_clean(vd a, rms_dtype type) {
  (void)type;
  return a;
}

static inline vd vd_max_magnitude(vd a, vd b) {
  return vd_max_bits(a, b);
}

static inline double vd_sum4(vd a, vd b, vd c, vd d, int eo) {
  (void)eo;
  return vd_sum(vd_add(vd_add(a, c), vd_add(b, d)));
}

static inline void vd_sum8(double *sums, const vd *v, int eo) {
  (void)eo;
  for (int i = 0; i < 8; i++)
    sums[i] = vd_sum(v[i]);
}

static inline double vd_most(vd a) {
  uint64_t lane[8], most = 0;
  vd_store(lane, a, RMS_F64, 0);
  for (int i = 0; i < 8; i++)
    most = lane[i] > most ? lane[i] : most;
  return rms_f64_from_bits(most);
}

#endif
