/* SPDX-License-Identifier: MIT
 *
 * rmsnorm bench --device cuda: operations in graph replay over rotating buffers, so that neither inputs nor outputs are
 * in L2, beside copies of the same bytes with the same mix of reads and writes. */
#include "cuda.h"

#include <cuda_runtime.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "rmsnorm_cuda.h"
#include "cuda_targets.h"
#include "cuda_memory.h"
extern "C" {
#include "../../verify/data.h"
#include "../cli.h"
#include "traffic.h"
}

namespace {

enum { ROUNDS = 15, MOST_SETS = 1024, HOST_CALLS = 32 };
constexpr size_t cold_bytes = (size_t)640 << 20; /* of all sets together: several times the L2 */

#define MUST(call)                                                                                                     \
  do {                                                                                                                 \
    cudaError_t error_ = (call);                                                                                       \
    if (error_ != cudaSuccess) {                                                                                       \
      fprintf(stderr, "rmsnorm: cuda: %s\n", cudaGetErrorString(error_));                                              \
      exit(CLI_FAILED);                                                                                                \
    }                                                                                                                  \
  } while (0)

/* ---- one problem ---- */

struct Bench {
  verify_case base; /* without memory */
  rms_spec spec;
  traffic moved;
  std::vector<verify_case> sets;
  char *shared[VERIFY_ROLES]; /* weights, their gradients and the workspace: the same in every set */
  std::vector<void *> owned;
  cudaStream_t stream;
};

bool grows_with_rows(verify_role role) {
  return verify_role_has_rows(role) || role == VERIFY_RSTD || role == VERIFY_MEAN || role == VERIFY_DRSTD ||
         role == VERIFY_DMEAN;
}

/* Bytes of an element; 1 where a tensor is bytes, or blocks that are not elements. */
size_t element_size(const verify_tensor &t) {
  const size_t size = t.dtype == RMS_AS_X ? 0 : rms_dtype_size(t.dtype);
  return size ? size : 1;
}

/* Every tensor has room for the widest type of those that have as many elements, and a little more: a copy moves the
 * same bytes in each of its buffers. */
size_t room_of(const verify_case *c, verify_role role) {
  const verify_tensor &t = c->tensor[role];
  const size_t elements = t.bytes / element_size(t);
  size_t wider = 1;
  for (int other = 0; other < VERIFY_ROLES; other++) {
    const verify_tensor &o = c->tensor[other];
    if (o.present && o.bytes / element_size(o) >= elements) wider = std::max(wider, element_size(o));
  }
  return std::max(t.bytes, elements * wider) / 16 * 18 + 16;
}

/* Rows of zeros, with a NaN, or huge and small ones, where the problem asks for them. */
void set_rows(Bench &b, const verify_tensor &t, void *p, verify_data data) {
  const int64_t rows = t.outer * t.inner;
  std::vector<double> factors((size_t)rows);
  void *copy;
  for (int64_t row = 0; row < rows; row++)
    factors[(size_t)row] = verify_row_factor(data, row, t.dtype);
  MUST(cudaMalloc(&copy, factors.size() * sizeof(double)));
  b.owned.push_back(copy);
  MUST(cudaMemcpy(copy, factors.data(), factors.size() * sizeof(double), cudaMemcpyHostToDevice));
  multiply_rows(p, t.dtype, rows, t.inner, t.outer_stride, t.inner_stride, t.cols, static_cast<double *>(copy),
                b.stream);
}

/* Saved statistics are ones, unless save_statistics() follows: the time of a backward depends on their values only
 * where rows are unusual. */
char *place(void *ctx, const verify_case *c, verify_role role) {
  static uint64_t seed = 1;
  Bench &b = *static_cast<Bench *>(ctx);
  if (b.shared[role]) return b.shared[role];
  const verify_tensor &t = c->tensor[role];
  void *p;
  MUST(cudaMalloc(&p, room_of(c, role) + 256));
  b.owned.push_back(p);
  if (role == VERIFY_RSTD || role == VERIFY_MEAN)
    fill_ones(p, t.cols, t.dtype, b.stream);
  else if (t.dtype != RMS_AS_X)
    fill_noise(p, (int64_t)(t.bytes / rms_dtype_size(t.dtype)), t.dtype, seed++, b.stream);
  const verify_data data = role == VERIFY_DY                             ? c->problem.dy_data
                           : role == VERIFY_X || role == VERIFY_RESIDUAL ? c->problem.data
                                                                         : VERIFY_NORMAL;
  if (data >= VERIFY_ZEROROWS) set_rows(b, t, p, data);
  if (!grows_with_rows(role)) b.shared[role] = static_cast<char *>(p);
  return static_cast<char *>(p);
}

rms_status call(const Bench &b, const verify_case &set) {
  if (b.base.problem.backward) {
    const rms_backward_args a = verify_case_backward_args(&set);
    return rms_cuda_backward(&b.spec, &a, b.stream);
  }
  const rms_forward_args a = verify_case_forward_args(&set);
  return rms_cuda_forward(&b.spec, &a, b.stream);
}

/* Enough sets to fill the L2 several times over, or 0 if they do not fit the device. */
int count_sets(const Bench &b) {
  size_t free_bytes, total, set_bytes = 0;
  MUST(cudaMemGetInfo(&free_bytes, &total));
  for (int role = 0; role < VERIFY_ROLES; role++)
    if (b.base.tensor[role].present && grows_with_rows((verify_role)role))
      set_bytes += room_of(&b.base, (verify_role)role) + 256;
  const double sets = std::max(2.0, std::ceil((double)cold_bytes / (double)set_bytes));
  if ((double)set_bytes * std::min(sets, (double)MOST_SETS) > 0.9 * (double)free_bytes) return 0;
  return (int)std::min(sets, (double)MOST_SETS);
}

/* The statistics of unusual rows as a forward saves them. */
void save_statistics(const Bench &b, const verify_case &set) {
  const rms_backward_args a = verify_case_backward_args(&set);
  if (!set.problem.backward || set.problem.data < VERIFY_ZEROROWS || !a.rstd || !a.dx.data) return;
  rms_forward_args f = {};
  f.outer = a.outer, f.inner = a.inner;
  f.x = a.x, f.gate = a.gate, f.y = a.dx;
  f.rstd = const_cast<void *>(a.rstd), f.mean = const_cast<void *>(a.mean);
  (void)rms_cuda_forward(&b.spec, &f, b.stream);
}

void make_set(Bench &b) {
  verify_case set = b.base;
  const verify_allocator allocator = {place, &b};
  (void)verify_case_place(&set, &allocator);
  if (set.problem.outputs & (VERIFY_OUT_DW | VERIFY_OUT_DB)) {
    const rms_backward_args a = verify_case_backward_args(&set);
    (void)verify_case_place_workspace(&set, rms_cuda_backward_workspace(&b.spec, &a), &allocator);
  }
  save_statistics(b, set);
  b.sets.push_back(set);
}

/* Everything of one problem on the device; returns an exit code, with a reason where it is not CLI_OK. */
int prepare(Bench &b, const verify_problem &problem, const char **reason) {
  *reason = "the split form, index lists and in-place problems are not timed on this device";
  if (problem.split || problem.has_indices || problem.in_place || problem.outer == 0) return CLI_BAD;
  *reason = "the tensors do not fit the device";
  if (verify_case_describe(&b.base, &problem)) return CLI_BAD;
  b.spec = verify_library_spec(&problem.spec);
  b.moved = traffic_of(&b.base);
  const int sets = count_sets(b);
  if (sets == 0) return CLI_BAD;
  *reason = "it writes no tensor of rows, so there is no copy to compare it with";
  if (b.moved.write_count == 0) return CLI_BAD;
  *reason = "no copy to compare it with reads more than four tensors or writes more than three";
  if (b.moved.read_count > COPY_READS || b.moved.write_count > COPY_WRITES) return CLI_BAD;
  MUST(cudaStreamCreate(&b.stream));
  for (int i = 0; i < sets; i++)
    make_set(b);
  const rms_status status = call(b, b.sets[0]);
  *reason = rms_status_string(status);
  if (status) return CLI_BAD;
  MUST(cudaDeviceSynchronize());
  return CLI_OK;
}

void release(Bench &b) {
  for (void *p : b.owned)
    (void)cudaFree(p);
  if (b.stream) (void)cudaStreamDestroy(b.stream);
}

/* ---- timing ---- */

struct Timing {
  double median, low, high; /* microseconds of one call */
};

template <class Queue> Timing time_of(Bench &b, int calls, Queue queue) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t start, stop;
  MUST(cudaStreamBeginCapture(b.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < calls; i++)
    queue(i);
  MUST(cudaStreamEndCapture(b.stream, &graph));
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  MUST(cudaEventCreate(&start));
  MUST(cudaEventCreate(&stop));
  std::vector<double> times;
  for (int round = -2; round < ROUNDS; round++) {
    float ms;
    MUST(cudaEventRecord(start, b.stream));
    MUST(cudaGraphLaunch(exec, b.stream));
    MUST(cudaEventRecord(stop, b.stream));
    MUST(cudaEventSynchronize(stop));
    MUST(cudaEventElapsedTime(&ms, start, stop));
    if (round >= 0) times.push_back(1e3 * (double)ms / calls);
  }
  MUST(cudaEventDestroy(start));
  MUST(cudaEventDestroy(stop));
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return {times[ROUNDS / 2], times[1], times[ROUNDS - 2]};
}

/* Microseconds after which a call returns: the GPU works meanwhile, and its queue has room for all calls of a round. */
double time_on_host(Bench &b) {
  using clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int round = -1; round < ROUNDS; round++) {
    MUST(cudaStreamSynchronize(b.stream));
    const clock::time_point start = clock::now();
    for (int i = 0; i < HOST_CALLS; i++)
      (void)call(b, b.sets[(size_t)i % b.sets.size()]);
    const std::chrono::duration<double, std::micro> time = clock::now() - start;
    if (round >= 0) times.push_back(time.count() / HOST_CALLS);
  }
  MUST(cudaStreamSynchronize(b.stream));
  std::sort(times.begin(), times.end());
  return times[ROUNDS / 2];
}

