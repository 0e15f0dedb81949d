# SPDX-License-Identifier: Apache-2.0
"""build_program: a program of a crate, built with what was fetched before, and put where the build
wants it.

    build_program.py TARGET_FOLDER CARGO OUTPUT NAME MANIFEST
"""

import os
import shutil
import subprocess
import sys

target, cargo, output, name, manifest = sys.argv[1:]
subprocess.run([cargo, "build", "--offline", "--locked", "--quiet", "--release", "--manifest-path",
                manifest], check=True, env={**os.environ, "CARGO_TARGET_DIR": target})
shutil.copy2(os.path.join(target, "release", name), output)
