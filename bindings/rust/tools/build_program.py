# SPDX-License-Identifier: Apache-2.0
"""build_program: builds a program of a crate from what was fetched before, and copies it to OUTPUT.

    build_program.py TARGET_FOLDER CARGO OUTPUT NAME MANIFEST PROFILE

PROFILE is release or dev. Programs of all checkouts have the same names in the target folder, so
it is one checkout's alone until the program was copied.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import shared_target

target, cargo, output, name, manifest, profile = sys.argv[1:]
folder = pathlib.Path(target)
with shared_target.turn(folder, pathlib.Path(__file__).resolve().parents[3]):
    # Programs of the dev profile are for tests, so they need no debug information.
    subprocess.run([cargo, "build", "--offline", "--locked", "--quiet", "--profile", profile,
                    "--manifest-path", manifest], check=True,
                   env={**os.environ, "CARGO_TARGET_DIR": target, "CARGO_PROFILE_DEV_DEBUG": "0"})
    shutil.copy2(folder / {"dev": "debug"}.get(profile, profile) / name, output)
