#!/bin/sh
# SPDX-License-Identifier: MIT
#
# setup_test.sh SETUP: runs scripts/setup.sh on invented machines, whose dpkg-query, apt-get, apt-cache, id and sudo are
# small scripts. Nothing is installed.
# shellcheck disable=SC2016,SC2086 # the scripts expand on their machine; an environment may be empty
set -eu

setup=$1
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
failures=0

# machine NAME: a new machine, with gcc installed and package lists that are fresh; user root.
machine() {
  name=$1
  here=$top/$name
  bin=$here/bin
  mkdir -p "$bin"
  for tool in sh sed sort comm xargs mktemp rm tr grep env tail cat true; do
    ln -s "$(command -v $tool)" "$bin/$tool"
  done
  echo gcc >"$here/installed"
  : >"$here/calls"
  : >"$here/unknown"
  touch "$here/fresh"
  printf 'gcc    # the compiler\nninja-build  # quick\n\n# a remark\nvalgrind # memory\n' >"$here/list"

  script id 'echo 0'
  script dpkg-query '
    shift 2
    [ $# -gt 0 ] || echo "install ok installed|virtual (= 1), other"
    for package; do if grep -qx "$package" "$here/installed"; then echo "$package install ok installed"; fi; done'
  script apt-cache '
    if [ $# = 1 ]; then
      if [ -e "$here/fresh" ]; then echo "     origin deb.example.org"; fi
      exit 0
    fi
    if [ -e "$here/fresh" ] && ! grep -qx "$2" "$here/unknown"; then echo "  Candidate: 1.0"; else echo "  Candidate: (none)"; fi'
  script apt-get '
    while :; do case $1 in -o) shift 2 ;; -*) shift ;; *) break ;; esac; done
    echo "$@" >>"$here/calls"
    case $1 in
    update) : >"$here/fresh" ;;
    install) shift 2; for package; do if grep -qx "$package" "$here/unknown"; then exit 100; fi; echo "$package" >>"$here/installed"; done ;;
    esac'
  script cc ''
  script cmake ''
  script make ''
}

script() {
  printf '#!/bin/sh\nhere=%s\n%s\n' "$here" "$2" >"$bin/$1"
  chmod +x "$bin/$1"
}

# run STATUS: runs the set-up and expects that exit status.
run() {
  status=0
  env -i PATH="$bin" TMPDIR="$top" ${2:-} sh "$setup" "$here/list" >"$here/out" 2>&1 </dev/null || status=$?
  [ $status = "$1" ] || bad "exit status $status, not $1"
}

bad() {
  echo "FAIL: $name: $*"
  sed 's/^/    /' "$here/out" "$here/calls"
  failures=$((failures + 1))
}

says() { grep -qF -- "$1" "$here/out" || bad "does not say: $1"; }
calls() { [ "$(cat "$here/calls")" = "$1" ] || bad "apt-get was not called as: $1"; }

machine everything-there
printf 'ninja-build\nvalgrind\n' >>"$here/installed"
run 0
[ ! -s "$here/out" ] || bad "says something"
calls ""

machine provided-by-another
printf 'gcc\nvirtual # a name that another package provides\n' >"$here/list"
run 0
calls ""

machine root-installs-what-is-missing
run 0
calls "install --no-install-recommends ninja-build valgrind"

machine old-lists-are-updated
rm "$here/fresh"
run 0
calls "update
install --no-install-recommends ninja-build valgrind"

machine mirror-has-moved-on # the lists name versions that are gone
script apt-get '
  while :; do case $1 in -o) shift 2 ;; -*) shift ;; *) break ;; esac; done
  echo "$@" >>"$here/calls"
  case $1 in
  update) : >"$here/updated" ;;
  install) [ -e "$here/updated" ] || exit 100; shift 2; for package; do echo "$package" >>"$here/installed"; done ;;
  esac'
run 0
calls "install --no-install-recommends ninja-build valgrind
update
install --no-install-recommends ninja-build valgrind"

machine unknown-package-does-not-stop-the-others
echo valgrind >"$here/unknown"
run 0
calls "install --no-install-recommends ninja-build"
says "valgrind # memory"
says "does not offer"
says "going on"
: >"$here/calls"
run 0
calls ""

machine user-with-sudo
script id 'echo 1000'
script sudo '[ "$1" = -n ] && exit 0; echo sudo >>"$here/calls"; exec "$@"'
run 0
calls "sudo
install --no-install-recommends ninja-build valgrind"

machine user-whose-sudo-asks
script id 'echo 1000'
script sudo 'exit 1'
run 0
says "sudo apt-get install --no-install-recommends ninja-build valgrind"
calls ""

machine user-without-compiler
script id 'echo 1000'
: >"$here/installed"
rm "$bin/cc"
run 1
says "gcc    # the compiler"
says "sudo apt-get install --no-install-recommends gcc ninja-build valgrind"
says "stopping"
calls ""

machine switched-off
run 0 RMSNORM_SETUP=off
says "ninja-build"
calls ""

machine not-debian
rm "$bin/dpkg-query"
run 0
rm "$bin/cmake"
run 1
says "CMake"

[ $failures = 0 ]
