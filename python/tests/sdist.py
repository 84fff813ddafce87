# SPDX-License-Identifier: MIT
"""Builds the source distribution: python sdist.py FOLDER. Fails if the folders that pyproject.toml leaves out were walked
through: environments with torch, which the tests make there, took ten minutes."""
import os
import sys

import scikit_build_core.build

LEFT_OUT = ("build", "dist", "lab", "lab-out", "tests")
walk, walked = os.walk, []


def recorded(*arguments, **named):
    for step in walk(*arguments, **named):
        walked.append(os.path.relpath(step[0]))
        yield step


os.walk = recorded
scikit_build_core.build.build_sdist(sys.argv[1])
assert os.path.join("python", "rmsnorm") in walked, "the walk was not recorded"
unwanted = [folder for folder in walked if folder.split(os.sep)[0].startswith(LEFT_OUT)]
assert not unwanted, f"walked through {len(unwanted)} folders that are left out, as {unwanted[0]}"
