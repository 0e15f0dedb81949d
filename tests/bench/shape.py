# SPDX-License-Identifier: Apache-2.0
"""shape: the benchmarks that print JSON of their own print it in the documented shape.

    shape.py NAME PROGRAM [DEVICE]

With a DEVICE: copies by the kernel and by the driver; that device has both. Sizes are tiny: figures
only have to exist and be above 0.
"""

import json
import subprocess
import sys

SCALE = "512"
# The identifying fields of a result, and its numbers.
SHAPES = {
    "attention": (["case", "dtype", "threads", "q_dtype", "clock"],
                  ["milliseconds", "gbps", "table_read_gbps", "share_of_stream",
                   "share_of_table_read", "share_of_roofline", "plan_us", "call_us"]),
    "prefill": (["case", "dtype", "threads", "q_dtype", "clock"],
                ["milliseconds", "gflops", "share_of_fma", "plan_us", "call_us"]),
    "copy": (["case", "block_bytes", "destination", "threads"],
             ["milliseconds", "gbps", "memcpy_gbps", "share_of_memcpy"]),
}
MACHINE = {"attention": ["stream_gbps", "fma_gflops"], "prefill": ["fma_gflops"], "copy": []}
SELECTED = {
    "attention": ("64x1024-32/8-d128", ["--dtype", "bf16", "--fast-16bit"]),
    "prefill": ("512", ["--dtype", "bf16", "--fast-16bit"]),
    "copy": ("swap_out", []),
}


def run(program, *options):
    return subprocess.run([program, *options], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)


def measured(program, *options):
    process = run(program, "--json", "--scale", SCALE, "--seconds", "0", *options)
    if process.returncode != 0:
        sys.exit(f"{program} {options} ended with {process.returncode}: {process.stderr}")
    return json.loads(process.stdout)


def check_shape(name, results):
    words, numbers = SHAPES[name]
    assert results["cases"], "nothing was measured"
    for case in results["cases"]:
        for key in words:
            assert key in case, (key, case)
        for key in numbers:
            assert isinstance(case[key], (int, float)) and case[key] > 0, (key, case)
    threads = {str(case["threads"]) for case in results["cases"]}
    for key in MACHINE[name]:
        rates = results["machine"][key]
        assert set(rates) == threads and all(rate > 0 for rate in rates.values()), rates


def check_sizes(program, device):
    sizes = measured(program, "--device", device, "--case", "sizes")["sizes"]
    assert {size["case"] for size in sizes} == {"copy_on_write", "swap_out", "swap_in"}, sizes
    assert {size["block_bytes"] for size in sizes} == {2**i for i in range(14, 22)}, sizes
    for size in sizes:
        for key in ("blocks", "kernel_gbps", "driver_gbps", "chosen_gbps"):
            assert size[key] > 0, (key, size)
    table = run(program, "--device", device, "--case", "sizes", "--scale", SCALE, "--seconds", "0")
    assert "swap_in: the " in table.stdout, table


def main():
    name, program, *device = sys.argv[1:]
    if device:
        check_sizes(program, device[0])
        return
    check_shape(name, measured(program))
    case, options = SELECTED[name]
    results = measured(program, "--case", case, "--threads", "1", *options)
    check_shape(name, results)
    for found in results["cases"]:
        assert found["case"] == case and found["threads"] == 1, found
        assert not options or found["dtype"] == "bf16", found
    assert not options or results["machine"]["device"].startswith("host processor, "), results
    if "--device" in run(program, "--help").stdout:
        assert run(program, "--device", "abacus").returncode != 0, "there is no such device"
    assert "Example:" in run(program, "--help").stdout, "--help has no example"
    if name == "copy":
        refused = run(program, "--case", "sizes")
        assert refused.returncode != 0 and "cuda and hip" in refused.stderr, refused
    refused = run(program, "--case", "none")
    assert refused.returncode != 0 and "none" in refused.stderr, refused


if __name__ == "__main__":
    main()
