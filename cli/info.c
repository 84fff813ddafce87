/* SPDX-License-Identifier: MIT
 *
 * rmsnorm info: this machine and this build. */
#include "cli.h"

#include <string.h>

#include "json.h"
#include "machine.h"
#include "rmsnorm.h"

static void print_json(const machine *m, double bandwidth) {
  const char *active = rms_isa_active();
  cli_json j = {.stream = stdout};
  cli_json_open(&j, NULL, '{');
  cli_json_text(&j, "version", rms_version());
  cli_json_text(&j, "cpu", m->cpu);
  cli_json_int(&j, "cores", m->cores);
  cli_json_open(&j, "caches", '[');
  for (int i = 0; i < m->cache_count; i++) {
    cli_json_open(&j, NULL, '{');
    cli_json_int(&j, "level", m->caches[i].level);
    cli_json_text(&j, "type", m->caches[i].type);
    cli_json_int(&j, "bytes", m->caches[i].bytes);
    cli_json_close(&j);
  }
  cli_json_close(&j);
  cli_json_open(&j, "instruction_sets", '[');
  for (int i = 0; i < rms_isa_count(); i++) {
    const char *name = rms_isa_name(i);
    cli_json_open(&j, NULL, '{');
    cli_json_text(&j, "name", name);
    cli_json_flag(&j, "usable", rms_isa_usable(name));
    cli_json_flag(&j, "active", active && strcmp(name, active) == 0);
    cli_json_close(&j);
  }
  cli_json_close(&j);
  cli_json_int(&j, "stream_threshold_bytes", rms_stream_threshold());
  cli_json_real(&j, "copy_gb_per_s", bandwidth);
#ifdef RMSNORM_HAVE_CUDA
  info_cuda_json(&j);
#endif
  cli_json_close(&j);
}

static void print_bytes(int64_t bytes) {
  if (bytes % (1 << 20) == 0)
    printf("%lld MB", (long long)(bytes >> 20));
  else
    printf("%lld KB", (long long)(bytes >> 10));
}

static void print_text(const machine *m, double bandwidth) {
  const char *active = rms_isa_active();
  printf("%-18s %s\n%-18s %s, %d core%s\n%-18s", "version", rms_version(), "cpu", m->cpu, m->cores,
         m->cores == 1 ? "" : "s", "caches");
  for (int i = 0; i < m->cache_count; i++) {
    printf("%s L%d ", i ? "," : "", m->caches[i].level);
    print_bytes(m->caches[i].bytes);
  }
  printf("%s\n%-18s", m->cache_count ? "" : " unknown", "instruction sets");
  for (int i = 0; i < rms_isa_count(); i++) {
    const char *name = rms_isa_name(i);
    printf("%s %s (%s)", i ? "," : "", name,
           active && strcmp(name, active) == 0 ? "active"
           : rms_isa_usable(name)              ? "usable"
                                               : "compiled in, not on this CPU");
  }
  printf("\n%-18s ", "stream threshold");
  if (rms_stream_threshold() == INT64_MAX)
    printf("never");
  else
    print_bytes(rms_stream_threshold());
  printf("\n%-18s %.1f GB/s, one thread, past the caches, read and written bytes counted\n", "copy", bandwidth);
#ifdef RMSNORM_HAVE_CUDA
  printf("%-18s ", "cuda");
  info_cuda_text(stdout);
#endif
}

int cmd_info(int argc, char **argv) {
  int as_json = 0;
  const cli_option table[] = {{"json", 0, CLI_FLAG, &as_json, NULL, "one JSON document"}, {0}};
  const cli_command command = {
      "info",
      "[--json]",
      "Tells the version, the CPU and its caches, the instruction sets that are compiled in, usable and\n"
      "active, and how fast memory copies.",
      "  rmsnorm info\n"
      "  rmsnorm info --json\n"
      "  RMSNORM_ISA=scalar rmsnorm info\n",
      table,
      NULL};
  int code = cli_parse(&command, &argc, argv);
  if (code >= 0) return code;
  if (argc > 0) return cli_error(NULL, "info takes no argument: '%s'", argv[0]);
  code = cli_check_environment();
  if (code >= 0) return code;
  machine m;
  machine_read(&m);
  double bandwidth = machine_copy_bandwidth(&m);
  if (as_json)
    print_json(&m, bandwidth);
  else
    print_text(&m, bandwidth);
  return CLI_OK;
}
