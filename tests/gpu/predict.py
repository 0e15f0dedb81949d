# SPDX-License-Identifier: Apache-2.0
"""predict: how long a layer's decode attention should take on GPUs that were not had, by the model
of roofline.py. Called as ./dev gpu --predict; needs neither a build nor a GPU.

kernels.json has each kernel's figures, hardware.py each device's, and calibration.py says how far
the model is from times that others published. A gpu.json of a real run adds what was measured.
"""

import argparse
import dataclasses
import json
import pathlib
import sys

import calibration
import hardware
import roofline

KERNELS = pathlib.Path(__file__).with_name("kernels.json")
DIM = 128
CHUNK_PLACES = 512              # kChunkPlaces in backends/gpu/kernels/calls.hpp
# (most keys of a row, places of its chunks) of decode kernels: kMostKeysOf... there
CHUNK_LENGTHS = ((2048, 512), (8192, 1024), (1 << 31, 2048))
ROUND_BYTES = 64 << 20          # kRoundBytes in backends/gpu/rounds.cpp and work_shape.cpp
LIST_BLOCKS = 1024              # kMostDecodeBlocks in backends/gpu/decode.cpp
LIST_LAUNCHES = 2               # of a work list, which all layers of a step use
LAYERS = 32
JOINED_AT_ONCE = 4              # kAtOnce in backends/gpu/kernels/join.hpp
JOINING_WARPS = 4               # each takes every fourth query
# Machine instructions for each that the emulator counts, in quire_attend_fragments: a tile of 64
# keys took 11,900 of sm_90, counted by hand, where the emulator counts 76.1 per KiB.
INSTRUCTIONS_PER_COUNTED = 11900 / (76.1 * 32)
# 16 queries by a KiB of K and V of 16 bits: two products for K, and four for V, whose weights are
# split in two halves.
MATRICES_PER_KIB = 6
TILE_KEYS = 64
# Whether a row has a chunk, or a list an item: three loads, each of which needs the one before it,
# and no loop.
EMPTY_LOADS, EMPTY_INSTRUCTIONS = 3, 150


@dataclasses.dataclass(frozen=True)
class Shape:
    dtype: str
    rows: int
    keys: int
    q_heads: int = 32
    kv_heads: int = 8
    table_keys: int = 0     # of a captured graph's table

    @property
    def name(self):
        return (f"{self.rows}x{self.keys}-{self.q_heads}/{self.kv_heads}-d{DIM}"
                + (f" graph of {self.table_keys}" if self.table_keys else ""))

    @property
    def key_bytes(self):
        return 2 * DIM * (1 if self.dtype in ("fp8", "i8") else 2)

    @property
    def kv_bytes(self):
        return self.rows * self.keys * self.kv_heads * self.key_bytes


SHAPES = tuple(Shape(dtype, *numbers) for numbers in (
    (32, 4096), (8, 32768), (1, 131072), (128, 512), (32, 4096, 64, 8), (32, 4096, 32, 32),
    (64, 4096, 32, 8, 131072)) for dtype in ("bf16", "fp8"))


@dataclasses.dataclass(frozen=True)
class Server:
    """A kernel that serves a format; the first of a list that exists for the target does."""
    vendor: str             # "": either
    dtypes: tuple
    kernel: str
    counts: str = ""        # its shape among the emulator's counts, where no loop was read
    waits: int = 0          # for memory, in a tile


SERVERS = (
    Server("nvidia", ("bf16",), "quire_decode_bf16_128"),
    Server("nvidia", ("f16",), "quire_decode_f16_128"),
    Server("nvidia", ("fp8",), "quire_decode_e4m3_128"),
    Server("nvidia", ("i8",), "quire_decode_i8_128"),
    Server("nvidia", ("bf16", "f16"), "quire_attend_fragments", "decode", 1),
    Server("", ("bf16", "f16"), "quire_attend_fragments", "decode", 2),
    Server("", ("fp8",), "quire_attend_fragments", "decode of fp8", 2),
    Server("", ("i8",), "quire_attend_fragments", "decode of int8", 2),
)


