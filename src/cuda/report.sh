#!/bin/sh
# SPDX-License-Identifier: MIT
# Compiles one file (report.sh OBJECT COMMAND...) and keeps ptxas' account of registers and spills beside the object
# (OBJECT.ptxas, for tests/cuda/spills.sh) instead of printing it.
object=$1
shift
"$@" 2>"$object.ptxas"
code=$?
grep -v -E '^ptxas info|bytes stack frame|^$' "$object.ptxas" >&2
exit $code
