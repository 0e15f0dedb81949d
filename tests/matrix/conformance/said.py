# SPDX-License-Identifier: Apache-2.0
"""said: the cpu backend over the stand-in uses it, and says so.

    said.py QUIRE

Without this, the conformance suite could pass on the wrong kernels. Exits with 77, to be skipped,
if the processor has no AVX-512, which the kernels need in addition to the stand-in.
"""

import json
import os
import subprocess
import sys


def device(**environment):
    result = subprocess.run([sys.argv[1], "devices", "--json"], capture_output=True, text=True,
                            env=dict(os.environ, **environment), check=True)
    return json.loads(result.stdout)[0]["devices"][0]


def main():
    if "avx512bw" not in open("/proc/cpuinfo", encoding="ascii", errors="replace").read():
        print("this processor has no AVX-512")
        return 77
    wrong = 0
    for target, words in [("amx", "host processor, amx, 16 bits by amx, "),
                          ("avx512", "host processor, avx512, 16 bits by avx512_bf16, "),
                          ("avx2", "host processor, avx2, ")]:
        found = device(QUIRE_CPU_TARGET=target)
        if found["name"].startswith(words) and found["fast_16bit"] == ("16 bits" in words):
            continue
        print(f"{target}: expected a device whose name begins with {words!r}, but got {found}")
        wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
