# SPDX-License-Identifier: Apache-2.0
"""build_program: a program of a crate, built with what was fetched before, and put where the build
wants it.

    build_program.py TARGET_FOLDER CARGO OUTPUT NAME MANIFEST PROFILE

PROFILE is release or dev. The target folder may be shared by several checkouts: what they depend
on is then compiled once. Their programs have the same names there, so a lock holds from the build
to the copy.
"""

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

target, cargo, output, name, manifest, profile = sys.argv[1:]
folder = pathlib.Path(target)
folder.mkdir(parents=True, exist_ok=True)
with open(folder / "lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Programs of the dev profile are run by tests and not debugged.
    subprocess.run([cargo, "build", "--offline", "--locked", "--quiet", "--profile", profile,
                    "--manifest-path", manifest], check=True,
                   env={**os.environ, "CARGO_TARGET_DIR": target, "CARGO_PROFILE_DEV_DEBUG": "0"})
    shutil.copy2(folder / {"dev": "debug"}.get(profile, profile) / name, output)