def server_of(device, shape, figures):
    for server in SERVERS:
        if server.vendor in ("", device.vendor) and shape.dtype in server.dtypes and \
                device.target in figures["code"].get(server.kernel, {}):
            return server
    raise SystemExit(f"gpu: no kernel in kernels.json serves {shape.dtype} on {device.name}")


def scaled(figures, name, device):
    """The clocks around a kernel's loop; AMD's code was not followed, so those of sm_80 by how much
    later its caches answer."""
    warp = figures["code"][name].get(device.target, {}).get("warp")
    if warp:
        return warp, 1.0
    reference = hardware.DEVICES["A100"]
    return figures["code"][name]["sm_80"]["warp"], device.cache_clocks / reference.cache_clocks


def of_counts(device, server, shape, figures):
    """A kernel of which the emulator counted what it asks for."""
    code = figures["code"][server.kernel][device.target]
    counts = figures["counts"][server.kernel][server.counts][str(device.lanes)]
    warps = code["threads"] // device.lanes
    instructions = counts["instructions"] * INSTRUCTIONS_PER_COUNTED
    by_itself = instructions / warps * device.alone_clocks + \
        counts["barriers"] / warps * device.barrier_clocks
    waits = server.waits * device.memory_clocks / (TILE_KEYS * shape.key_bytes)
    around, by = scaled(figures, server.kernel, device)
    return roofline.Kernel(
        instructions=instructions / 1024, wavefronts=counts["passes"] / 1024,
        matrices=MATRICES_PER_KIB * 512 / shape.key_bytes / 1024,
        clocks=by_itself / 1024 + waits, warps=warps, blocks=code["blocks"],
        before=around["before"] * by, after=around["after"] * by)


def kernel_of(device, server, shape, figures):
    if server.counts:
        return of_counts(device, server, shape, figures)
    return roofline.of_code(figures["code"][server.kernel][device.target])