/* Parts of a tensor that are as large as the smallest tensor that is moved, about. */
int parts_of(const Bench &b, verify_role role) {
  auto size = [&](verify_role r) { return (double)rms_dtype_size(b.base.tensor[r].dtype); };
  double least = 8;
  for (int i = 0; i < b.moved.read_count; i++)
    least = std::min(least, size(b.moved.reads[i]));
  for (int i = 0; i < b.moved.write_count; i++)
    least = std::min(least, size(b.moved.writes[i]));
  return (int)(size(role) / least);
}

/* Where tensors differ in the size of their elements, a larger one counts as several: the mix of reads and writes is
 * that of the call. If that makes too many of them, all count as one. */
CopyBuffers buffers_of(const Bench &b, const verify_case &set) {
  CopyBuffers s = {};
  int reads = 0, writes = 0;
  for (int i = 0; i < b.moved.read_count; i++)
    reads += parts_of(b, b.moved.reads[i]);
  for (int i = 0; i < b.moved.write_count; i++)
    writes += parts_of(b, b.moved.writes[i]);
  const bool whole = reads > COPY_READS || writes > COPY_WRITES;
  s.vectors = (int64_t)(b.moved.bytes / (whole ? b.moved.read_count + b.moved.write_count : reads + writes) / 16);
  for (int i = 0; i < b.moved.read_count; i++)
    for (int part = 0; part < (whole ? 1 : parts_of(b, b.moved.reads[i])); part++)
      s.in[s.reads++] = reinterpret_cast<const uint4 *>(set.tensor[b.moved.reads[i]].data) + part * s.vectors;
  for (int i = 0; i < b.moved.write_count; i++)
    for (int part = 0; part < (whole ? 1 : parts_of(b, b.moved.writes[i])); part++)
      s.out[s.writes++] = reinterpret_cast<uint4 *>(set.tensor[b.moved.writes[i]].data) + part * s.vectors;
  return s;
}

