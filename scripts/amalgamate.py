#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""amalgamate.py FOLDER: writes FOLDER/rmsnorm.c and FOLDER/rmsnorm.h, the CPU library as one source file and its header.

The sources stand in rmsnorm.c as they are, in this order: system headers, internal headers, the units of src/core and
src/cpu, the units of the instruction sets. Three things differ from separate compilation:

  - What compiler flags say there, pragmas say here: no contraction, and the target of each instruction set.
  - The instruction sets use the same names for their vectors (vf_add, vec_prefetch, ...): they get the instruction set in
    front. The names of the kernels have it at the end already.
  - Macros of a unit are undefined behind it. Static names must differ between the units: the compiler says if they do not.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
PUBLIC = ROOT / "include/rmsnorm.h"

# Instruction set, where it is compiled, and the names of its target for the compilers.
ISAS = [
    ("scalar", None, None),
    ("avx2", "RMS_WITH_AVX2", "avx2,fma,f16c"),
    ("avx512", "RMS_WITH_AVX512", "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq"),
    ("avx512_narrow", "RMS_WITH_AVX512", "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq"),
    ("avx512_native", "RMS_WITH_AVX512", "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16"),
    ("neon", "RMS_WITH_NEON", None),
]
# System headers that not every machine has.
CONDITION = {"emmintrin.h": "__x86_64__", "immintrin.h": "__x86_64__", "cpuid.h": "__x86_64__", "arm_neon.h": "__aarch64__",
             "sys/mman.h": "__linux__"}

HEAD = """\
/* SPDX-License-Identifier: MIT
 *
 * rmsnorm {version} in one file, made from the sources by `make amalgamation`: change those instead.
 *
 *   cc -O2 -c rmsnorm.c        gcc or clang; link with -lm -pthread
 *
 * All instruction sets of x86-64 and aarch64 are in it, chosen at run time, with the same bits as the library's. gcc on
 * Windows gets the portable code alone: its AVX code expects more alignment of the stack than Windows gives. */

/* No contraction that the source does not write: the bits depend on it. No errno around sqrt. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-math-errno")
#else
#error "rmsnorm: gcc or clang is needed"
#endif
#pragma GCC diagnostic ignored "-Wunused-function" /* of headers, which are no headers here */

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#if defined(__x86_64__) && (defined(__clang__) || !defined(_WIN32))
#define RMS_WITH_AVX2
#define RMS_WITH_AVX512
#elif defined(__aarch64__)
#define RMS_WITH_NEON
#endif
"""

TARGET = """\
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("{target}"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("{target}")
#endif
"""
TARGET_END = """\
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
"""
HIDDEN = """\
#if defined(__ELF__)
#pragma GCC visibility push(hidden)
#endif
"""
HIDDEN_END = """\
#if defined(__ELF__)
#pragma GCC visibility pop
#endif
"""

INCLUDE = re.compile(r'\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")')
DEFINE = re.compile(r"^\s*#\s*define\s+(\w+)", re.M)


def banner(title):
    return f"\n/* ======== {title} ======== */\n\n"


def is_shared(path):
    """A header that all units use, once: it has a guard and is no vector header, of which each instruction set has one."""
    return path.suffix == ".h" and "vec" not in path.parent.parts and "#ifndef RMS_" in path.read_text()


class Amalgamation:
    def __init__(self):
        self.system = set()  # system headers
        self.shared = {}  # shared headers and their text, in the order of their use

    def flatten(self, path, seen):
        """The text of a file with the project's includes in place; `seen` are the headers that are there already."""
        lines = []
        for line in path.read_text().splitlines():
            include = INCLUDE.match(line)
            if not include:
                lines.append(line)
            elif include[1]:
                self.system.add(include[1])
            else:
                lines += self.included((path.parent / include[2]).resolve(), seen)
        return lines

    def included(self, path, seen):
        if path == PUBLIC or path in seen or path in self.shared:
            return []
        if is_shared(path):
            text = self.flatten(path, seen)  # what it includes comes before it
            self.shared[path] = text
            return []
        if "#ifndef RMS_" in path.read_text():
            seen.add(path)
        return self.flatten(path, seen)

    def unit(self, path, isa=None, condition=None, target=None):
        text = "\n".join(self.flatten(path, set())) + "\n"
        if isa:
            text = re.sub(r"\b(vf|vd|vec)(?=_|\b(?!/))", rf"{isa}_\1", text)
        macros = "".join(f"#undef {name}\n" for name in sorted(set(DEFINE.findall(text))))
        if target:
            text = TARGET.format(target=target) + text + TARGET_END
        text += macros
        if condition:
            text = f"#if defined({condition})\n{text}#endif\n"
        return banner(path.relative_to(ROOT)) + text

    def system_includes(self):
        lines = [f"#include <{name}>\n" for name in sorted(self.system - CONDITION.keys())]
        for name in sorted(self.system & CONDITION.keys()):
            lines.append(f"#if defined({CONDITION[name]})\n#include <{name}>\n#endif\n")
        return "".join(lines) + '#include "rmsnorm.h"\n'

    def write(self):
        units = [self.unit(path) for folder in ("core", "cpu") for path in sorted((SRC / folder).glob("*.c"))]
        units += [self.unit(SRC / f"cpu/isa/{isa}.c", isa, *rest) for isa, *rest in ISAS]
        headers = "".join(banner(path.relative_to(ROOT)) + "\n".join(text) + "\n" for path, text in self.shared.items())
        version = re.findall(r"#define RMSNORM_VERSION_\w+ (\d+)", PUBLIC.read_text())
        head = HEAD.replace("{version}", ".".join(version))
        return head + self.system_includes() + banner("internal headers") + HIDDEN + headers + HIDDEN_END + "".join(units)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: amalgamate.py FOLDER")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rmsnorm.c").write_text(Amalgamation().write())
    (folder / "rmsnorm.h").write_text(PUBLIC.read_text())


if __name__ == "__main__":
    main()
