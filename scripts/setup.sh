#!/bin/sh
# SPDX-License-Identifier: MIT
#
# setup.sh LIST...: installs the missing Debian packages of the lists (lines of `package  # why`), if that needs no password: as
# root, or with a sudo that asks for none. Otherwise it prints what to install and how. Succeeds if nothing is missing, or if
# at least a C compiler and the build tools are there. RMSNORM_SETUP=off: never install.
# shellcheck disable=SC2016,SC2086 # ${...} is for dpkg-query; lists of packages are meant to split
set -eu
export LC_ALL=C

lists=$*
lock_wait=120 # seconds to wait for another apt-get to finish

listed_packages() { sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' $lists | sort -u; }

missing_packages() {
  listed_packages >"$scratch/wanted"
  xargs dpkg-query -W -f='${Package} ${Status}\n' <"$scratch/wanted" 2>/dev/null |
    sed -n 's/ install ok installed$//p' | sort -u >"$scratch/there"
  # A virtual or renamed package counts as there if something installed provides it.
  dpkg-query -W -f='${Status}|${Provides}\n' | sed -n 's/^install ok installed|//p' | tr ',' '\n' |
    sed -e 's/(.*//' -e 's/[[:space:]]//g' -e '/^$/d' | sort -u >"$scratch/provided"
  sort -u "$scratch/there" "$scratch/provided" | comm -23 "$scratch/wanted" -
}

apt() {
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=$lock_wait -o Acquire::Retries=2 \
    -o Acquire::http::Timeout=20 "$@" </dev/null >>"$scratch/log" 2>&1
}

lists_present() { apt-cache policy 2>/dev/null | grep -q '^ *origin '; }

# Of the missing packages, those that this release of the distribution has: one unknown name would stop the others.
offered() {
  for package in $missing; do
    if apt-cache policy "$package" 2>/dev/null | grep -q 'Candidate: [^(]'; then echo "$package"; fi
  done
}

install_offered() {
  packages=$(offered)
  [ -z "$packages" ] || apt install --no-install-recommends $packages
}

update_lists() {
  echo "setup: apt-get update"
  apt update || true
}

install_packages() {
  echo "setup: installing" $missing
  lists_present || update_lists
  if ! install_offered; then
    update_lists
    install_offered || tail -n 5 "$scratch/log" >&2
  fi
}

build_tools_present() {
  command -v cc >/dev/null && command -v cmake >/dev/null && { command -v ninja >/dev/null || command -v make >/dev/null; }
}

say_what_is_missing() {
  wanted=$missing
  if lists_present; then wanted=$(offered); fi
  {
    echo "setup: not installed:"
    for package in $missing; do
      grep -hE "^$package([[:space:]]|#|$)" $lists | sed 's/^/  /'
    done
    if [ -n "$wanted" ]; then
      echo "setup: to install:  sudo apt-get update && sudo apt-get install --no-install-recommends" $wanted
    else
      echo "setup: this release of the distribution does not offer them"
    fi
    if build_tools_present; then
      echo "setup: going on; what needs these packages is left out or reported as skipped"
    else
      echo "setup: stopping; a C compiler, CMake and make or ninja are needed"
    fi
  } >&2
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ! command -v dpkg-query >/dev/null; then
  if build_tools_present; then exit 0; fi
  echo "setup: no Debian or Ubuntu; install a C compiler, CMake 3.21 and make or ninja, and what $lists names" >&2
  exit 1
fi

missing=$(missing_packages)
[ -n "$missing" ] || exit 0
may_install=no
sudo=
if [ "${RMSNORM_SETUP:-on}" != off ] && command -v apt-get >/dev/null; then
  if [ "$(id -u)" = 0 ]; then
    may_install=yes
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    may_install=yes
    sudo=sudo
  fi
fi
if [ $may_install = yes ]; then
  if [ -n "$(offered)" ] || ! lists_present; then install_packages; fi
  missing=$(missing_packages)
  [ -n "$missing" ] || exit 0
fi
say_what_is_missing
build_tools_present || exit 1
