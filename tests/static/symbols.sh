#!/bin/sh
# SPDX-License-Identifier: MIT
# Every symbol that the library shows to a linker carries the prefix rms_, and the shared one shows exactly what the header
# declares, with the version of the interface. usage: symbols.sh NM HEADER LIBRARY.a LIBRARY.so [VERSION [PATTERN]]
# PATTERN: what symbols of the archive look like instead, in C++.
set -eu
nm=$1 header=$2 archive=$3 shared=$4 version=${5:-} pattern=${6:-^rms_}
status=0

# The version itself is a symbol too, an absolute one.
names() { awk 'NF >= 2 && $(NF-1) != "A" { print $NF }' | sed 's/@.*//' | sort -u; }

strays=$("$nm" -g --defined-only "$archive" | grep -v ':$' | names | grep -v -E "$pattern" || true)
if [ -n "$strays" ]; then
  echo "global symbols of $archive that do not match $pattern: $strays" >&2
  status=1
fi

# Sanitizers and compilers add bookkeeping symbols of their own; those start with an underscore.
exported=$("$nm" -D --defined-only "$shared" | names | grep -v '^_' || true)
declared=$(sed -n 's/^RMS_API .*[ *]\(rms_[a-z0-9_]*\)(.*/\1/p' "$header" | sort -u)
if [ -z "$declared" ]; then
  echo "no declarations found in $header" >&2
  exit 1
fi
if [ "$exported" != "$declared" ]; then
  echo "the symbols of $shared are not those that $header declares (< exported, > declared):" >&2
  tmp=$(mktemp -d)
  echo "$exported" > "$tmp/exported"
  echo "$declared" > "$tmp/declared"
  diff "$tmp/exported" "$tmp/declared" >&2 || true
  rm -r "$tmp"
  status=1
fi
if [ -n "$version" ] && "$nm" -D --defined-only "$shared" | grep ' [A-Z] rms_' | grep -v "@@RMSNORM_$version\$"; then
  echo "the symbols above do not have the version RMSNORM_$version" >&2
  status=1
fi
[ $status = 0 ] && echo "$(echo "$declared" | wc -l) symbols, all declared, all rms_"
exit $status