def rounds_of(shape):
    """How many rows each round of a call has, and how many chunks of a row get blocks: as divide()
    and chunk_count_of() do in backends/gpu."""
    chunks = calibration.up(shape.table_keys or shape.keys, CHUNK_PLACES)
    row_bytes = chunks * shape.q_heads * (DIM + 2) * 4
    rows = min(max(ROUND_BYTES // row_bytes, 1), shape.rows)
    rounds = [rows] * (shape.rows // rows)
    return rounds + ([shape.rows % rows] if shape.rows % rows else []), chunks


def places_of(keys):
    """Of a chunk of a row of so many keys, in decode kernels."""
    return next(places for most, places in CHUNK_LENGTHS if keys <= most)


def chunks_of_table(keys):
    """The most chunks that a row of at most so many keys has: decode_chunk_count() in
    work_shape.cpp."""
    return max(calibration.up(min(keys, most), places) for most, places in CHUNK_LENGTHS)


def rounds_of_list(shape):
    """How many rounds of a work list are launched, and how many of them have items: as shape_of()
    in backends/gpu/work_shape.cpp and kernels/work.hpp do."""
    of_round = ROUND_BYTES // ((DIM + 2) * 4 * shape.q_heads)     # chunks of rows
    used = calibration.up(shape.keys, places_of(shape.keys))
    chunks = (chunks_of_table(shape.table_keys or shape.keys), used)
    return tuple(calibration.up(shape.rows * count, of_round) for count in chunks)


def joining(device, server, shape, figures):
    """Clocks of the last block of a row, which adds its chunks; and launches that do so instead."""
    chunks = calibration.up(shape.keys, CHUNK_PLACES if server.counts else places_of(shape.keys))
    queries = shape.q_heads // shape.kv_heads
    if not server.counts:
        join = figures["code"][server.kernel][device.target]["warp"].get("join", 0)
        of_warp = calibration.up(queries, JOINING_WARPS)
        return (of_warp * calibration.up(chunks, JOINED_AT_ONCE) * join if chunks > 1 else 0), 0
    warp, by = scaled(figures, "quire_reduce", device)
    return (warp["before"] + chunks * warp["clocks"] + warp["after"]) * by, 1


def add_list(times, device, shape, kernel, launch):
    """Adds the launches of a work list, of which only the first have items."""
    launched, used = rounds_of_list(shape)
    times.launches = device.launch_s * LIST_LAUNCHES / LAYERS
    for _ in range(used):
        part = dataclasses.replace(launch, blocks=calibration.up(launch.blocks, used),
                                   memory_bytes=launch.memory_bytes / used)
        times.add(roofline.times_of(device, kernel, part))
    nothing = dataclasses.replace(launch, blocks=0, memory_bytes=0, empty_blocks=LIST_BLOCKS,
                                  tail_clocks=0)
    for _ in range(launched - used):
        times.add(roofline.times_of(device, kernel, nothing))


def predict(device, shape, figures):
    """(times, server)"""
    server = server_of(device, shape, figures)
    kernel = kernel_of(device, server, shape, figures)
    tail, launches = joining(device, server, shape, figures)
    rounds, chunks = rounds_of(shape)
    places = CHUNK_PLACES if server.counts else places_of(shape.keys)
    used = calibration.up(shape.keys, places)
    empty_clocks = EMPTY_LOADS * device.cache_clocks + EMPTY_INSTRUCTIONS * device.alone_clocks
    times = roofline.Times(launches=device.launch_s)    # the check of the call's rows
    launch = roofline.Launch(
        blocks=shape.rows * shape.kv_heads * used,
        block_bytes=min(shape.keys, places) * shape.key_bytes, memory_bytes=shape.kv_bytes,
        empty_clocks=empty_clocks, tail_clocks=tail)
    if not server.counts:
        add_list(times, device, shape, kernel, launch)
        return times, server
    for rows in rounds:
        units = rows * shape.kv_heads
        times.add(roofline.times_of(device, kernel, dataclasses.replace(
            launch, blocks=units * used, memory_bytes=shape.kv_bytes * rows / shape.rows,
            empty_blocks=units * (chunks - used))))
        times.add(roofline.Times(launches=launches * device.launch_s))
    return times, server


def measured_of(path):
    """{(device, shape's name, dtype): microseconds}, from gpu.json."""
    found = {}
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"gpu: --out: {path} cannot be read: {error}") from error
    for part in data.get("parts", []):
        words = part["name"].split()
        figures = part.get("figures")
        if words[0] != "decode" or not isinstance(figures, dict):
            continue
        names = data.get("devices", {}).get(words[1], [])
        device = next(filter(None, map(hardware.named, names)), None)
        for case in figures.get("cases", []):
            if device and case.get("milliseconds") and words[1] in ("cuda", "hip"):
                found[device.name, case["case"], case["dtype"]] = case["milliseconds"] * 1000
    return found


def rows_of(devices, shapes, figures, measured):
    checked = calibration.checked()
    for device in devices:
        for shape in shapes:
            times, server = predict(device, shape, figures)
            # No published time is of an AMD GPU, or of a kernel that the emulator counted.
            errors = None
            if device.vendor == "nvidia" and not server.counts:
                errors = calibration.errors(times, checked)
            yield {
                "device": device.name, "case": shape.name, "dtype": shape.dtype,
                "kernel": server.kernel, "us": times.total * 1e6,
                "launches_us": times.launches * 1e6, "ramps_us": times.ramps * 1e6,
                **{f"{name}_us": value * 1e6 for name, value in times.limits.items()},
                "binds": times.binds,
                "of_ceiling": shape.kv_bytes / times.total / device.ceiling,
                "errors": errors and [round(error, 3) for error in errors],
                "measured_us": measured.get((device.name, shape.name, shape.dtype)),
            }


def spread(errors):
    if errors is None:
        return "never checked"
    low, high = errors
    return f"{100 * low:+.0f} to {100 * high:+.0f} %"


def print_table(rows):
    limits = " ".join(f"{name:>10}" for name in roofline.LIMITS)
    print("Predicted, not measured: microseconds of a layer's decode attention, and of each limit "
          "by itself.\n\n"
          f"{'case':34} {'dtype':5} {'us':>8} {'launches':>8} {'ramps':>7} {limits} "
          f"{'of ceiling':>10}  {'binds':10} {'model errs by':14} {'measured us':>11}  kernel")
    device = None
    for row in rows:
        if row["device"] != device:
            device = row["device"]
            has = hardware.DEVICES[device]
            print(f"{device}, {has.ceiling / 1e12:.2f} of {has.nominal / 1e12:.2f} TB/s")
        limits = " ".join(f"{row[name + '_us']:10.1f}" for name in roofline.LIMITS)
        measured = f"{row['measured_us']:11.1f}" if row["measured_us"] else f"{'-':>11}"
        print(f"  {row['case']:32} {row['dtype']:5} {row['us']:8.1f} {row['launches_us']:8.1f} "
              f"{row['ramps_us']:7.1f} {limits} {100 * row['of_ceiling']:8.0f} %  "
              f"{row['binds']:10} {spread(row['errors']):14} {measured}  "
              f"{row['kernel'].removeprefix('quire_')}")
    print("\nWhere the devices' numbers are from:")
    for name in dict.fromkeys(row["device"] for row in rows):
        for source in hardware.DEVICES[name].sources:
            print(f"  {name}: {source}")


def markdown(rows):
    """The table of docs/performance/gpu.md: microseconds, share of the ceiling, and what binds."""
    cells = {}
    for row in rows:
        cell = f"{row['us']:,.0f}, {100 * row['of_ceiling']:.0f} %, {row['binds']}"
        cells.setdefault((row["case"].removesuffix(f"-d{DIM}"), row["dtype"]), []).append(cell)
    devices = list(dict.fromkeys(row["device"] for row in rows))
    lines = [f"| | {' | '.join(devices)} |", f"|---|{'---|' * len(devices)}"]
    lines += [f"| {case.replace(f'-d{DIM}', '')} {dtype} | {' | '.join(of_devices)} |"
              for (case, dtype), of_devices in cells.items()]
    return "\n".join(lines)


def print_calibration():
    print("\nThe model, against times that others published (tests/gpu/published.json):")
    print(f"{'by':20} {'device':14} {'rows x keys':14} {'heads':>10} {'published':>9} "
          f"{'model':>8} {'error':>7}  binds")
    for one in calibration.checked():
        entry = one.entry
        case = f"{entry['rows']} x {entry['keys']}"
        heads = f"{entry['heads']}/{entry['kv_heads']}-d{entry['dim']}"
        print(f"{entry['by']:20} {entry['device']:14} {case:14} {heads:>10} "
              f"{entry['us']:9.1f} {one.times.total * 1e6:8.1f} {100 * one.error:+6.0f} %  "
              f"{one.times.binds}{'' if entry['kernel'] else ', nothing else known'}")


def chosen(asked, known, kind):
    """Those named, or all; refuses others in words."""
    for name in asked or ():
        if name not in known:
            raise SystemExit(f"gpu: there is no {kind} '{name}'; known are {', '.join(known)}")
    return [known[name] for name in asked or known]


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="./dev gpu --predict", description="Prints how long a layer's decode attention should "
        "take on GPUs, by a model of what limits it, and how far the model is from published times."
        " Nothing is run.", epilog="example: ./dev gpu --predict --device H200 --json")
    parser.add_argument("--device", action="append", metavar="NAME",
                        help=f"only this one; may be given again: {', '.join(hardware.SHOWN)}")
    parser.add_argument("--case", action="append", metavar="SHAPE",
                        help="only this one, such as 32x4096-32/8-d128; may be given again")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR",
                        help="shows beside it what DIR/gpu.json measured")
    parser.add_argument("--json", action="store_true", help="one object instead of the tables")
    parser.add_argument("--markdown", action="store_true",
                        help="the table of docs/performance/gpu.md instead")
    options = parser.parse_args(arguments)
    devices = chosen(options.device, {name: hardware.DEVICES[name] for name in hardware.SHOWN},
                     "device")
    by_name = {}
    for shape in SHAPES:
        by_name.setdefault(shape.name, []).append(shape)
    shapes = [shape for group in chosen(options.case, by_name, "shape") for shape in group]
    measured = measured_of(options.out / "gpu.json") if options.out else {}
    rows = list(rows_of(devices, shapes, json.loads(KERNELS.read_text()), measured))
    if options.markdown:
        print(markdown(rows))
        return 0
    if options.json:
        checked = [{**one.entry, "model_us": one.times.total * 1e6, "error": one.error,
                    "binds": one.times.binds} for one in calibration.checked()]
        print(json.dumps({"predicted": rows, "published": checked}, indent=1))
        return 0
    print_table(rows)
    print_calibration()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
