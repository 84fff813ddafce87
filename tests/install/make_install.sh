#!/bin/sh
# SPDX-License-Identifier: MIT
#
# make_install.sh SOURCE SCRATCH: `make install` in a new build folder builds and installs the library and the command: it
# installs no packages, and builds neither tests nor the lab. `make all` and `make test` bring them in afterwards.
set -eu
source=$1 work=$2/make-install
fail() {
  echo "FAIL: $*" >&2
  exit 1
}

rm -rf "$work"
mkdir -p "$work/bin"
# The first thing that the set-up of packages asks; here it only notes that it was asked.
printf '#!/bin/sh\necho asked >>"%s/asked"\n' "$work" >"$work/bin/dpkg-query"
chmod +x "$work/bin/dpkg-query"
unset MAKEFLAGS MFLAGS MAKELEVEL DESTDIR

# Flags of a packager that are quick to compile with. With the shared library, the installed command must find it.
make_it() {
  PATH=$work/bin:$PATH RMSNORM_SETUP=off make -C "$source" "$@" BUILD="$work/build" PREFIX="$work/prefix" JOBS=2 \
    CMAKE_ARGS="-DRMSNORM_OPTIMIZE=OFF -DCMAKE_C_FLAGS_RELEASE=-Dalways_inline=unused -DBUILD_SHARED_LIBS=ON -DRMSNORM_CUDA=off -DRMSNORM_MPI=off \
      -DCMAKE_EXPORT_COMPILE_COMMANDS=ON" \
    >"$work/log" 2>&1 || { cat "$work/log"; fail "make $*"; }
}
cached() { grep -q "^$1\$" "$work/build/CMakeCache.txt"; }

make_it install
[ ! -e "$work/asked" ] || fail "make install looks at the packages of the system"
if (cd "$work/build" && find . -path '*/tests/*.o' -o -path '*/lab/*.o' -o -path '*/examples/*.o') | grep .; then
  fail "make install builds tests or the lab"
fi
for file in include/rmsnorm.h bin/rmsnorm share/man/man1/rmsnorm.1; do
  [ -e "$work/prefix/$file" ] || fail "$file is not installed"
done
[ -n "$(find "$work/prefix" -name librmsnorm.a)" ] || fail "the static library is not installed"
"$work/prefix/bin/rmsnorm" info >"$work/log" || fail "the installed command does not run"
if "$work/prefix/bin/rmsnorm" lab --help >"$work/log" 2>&1; then fail "the lab was built"; fi

# A packager's flags of release builds are taken, and nothing is added to them.
grep '"command"' "$work/build/compile_commands.json" >"$work/units"
[ -s "$work/units" ] || fail "no compile commands"
if grep -v -- ' -Dalways_inline=unused ' "$work/units"; then fail "these units lack the packager's flags"; fi
if grep -- ' -O' "$work/units"; then fail "these units have other flags than the packager's"; fi

# What was built is installed as it is.
rm -r "$work/prefix"
make_it install
[ -e "$work/prefix/bin/rmsnorm" ] || fail "the second make install installs nothing"
cached RMSNORM_TESTS:BOOL=OFF || fail "the second make install changes the build"

make_it all TARGET=rmsnorm_installed
if ! cached RMSNORM_TESTS:BOOL=ON || ! cached RMSNORM_LAB:STRING=auto; then fail "make all leaves the tests out"; fi
[ -e "$work/asked" ] || fail "make all does not look at the packages of the system"
make_it install
cached RMSNORM_TESTS:BOOL=ON || fail "make install takes the tests away"
if find "$work/build/tests" -name '*.o' | grep .; then fail "make install builds tests that nobody has built"; fi
