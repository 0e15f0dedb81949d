# SPDX-License-Identifier: Apache-2.0
"""device: what the benchmarks measure on a device with memory of its own, on the emulator of GPUs.

    device.py BENCH_ATTENTION BENCH_PREFILL

Sizes are tiny, as in shape.py; figures only have to exist.
"""

import json
import subprocess
import sys

SCALE = 512
GIB = 1 << 30
# The type in which a model computes for each type of K and V; small matrix products take 16 bits.
COMPUTED_AS = {"f16": "f16", "fp8": "bf16", "f32": "f32"}


def measured(program, device, case):
    process = subprocess.run(
        [program, "--json", "--device", device, "--scale", str(SCALE), "--seconds", "0", "--case",
         case, "--dtype", *COMPUTED_AS], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if process.returncode != 0:
        sys.exit(f"{program} on {device} ended with {process.returncode}: {process.stderr}")
    return json.loads(process.stdout)["cases"]


def check(cases):
    computed_as = {case["dtype"]: case["q_dtype"] for case in cases}
    assert computed_as == COMPUTED_AS, computed_as
    for case in cases:
        assert case["clock"] == "device", case
        for name in ("milliseconds", "plan_us", "call_us"):
            assert case[name] > 0, (name, case)
        if "layers" in case:    # beyond the device's caches, not the host's
            assert case["layers"] * case["unique_bytes"] >= GIB // SCALE, case


def main():
    attention, prefill = sys.argv[1:]
    for device in ("cuda", "hip"):
        check(measured(attention, device, "1x32768-32/8-d128"))
        check(measured(prefill, device, "512"))


if __name__ == "__main__":
    main()
