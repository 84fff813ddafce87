#!/bin/sh
# SPDX-License-Identifier: MIT
#
# cluster.sh COMMAND MPIRUN: the lab on several processes. The same bits as on one; one process prints; stopping, resuming, and a
# process that dies; data that differ.
set -u
command=$1
mpirun=$2
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
job=
trap 'rm -rf "$folder"; if [ -n "$job" ]; then kill "$job" 2>/dev/null; fi' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none
failed=0
fail() {
  echo "FAIL: $*"
  failed=1
}

common="--synthetic --batch 9 --tested 4 --shards 3"
pairs="--pairs 300 --merges 50"
transformer="transformer $common $pairs --width 16 --hidden 16 --layers 1 --heads 2 --beam 2"
convpool="convpool $common --embed 4"

# train N FOLDER ARGUMENT...: on N processes; checkpoints in FOLDER, the report in FOLDER/report
train() {
  processes=$1
  to=$folder/$2
  shift 2
  timeout 300 "$mpirun" -n "$processes" "$command" lab "$@" --runs 1 --timing 0 --checkpoints "$to" --out "$to/report" >"$to.out" 2>"$to.err"
}

# alone FOLDER ARGUMENT...: the same without MPI
alone() {
  to=$folder/$1
  shift
  timeout 300 "$command" lab "$@" --runs 1 --timing 0 --checkpoints "$to" --out "$to/report" >"$to.out" 2>"$to.err"
}

same() { python3 "$here/same_training.py" "$folder/$1" "$folder/$2" || fail "$1 and $2 are not the same"; }

# ---- the same bits on any number of processes, and one of them prints ----
# shellcheck disable=SC2086 # the settings are lists of arguments
for model in transformer convpool; do
  if [ $model = transformer ]; then settings="$transformer --norms rms,layer --dropout 0.1"; else settings="$convpool --norms rms,batch"; fi
  alone $model-1 $settings --steps 10 || fail "$model on one process: $(cat "$folder/$model-1.err")"
  for processes in 2 3; do
    train $processes $model-$processes $settings --steps 10 || fail "$model on $processes: $(cat "$folder/$model-$processes.err")"
    same $model-1 $model-$processes
    [ "$(grep -c '^report: ' "$folder/$model-$processes.out")" -eq 1 ] || fail "not one report is printed"
    [ "$(grep -c ': data: ' "$folder/$model-$processes.err")" -eq 1 ] || fail "not one process announces its data"
    grep -q "\"processes\": $processes" "$folder/$model-$processes/report/report.json" || fail "the report does not count processes"
  done
done

# ---- the time of a step on some of the processes ----
# shellcheck disable=SC2086
timeout 300 "$mpirun" -n 3 "$command" lab scaling $convpool --steps 3 --out "$folder/scaling" >"$folder/scaling.out" 2>&1 ||
  fail "scaling: $(cat "$folder/scaling.out")"
for processes in 1 2 3; do
  grep -q "^$processes measured" "$folder/scaling.out" || fail "scaling on $processes: $(cat "$folder/scaling.out")"
done

# ---- stopped, resumed on another number of processes ----
# begin SETTINGS...: a long job in the background; waits for its first checkpoint
begin() {
  to=$folder/$1
  shift
  "$mpirun" -n 3 "$command" lab "$@" --runs 1 --timing 0 --every 1 --checkpoints "$to" --out "$to/report" >"$to.out" 2>"$to.err" &
  job=$!
  for _ in $(seq 600); do
    if ls "$to"/*.safetensors >"$folder/list" 2>&1; then return; fi
    sleep 0.1
  done
  fail "no checkpoint after a minute: $(cat "$to.err")"
}

# ended NAME: the job has ended within a minute, and not well; its exit code
ended() {
  for _ in $(seq 600); do
    if ! kill -0 "$job" 2>/dev/null; then
      wait "$job"
      code=$?
      job=
      [ $code -ne 0 ] || fail "$1: the job succeeds"
      return
    fi
    sleep 0.1
  done
  fail "$1: the job hangs"
}

# child_of PID: the last child process
child_of() { cat /proc/[0-9]*/stat 2>/dev/null | awk -v parent="$1" '$4 == parent { child = $1 } END { print child }'; }

long="$transformer --norms rms --steps 400"
# shellcheck disable=SC2086
{
  begin stopped $long
  kill -USR1 "$job"
  ended stopped
  grep -q 'stopped by SIGUSR1' "$folder/stopped/report/report.json" || fail "no report of what was done: $(cat "$folder/stopped.err")"
  alone whole $long || fail "the whole run: $(cat "$folder/whole.err")"
  rm -rf "$folder/stopped/report"
  train 2 stopped $long --resume || fail "resumed: $(cat "$folder/stopped.err")"
  same whole stopped

  begin interrupted $long # as Ctrl-C does
  kill -INT "$job"
  ended interrupted
  rm -rf "$folder/interrupted/report"
  alone interrupted $long --resume || fail "resumed after Ctrl-C: $(cat "$folder/interrupted.err")"
  same whole interrupted

  # ---- a process that dies: the job ends with a message, and the last checkpoint is good ----
  begin dead $long
  kill -9 "$(child_of "$job")"
  ended dead
  [ -s "$folder/dead.err" ] || fail "no message about the process that died"
  rm -rf "$folder/dead/report"
  alone dead $long --resume || fail "resumed after a process died: $(cat "$folder/dead.err")"
  same whole dead
}

# ---- refused ----
# refused TEXT LINES COMMAND...: exit code not 0, LINES lines with TEXT, no report
refused() {
  text=$1
  lines=$2
  shift 2
  timeout 60 "$mpirun" -n 3 "$@" --out "$folder/bad" >"$folder/bad.out" 2>"$folder/bad.err" && fail "$*: succeeds"
  [ "$(grep -cF -- "$text" "$folder/bad.err")" -eq "$lines" ] || fail "$*: not $lines times '$text': $(cat "$folder/bad.err")"
  [ ! -e "$folder/bad" ] || fail "$*: left a report"
}
# Text enough for two processes to wait for the third, which has none.
for rank in 0 1; do yes "Once upon a time there was a king who had three sons." | head -n 3000 >"$folder/$rank.txt"; done
refused "unknown option" 1 "$command" lab --nosuch
# shellcheck disable=SC2086,SC2016
{
  refused "2 shards of a batch are too few for 3 processes" 1 "$command" lab $convpool --shards 2
  refused "the processes do not have the same data" 1 \
    sh -c 'exec "$0" "$@" --pairs $((200 + ${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}))' "$command" lab transformer $common --merges 50
  refused "process 2: $folder/2.txt: No such file" 1 \
    sh -c 'exec "$0" "$@" --text "'"$folder"'/${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}.txt"' "$command" lab lm --shards 3
}
[ $failed -eq 0 ] && echo "all well"
exit $failed
