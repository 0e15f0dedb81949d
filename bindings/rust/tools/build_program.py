# SPDX-License-Identifier: Apache-2.0
"""build_program: builds a program of a crate from what was fetched before, and copies it to OUTPUT.

    build_program.py TARGET_FOLDER CARGO OUTPUT NAME MANIFEST PROFILE

PROFILE is release or dev. Several checkouts may share the target folder, so that dependencies are
compiled once. Their programs have the same names there, so a lock is held from the build to the
copy.
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
    # Programs of the dev profile are for tests, so they need no debug information.
    subprocess.run([cargo, "build", "--offline", "--locked", "--quiet", "--profile", profile,
                    "--manifest-path", manifest], check=True,
                   env={**os.environ, "CARGO_TARGET_DIR": target, "CARGO_PROFILE_DEV_DEBUG": "0"})
    shutil.copy2(folder / {"dev": "debug"}.get(profile, profile) / name, output)
