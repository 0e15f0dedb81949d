# SPDX-License-Identifier: Apache-2.0
"""missing: a driver that is missing, invalid or too old is explained and breaks nothing; and a HIP
library that the process has already loaded is preferred to another version that could be found.

    missing.py QUIRE FAKE_HIP CUDA

CUDA is the version of the nvcc that compiled the kernels.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def listed(quire, backend, **variables):
    environment = dict(os.environ)
    for vendor in ("CUDA", "HIP"):
        environment.pop(f"QUIRE_{vendor}_LIBRARY", None)
    result = subprocess.run([quire, "devices", "--json"], capture_output=True, text=True,
                            env=dict(environment, **variables))
    return next(one for one in json.loads(result.stdout) if one["name"] == backend)


def finds_the_loaded_one(quire, fake_hip):
    with tempfile.TemporaryDirectory() as folder:
        # A library, but not HIP. It is a copy, because a file that is loaded
        # already counts as loaded.
        shutil.copy(fake_hip.replace("amdhip64.so.6", "cuda.so.1"),
                    Path(folder, "libamdhip64.so.7"))
        said = json.dumps(listed(quire, "hip", LD_LIBRARY_PATH=folder))
        if "ROCm 5.2" not in said:
            print(f"HIP version 7 was not tried: {said}")
            return False
        said = json.dumps(listed(quire, "hip", LD_LIBRARY_PATH=folder, LD_PRELOAD=fake_hip))
        if "ROCm 5.2" in said or "emulator" not in said:
            print(f"the loaded HIP library was not used: {said}")
            return False
    return True


def says_why_there_is_no_device(quire):
    for backend in ("cuda", "hip"):
        one = listed(quire, backend)
        if not one["devices"] and not one.get("reason"):
            print(f"{backend} has no device and gives no reason: {one}")
            return False
    return True


def refuses_what_cannot_run_the_kernels(quire, fake_cuda, major):
    """A driver runs what a compiler of its own major version made, or of an older one."""
    for version, runs in ((major * 1000 - 960, False), (major * 1000, True),
                          (major * 1000 + 1020, True)):
        one = listed(quire, "cuda", QUIRE_CUDA_LIBRARY=fake_cuda,
                     FAKEGPU_CUDA_VERSION=str(version))
        said = json.dumps(one)
        words = [f"of CUDA {version // 1000}.{version % 1000 // 10},",
                 f"build with an nvcc of CUDA {major - 1}"]
        if bool(one.get("devices")) != runs or any(word in said for word in words) == runs:
            print(f"a driver of {version} with kernels of CUDA {major}: {said}")
            return False
    return True


def main():
    quire, fake_hip, cuda = sys.argv[1:]
    fake_cuda = fake_hip.replace("amdhip64.so.6", "cuda.so.1")
    failed = not finds_the_loaded_one(quire, fake_hip)
    failed |= not refuses_what_cannot_run_the_kernels(quire, fake_cuda, int(cuda.split(".")[0]))
    failed |= not says_why_there_is_no_device(quire)
    for backend, words in {"cuda": "older than CUDA 12", "hip": "ROCm 5.2"}.items():
        for library, wanted in {"/nowhere/driver.so": "/nowhere/driver.so",
                                "libm.so.6": words}.items():
            said = json.dumps(listed(quire, backend,
                                     **{f"QUIRE_{backend.upper()}_LIBRARY": library}))
            if wanted not in said:
                print(f"{backend} with {library} does not say '{wanted}': {said}")
                failed = True
    return 1 if failed else 0


sys.exit(main())
