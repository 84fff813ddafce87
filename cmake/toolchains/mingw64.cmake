# SPDX-License-Identifier: MIT
# 64-bit Windows from another machine: Debian's mingw-w64, and wine to run what it built. Programs are linked statically, so
# that they need no libraries of the compiler beside them.
#   cmake -S . -B build-mingw64 --toolchain cmake/toolchains/mingw64.cmake -DRMSNORM_CLI=OFF -DRMSNORM_LAB=off -DRMSNORM_CUDA=off
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_CROSSCOMPILING_EMULATOR wine)
set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