/* The fastest of the copies: of several loops, and for one read and one write also the runtime's own. */
Timing time_copies(Bench &b, int calls) {
  Timing best = {1e30, 0, 0};
  auto buffers = [&](int i) { return buffers_of(b, b.sets[(size_t)i % b.sets.size()]); };
  for (int unroll = 1; unroll <= 4; unroll *= 2) {
    Timing t = time_of(b, calls, [&](int i) { copy_buffers_on(buffers(i), unroll, b.stream); });
    if (t.median < best.median) best = t;
  }
  if (buffers(0).reads == 1 && buffers(0).writes == 1) {
    Timing t = time_of(b, calls, [&](int i) {
      CopyBuffers s = buffers(i);
      (void)cudaMemcpyAsync(s.out[0], s.in[0], (size_t)s.vectors * 16, cudaMemcpyDeviceToDevice, b.stream);
    });
    if (t.median < best.median) best = t;
  }
  return best;
}

struct Result {
  const char *problem;
  const Target *target; /* NULL: none */
  Timing ours, copy;
  Timing warm; /* over and over on the same buffers */
  double rate, ceiling, host;
};

/* Returns an exit code, with a reason where it is not CLI_OK. */
int measure(const verify_problem &problem, Result &r, const char **reason) {
  Bench b = {};
  int code = prepare(b, problem, reason);
  if (code == CLI_OK) {
    const int calls = std::max(8, (int)b.sets.size());
    auto time_ours = [&](size_t sets) {
      return time_of(b, calls, [&](int i) { (void)call(b, b.sets[(size_t)i % sets]); });
    };
    r.ours = time_ours(b.sets.size());
    if (r.target && r.target->time > 0) r.warm = time_ours(1);
    r.copy = time_copies(b, calls);
    r.host = time_on_host(b);
    r.rate = b.moved.bytes / r.ours.median * 1e-3;
    r.ceiling = b.moved.bytes / r.copy.median * 1e-3;
  }
  release(b);
  return code;
}

