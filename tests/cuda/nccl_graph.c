/* SPDX-License-Identifier: MIT
 *
 * rmsnorm_nccl.h with one rank, in a graph and without one. */
#include <stdio.h>
#include <string.h>
#include "nccl_ranks.h"

static const int64_t all[] = {0, COLS};
static rows whole, split;

/* Both directions of a job of one rank captured in a graph and replayed. */
static void capture(job *j, rms_nccl n, shard *s, cudaStream_t stream, const char *where) {
  const rms_forward_args f = forward_of(s);
  rms_forward_args refused = f;
  const rms_backward_args b = backward_of(s);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  refused.x.dtype = 77;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  expect(rms_nccl_forward(&n, j->spec, &refused, s->stats, (rms_cuda_stream)stream) == RMS_E_DTYPE, "refused", where);
  expect(rms_nccl_forward(&n, j->spec, &f, s->stats, (rms_cuda_stream)stream) == RMS_OK, "forward", where);
  expect(rms_nccl_backward(&n, j->spec, &b, s->stats, (rms_cuda_stream)stream) == RMS_OK, "backward", where);
  must(cudaStreamEndCapture(stream, &graph));
  must(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; i++)
    must(cudaGraphLaunch(exec, stream));
  must(cudaStreamSynchronize(stream));
  must(cudaGraphExecDestroy(exec));
  must(cudaGraphDestroy(graph));
}

static void test_graph(int mode, int64_t chunk_rows, int64_t block_cols) {
  const rms_spec spec = {.cols = COLS, .eps = 1e-5};
  char where[64];
  snprintf(where, sizeof where, "graph, mode %d, chunks of %d, blocks of %d", mode, (int)chunk_rows, (int)block_cols);
  fill(&split, 23, 1);
  whole = split;
  job j = {.spec = &spec,
           .mode = (rms_nccl_mode)mode,
           .starts = all,
           .ranks = 1,
           .chunk_rows = chunk_rows,
           .block_cols = block_cols,
           .overlaps = 1,
           .r = &split};
  run_ranks(&j);
  if (block_cols == 0) run_whole(&spec, &whole, where);
  if (block_cols == 0) expect(memcmp(&whole, &split, sizeof whole) == 0, "other bits than the whole call", where);
  whole = split;
  fill(&split, 23, 1);
  shard s = make_shard(&split, 0, COLS);
  fake_nccl_create(j.comms, 1);
  rms_nccl n = {.comm = j.comms[0],
                .mode = mode,
                .chunk_rows = chunk_rows,
                .block_cols = block_cols,
                .most_cols = block_cols > 0 ? COLS : 0};
  cudaStream_t stream;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  must(cudaStreamCreateWithFlags(&n.exchange, cudaStreamNonBlocking));
  must(cudaEventCreateWithFlags(&n.event, cudaEventDisableTiming));
  n.scratch_bytes = rms_nccl_scratch(&n, &spec, ROWS, 1);
  n.scratch = device(NULL, n.scratch_bytes);
  capture(&j, n, &s, stream, where);
  fetch_shard(&split, &s);
  expect(memcmp(&whole, &split, sizeof whole) == 0, "other bits than without a graph", where);
  must(cudaEventDestroy(n.event));
  must(cudaStreamDestroy(n.exchange));
  must(cudaStreamDestroy(stream));
  must(cudaFree(n.scratch));
  free_shard(&s);
  fake_nccl_destroy(j.comms);
}

void test_graphs(void) {
  for (int mode = RMS_NCCL_REDUCE; mode <= RMS_NCCL_FOLD; mode++) {
    test_graph(mode, 0, 0);
    test_graph(mode, 10, 0);
  }
  test_graph(RMS_NCCL_FOLD, 0, 64);
  test_graph(RMS_NCCL_FOLD, 10, 64);
}
