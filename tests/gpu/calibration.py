# SPDX-License-Identifier: Apache-2.0
"""calibration: how far the model of roofline.py is from times that others published.

published.json holds those times with their sources, and what the machine code of FlashAttention 2
does, read from its wheel by the functions that read ours. For kernels without code there, only the
bytes and the launches are predicted.

The model was not made without these times in view: a launch's 3 us and waves that do not overlap
were chosen because they fit them best. Everything else is from data sheets, measured latencies and
machine code.
"""

import dataclasses
import json
import pathlib

import hardware
import roofline

FILE = pathlib.Path(__file__).with_name("published.json")
KEY_BYTES = 2 * 128 * 2     # K and V of one head of 128 16-bit elements
TILE_KEYS = 128             # of FlashAttention's kernel for few queries; a block's
# Calls that are shorter have published times with some 9 us that the model does not know.
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
    """How many parts FlashAttention 2 divides a row into: the fewest with at least 85 % of the best
    use of the last wave: num_splits_heuristic() of its C++ interface."""
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
    memory_bytes = entry["rows"] * entry["keys"] * entry["kv_heads"] * KEY_BYTES
    if entry["kernel"] is None:
        return roofline.bytes_alone(device, memory_bytes, launches=2)
    name, parts, keys = entry["kernel"], 1, entry["keys"]
    blocks = entry["rows"] * entry["heads"]     # each reads K and V anew, from a cache
    if entry["shares_heads"]:
        blocks, tiles = entry["rows"] * entry["kv_heads"], up(keys, TILE_KEYS)
        parts = parts_of_rows(blocks, 2 * device.multiprocessors, tiles)
        name = name if parts > 1 else "FA2 whole"
        blocks, keys = blocks * parts, up(tiles, parts) * TILE_KEYS
    kernel = roofline.of_code(kernels[name]["code"][device.target])
    times = roofline.times_of(device, kernel,
                              roofline.Launch(blocks, keys * KEY_BYTES, memory_bytes))
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
