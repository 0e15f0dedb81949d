# SPDX-License-Identifier: Apache-2.0
"""missing: a driver that is not there, or is none, is explained and breaks nothing.

    missing.py QUIRE
"""

import json
import os
import subprocess
import sys


def listed(quire, backend, library):
    variable = f"QUIRE_{backend.upper()}_LIBRARY"
    result = subprocess.run([quire, "devices", "--json"], capture_output=True, text=True,
                            env=dict(os.environ, **{variable: library}))
    return next(one for one in json.loads(result.stdout) if one["name"] == backend)


def main():
    quire = sys.argv[1]
    failed = False
    for backend, words in {"cuda": "older than CUDA 12", "hip": "ROCm 5.2"}.items():
        for library, wanted in {"/nowhere/driver.so": "/nowhere/driver.so",
                                "libm.so.6": words}.items():
            said = json.dumps(listed(quire, backend, library))
            if wanted not in said:
                print(f"{backend} with {library} does not say '{wanted}': {said}")
                failed = True
    return 1 if failed else 0


sys.exit(main())