/* ---- telling ---- */

/* A LayerNorm is held to the RMSNorm of the same shape: 5 % of its time. */
double partner_time(const std::vector<Result> &done, const char *text) {
  if (strncmp(text, "layer:", 6) != 0) return 0;
  for (const Result &d : done)
    if (strncmp(d.problem, "rms:", 4) == 0 && strcmp(d.problem + 4, text + 6) == 0) return d.ours.median;
  return 0;
}

const char *verdict(bool reached) {
  return reached ? "reached" : "MISSED";
}

void print_text(const Result &r, double partner) {
  const Target none = {}, &target = r.target ? *r.target : none;
  printf("%-36s %9.2f %9.2f-%9.2f %7.0f %7.0f %6.3f %6.2f", r.problem, r.ours.median, r.ours.low, r.ours.high, r.rate,
         r.ceiling, r.rate / r.ceiling, r.host);
  if (target.share > 0) printf("  %s %.2f of the copy", verdict(r.rate >= target.share * r.ceiling), target.share);
  if (target.rate > 0) printf("  %s %.0f GB/s", verdict(r.rate >= target.rate), target.rate);
  if (target.time > 0)
    printf("  warm %.2f us, %s %.1f us", r.warm.median, verdict(r.warm.median <= target.time), target.time);
  if (partner > 0)
    printf("  %s 1.05 of RMSNorm (%.2f)", verdict(r.ours.median <= 1.05 * partner), r.ours.median / partner);
  printf("\n");
  fflush(stdout);
}

void print_json(cli_json *j, const Result &r) {
  cli_json_open(j, nullptr, '{');
  cli_json_text(j, "problem", r.problem);
  cli_json_real(j, "us", r.ours.median);
  cli_json_real(j, "us_low", r.ours.low);
  cli_json_real(j, "us_high", r.ours.high);
  cli_json_real(j, "gb_per_s", r.rate);
  cli_json_real(j, "copy_gb_per_s", r.ceiling);
  cli_json_real(j, "host_us", r.host);
  cli_json_close(j);
}

} // namespace

int bench_cuda(char **problems, int count, int as_json) {
  if (rms_cuda_available() != RMS_OK) return cli_error("--device", "cuda: %s", rms_status_string(RMS_E_DEVICE));
  const int total = count ? count : (int)(sizeof targets / sizeof *targets);
  std::vector<verify_problem> parsed((size_t)total);
  std::vector<Result> done;
  for (int i = 0; i < total; i++) {
    char message[256];
    const char *text = count ? problems[i] : targets[i].problem;
    if (verify_problem_parse(text, &parsed[(size_t)i], message, sizeof message)) return cli_error(text, "%s", message);
  }
  cli_json out = {};
  out.stream = stdout;
  if (as_json) {
    cli_json_open(&out, nullptr, '{');
    cli_json_text(&out, "device", "cuda");
    cli_json_open(&out, "results", '[');
  } else {
    printf("%-36s %9s %19s %7s %7s %6s %6s\n", "problem", "us", "spread", "GB/s", "copy", "share", "host");
  }
  for (int i = 0; i < total; i++) {
    Result r = {count ? problems[i] : targets[i].problem, count ? nullptr : &targets[i], {}, {}, {}, 0, 0, 0};
    const char *reason;
    const int code = measure(parsed[(size_t)i], r, &reason);
    if (code != CLI_OK) return cli_error(r.problem, "%s", reason);
    if (as_json)
      print_json(&out, r);
    else
      print_text(r, partner_time(done, r.problem));
    done.push_back(r);
  }
  if (as_json) {
    cli_json_close(&out);
    cli_json_close(&out);
  }
  return CLI_OK;
}
