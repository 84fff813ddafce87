#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Builds the wheel, by way of the source distribution, or runs a suite of the Python package in a virtual environment of its
# own under WORK.
# usage: run.sh wheel|SUITE SOURCE WORK       SUITE: requirements-SUITE.txt beside this script says what it needs
# The suites asan, transformers and cuda use the environment of the suite torch. asan is that suite with an extension that the
# sanitizers watch; cuda needs an NVIDIA GPU and nvcc.
# PYTHON names the interpreter. Otherwise it is the oldest that there is: from 3.10 on for the suite numpy, and from 3.11 on for
# the others, which need packages that 3.10 no longer gets.
set -eu

what=$1 source=$2 work=$3
tests=$source/python/tests

# The first interpreter that runs and has the parts that are needed; also one that pyenv has installed but not made active.
find_python() {
  oldest=
  if [ "$what" = numpy ]; then oldest="python3.10 ${PYENV_ROOT:-$HOME/.pyenv}/versions/3.10.*/bin/python3.10"; fi
  # The pattern is expanded here.
  for candidate in ${PYTHON:-$oldest python3.11 python3.12 python3.13 python3}; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
}

# make_venv FOLDER REQUIREMENTS: made anew when the requirements change.
make_venv() {
  if ! cmp -s "$2" "$1/requirements.txt"; then
    rm -rf "$1"
    "$python" -m venv "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check -r "$2"
    cp "$2" "$1/requirements.txt"
  fi
}

python=$(find_python)
if [ -z "$python" ]; then
  echo "skipped: no Python from 3.10 on with the venv module (Debian: python3-venv)"
  exit 77
fi
mkdir -p "$work"

# Tests that run beside each other share the cores.
if [ -n "${RMSNORM_BUILD_JOBS:-}" ]; then
  export CMAKE_BUILD_PARALLEL_LEVEL="$RMSNORM_BUILD_JOBS"
fi

# make_wheel VENV FOLDER PROJECT [SETTING...]: the build folder is kept, so that the next time is quick.
make_wheel() {
  builder=$1 folder=$2 project=$3
  shift 3
  rm -rf "$work/dist-$folder"
  "$builder/bin/pip" wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
    --config-settings=build-dir="$work/wheel-$folder" "$@" --wheel-dir "$work/dist-$folder" "$project"
}

install_wheel() {
  "$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$work/dist-$1"/*.whl
}

# make_sdist: unpacked in $work/sdist, so that the wheel is built from what it contains. Unpacked files are as new as now,
# so that the build folder notices every change.
make_sdist() {
  rm -rf "$work/dist-sdist" "$work/sdist"
  mkdir -p "$work/sdist"
  (cd "$source" && "$work/venv-build/bin/python" "$tests/sdist.py" "$work/dist-sdist")
  tar -xzmf "$work"/dist-sdist/*.tar.gz -C "$work/sdist" --strip-components=1
}

if [ "$what" = wheel ]; then
  make_venv "$work/venv-build" "$tests/requirements-build.txt"
  make_sdist
  make_wheel "$work/venv-build" plain "$work/sdist"
  cmake --build "$work/wheel-plain" --target device_double
  ls "$work/dist-plain"
  exit 0
fi

suite=${what%%-*} folder=plain requirements=$what # torch-oldest is the suite torch with other versions
if [ "$suite" = cuda ]; then
  if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
    echo "skipped: needs an NVIDIA GPU"
    exit 77
  fi
  make_wheel "$work/venv-build" cuda "$source/python/cuda" --config-settings=cmake.define.CMAKE_CUDA_ARCHITECTURES=native
fi
if [ "$suite" = asan ]; then
  folder=asan
  make_wheel "$work/venv-build" asan "$work/sdist" --config-settings=cmake.define.RMSNORM_PYTHON_SANITIZE=ON
fi
case $suite in
  asan | transformers | cuda) requirements=torch ;;
esac
venv=$work/venv-$requirements
make_venv "$venv" "$tests/requirements-$requirements.txt"
if [ "$suite" = jax ]; then
  folder=jax # with the handlers, which are compiled with the headers in this environment
  # from the sources of the wheel, so that a compiler cache finds what is compiled for that
  make_wheel "$venv" jax "$work/sdist" --config-settings=cmake.define.RMSNORM_JAX=ON
fi
if [ "$suite" != asan ]; then
  install_wheel $folder
fi
if [ "$suite" = cuda ]; then
  install_wheel cuda
fi
cd "$tests"
export RMSNORM_DEVICE_DOUBLE="$work/wheel-plain/device_double.so"
if [ "$suite" = asan ]; then
  # Beside the suite of the same environment: the package is not installed but found first. Compiled models load a compiler,
  # which the sanitizer cannot watch; memory that grows is what test_constant_memory looks for in the suite torch. Processes of a
  # group run the operators of test_torch_split, which are watched.
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --upgrade --target "$work/site-asan" "$work/dist-asan"/*.whl
  ldd "$work/site-asan/rmsnorm/_core.abi3.so" | grep -q libasan
  export PYTHONPATH="$work/site-asan" ASAN_OPTIONS=detect_leaks=0
  LD_PRELOAD="$(${CC:-cc} -print-file-name=libasan.so) $(${CC:-cc} -print-file-name=libstdc++.so)"
  export LD_PRELOAD
  exec "$venv/bin/python" -m pytest -q -p no:cacheprovider --suite torch \
    -k 'not compile and not constant_memory and not export and not dtensor and not sharded'
fi
if [ "$suite" = torch ]; then
  # Of the operators in Python, the oldest torch runs the tests of the norms themselves: what depends on its version is there.
  chosen='not compile and not test_torch_device and not dtensor and not sharded'
  [ "$what" = torch ] || chosen="$chosen and test_torch.py"
  RMSNORM_TORCH_KERNELS=python "$venv/bin/python" -m pytest -q -p no:cacheprovider --suite "$suite" -k "$chosen"
fi
if [ "$what" = torch-oldest ]; then
  # Four processes find what two do, and the suite torch has them.
  set -- --deselect 'python/tests/test_torch_sharded.py::test_cases[4]' --deselect 'python/tests/test_torch_dtensor.py::test_placements[4]'
else
  set --
fi
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider --suite "$suite" "$@"
