/* SPDX-License-Identifier: MIT
 *
 * The sums of f64 vectors that every instruction set forms in the same way, from its own vd_sum and vd_add. */
#ifndef RMS_VEC_SUMS_H
#define RMS_VEC_SUMS_H

static inline double vd_sum4(vd a, vd b, vd c, vd d, int eo) {
  (void)eo;
  return vd_sum(vd_add(vd_add(a, c), vd_add(b, d)));
}

static inline void vd_sum8(double *sums, const vd *v, int eo) {
  (void)eo;
  for (int i = 0; i < 8; i++)
    sums[i] = vd_sum(v[i]);
}

#endif
