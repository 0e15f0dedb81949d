# SPDX-License-Identifier: Apache-2.0
"""hardware: what each GPU can do at most, for a prediction of times. Every number has its source.

A multiprocessor here is NVIDIA's SM and AMD's compute unit. Latencies of NVIDIA's GPUs are in
tests/fakegpu/chain.py, which reads the machine code; kernels.json holds what it found.

Data sheets and papers are quoted from memory. Not measured, which `sources` says: the streaming
ceilings of RTX 3090, RTX 4090 and RX 7900 XTX, AMD's latencies and launches.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Device:
    name: str
    target: str             # whose machine code it runs
    vendor: str
    multiprocessors: int
    clock_hz: float
    nominal: float          # bytes per second of memory, by the data sheet
    ceiling: float          # that a streaming read or copy reaches
    lanes: int              # of a warp
    schedulers: int         # of a multiprocessor
    issue_clocks: float     # that an instruction occupies its scheduler
    matrix_clocks: float    # that a product of 16x8x16 occupies one of as many matrix units
    memory_clocks: float    # latency
    cache_clocks: float     # of the second level
    launch_s: float         # of a kernel: the gap before it, and that blocks begin one by one
    sources: tuple

    @property
    def barrier_clocks(self):
        return 30.0         # arXiv 2208.11174 for NVIDIA; assumed for AMD

    @property
    def alone_clocks(self):
        """An instruction of a warp by itself, where no chain was computed from machine code."""
        # AMD: a vector instruction of 64 lanes takes four clocks of CDNA's 16-lane unit, and one
        # that needs its result starts a clock later; five on RDNA ("RDNA3 Instruction Set
        # Architecture", s_delay_alu). NVIDIA: as the decode kernels, 1,056 clocks by 318.
        return 5.0 if self.vendor == "amd" else 3.3


LAUNCH = ("launch 3 us: what the published rows of Flash-Decoding leave beside bytes and ramps; "
          "an NVIDIA blog (Getting Started with CUDA Graphs) has 3.4 to 3.8 us per 2.9 us kernel")
LATENCY = "latencies: arXiv 2402.13499, by tests/fakegpu/chain.py"
MMA = "mma.sync reaches 62.9 % of the data sheet's matrix rate on H100 (arXiv 2402.13499)"
HOPPER = dict(target="sm_90", vendor="nvidia", multiprocessors=132, clock_hz=1.83e9, lanes=32,
              schedulers=4, issue_clocks=1, matrix_clocks=6.4, memory_clocks=479, cache_clocks=263,
              launch_s=3e-6)
AMPERE = dict(target="sm_80", vendor="nvidia", multiprocessors=108, clock_hz=1.41e9, lanes=32,
              schedulers=4, issue_clocks=1, matrix_clocks=8, memory_clocks=466, cache_clocks=262,
              launch_s=3e-6)
A800 = ("ceiling 89 % of the data sheet: an A800 of 80 GB read 1,727 of 1,935 GB/s "
        "(mli/transformers-benchmarks, issue 4)")
CLOCK = "clock: the data sheet's matrix rate divided by what a multiprocessor does per clock"

DEVICES = {device.name: device for device in (
    Device("H200", nominal=4.8e12, ceiling=4.3e12, sources=(
        "ceiling: a copy by PyTorch moves 4.3 TB/s, counting bytes read and written; others report "
        "4.2 (sgl-project/sglang, pull request 19103)", CLOCK, LATENCY, MMA, LAUNCH), **HOPPER),
    Device("H100", nominal=3.35e12, ceiling=3.0e12, sources=(
        "ceiling: a copy by PyTorch moves 3.0 TB/s on an H100 SXM", CLOCK, LATENCY, MMA, LAUNCH),
        **HOPPER),
    Device("A100", nominal=2.04e12, ceiling=1.82e12, sources=(A800, CLOCK, LATENCY, LAUNCH),
           **AMPERE),
    # This one and the RTX 3090: for published figures alone.
    Device("A100 of 40 GB", nominal=1.555e12, ceiling=1.39e12,
           sources=(A800, CLOCK, LATENCY, LAUNCH), **AMPERE),
    Device("RTX 3090", target="sm_86", vendor="nvidia", multiprocessors=82, clock_hz=1.695e9,
           nominal=0.936e12, ceiling=0.84e12, lanes=32, schedulers=4, issue_clocks=1,
           matrix_clocks=32, memory_clocks=542, cache_clocks=273, launch_s=3e-6,
           sources=("ceiling: assumed, 90 % of the data sheet", "clock: boost of the data sheet",
                    "matrix: 71 TFLOP/s with sums in f32 (GA102's white paper)",
                    "latencies: those of the RTX 4090", LAUNCH)),
    Device("RTX 4090", target="sm_89", vendor="nvidia", multiprocessors=128, clock_hz=2.52e9,
           nominal=1.008e12, ceiling=0.93e12, lanes=32, schedulers=4, issue_clocks=1,
           matrix_clocks=32, memory_clocks=542, cache_clocks=273, launch_s=3e-6,
           sources=("ceiling: assumed, 92 % of the data sheet", "clock: boost of the data sheet",
                    "matrix: 165 TFLOP/s with sums in f32 (Ada's white paper)", LATENCY, LAUNCH)),
    Device("MI300X", target="gfx942", vendor="amd", multiprocessors=304, clock_hz=2.1e9,
           nominal=5.3e12, ceiling=4.2e12, lanes=64, schedulers=4, issue_clocks=4, matrix_clocks=8,
           memory_clocks=800, cache_clocks=500, launch_s=5e-6,
           sources=("ceiling: rocprof's roofline gives 4.2 TB/s (ROCm/legacy-rocm-build, issue "
                    "5070)", "matrix: 1,307 TFLOP/s (data sheet)",
                    "latencies and launch: assumed")),
    Device("RX 7900 XTX", target="gfx1100", vendor="amd", multiprocessors=96, clock_hz=2.5e9,
           nominal=0.96e12, ceiling=0.86e12, lanes=32, schedulers=2, issue_clocks=1,
           matrix_clocks=64, memory_clocks=700, cache_clocks=300, launch_s=5e-6,
           sources=("ceiling: assumed, 90 % of the data sheet", "clock: boost of the data sheet",
                    "matrix: none is used; 64 multiplications per clock, one by one",
                    "latencies and launch: assumed")),
)}
SHOWN = ("H200", "H100", "A100", "RTX 4090", "MI300X", "RX 7900 XTX")


def named(text):
    """The device of a driver's name, such as "NVIDIA H100 80GB HBM3"; None if it is not listed."""
    words = text.upper()
    for name in SHOWN:
        if all(word in words for word in name.upper().split()):
            return DEVICES[name]
    return None
