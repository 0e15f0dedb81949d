# SPDX-License-Identifier: Apache-2.0
"""calibration: how far the model of roofline.py is from times that others published.

published.json holds those times with their sources, and what the machine code of FlashAttention 2
does, read from its wheel by the functions that read ours. For kernels without code there, only the
bytes and the launches are predicted.

The model was not made without some of these times in view: a launch's 3 us, and waves that do not
overlap, were chosen because they fit the A100's best. Everything else is from data sheets, measured
latencies and machine code. The RTX 3090's times were looked up afterwards.
"""

import dataclasses
import json
import pathlib

import hardware
import roofline

FILE = pathlib.Path(__file__).with_name("published.json")
# Keys of a block of FlashAttention 2's kernel for few queries, by the dim of heads.
TILE_KEYS = {64: 256, 128: 128}
# Shorter calls are judged apart: launches, and what a benchmark adds by itself, weigh more there.
SHORT_US = 50


@dataclasses.dataclass
class Checked:
    entry: dict
    times: roofline.Times

    @property
    def error(self):
        return self.times.total * 1e6 / self.entry["us"] - 1


def up(value, unit):
    return -(-value // unit)


def parts_of_rows(blocks, slots, tiles):
    """How many parts FlashAttention 2 divides a row into: the fewest that use a wave at least 85 %
    as well as the best number does (num_splits_heuristic() of its C++ interface)."""
    if blocks >= 0.8 * slots:
        return 1

    def use_of(parts):
        if parts > 1 and up(tiles, parts) == up(tiles, parts - 1):
            return 0.0      # no block would have less to do
        return blocks * parts / slots / up(blocks * parts, slots)

    most = min(128, slots, tiles)
    best = max(use_of(parts) for parts in range(1, most + 1))
    return next(parts for parts in range(1, most + 1) if use_of(parts) >= 0.85 * best)


def predicted(entry, kernels):
    device = hardware.DEVICES[entry["device"]]
    key_bytes = 2 * entry["dim"] * 2    # K and V of a head, of 16 bits
    memory_bytes = entry["rows"] * entry["keys"] * entry["kv_heads"] * key_bytes
    if entry["kernel"] is None:
        return roofline.bytes_alone(device, memory_bytes, launches=2)
    name, parts, keys = entry["kernel"], 1, entry["keys"]
    blocks = entry["rows"] * entry["heads"]     # each reads K and V anew, from a cache
    if entry["shares_heads"]:
        tile = TILE_KEYS[entry["dim"]]
        blocks, tiles = entry["rows"] * entry["kv_heads"], up(keys, tile)
        # For one block per multiprocessor until April 2024, for two since then.
        parts = parts_of_rows(blocks, entry["blocks_wanted"] * device.multiprocessors, tiles)
        name = name if parts > 1 else entry["undivided"]
        blocks, keys = blocks * parts, up(tiles, parts) * tile
    kernel = roofline.of_code(kernels[name]["code"][device.target])
    times = roofline.times_of(device, kernel,
                              roofline.Launch(blocks, keys * key_bytes, memory_bytes))
    if parts > 1:   # and a launch that adds the parts
        times.add(roofline.Times(launches=device.launch_s))
    return times


def checked():
    published = json.loads(FILE.read_text())
    return [Checked(entry, predicted(entry, published["kernels"]))
            for entry in published["times"]]


def errors(times, all_checked):
    """(lowest, highest) error of those that the same limit binds, and that are as short or as long;
    None if there are none."""
    found = [one.error for one in all_checked
             if one.times.binds == times.binds
             and (one.entry["us"] < SHORT_US) == (times.total * 1e6 < SHORT_US)]
    return (min(found), max(found)) if found else None
