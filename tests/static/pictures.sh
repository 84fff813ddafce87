#!/bin/sh
# SPDX-License-Identifier: MIT
# The pictures of the documents are those that the scripts draw from the figures beside them. usage: pictures.sh SOURCE
set -eu
source=$1
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 "$source/scripts/plot_threads.py" "$source/docs/pictures/threads.json" | cmp - "$source/docs/pictures/threads.svg"
if python3 "$source/scripts/plot_threads.py" 2>/dev/null; then echo "drew a picture of nothing" >&2; exit 1; fi
