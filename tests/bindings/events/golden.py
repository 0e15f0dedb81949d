# SPDX-License-Identifier: Apache-2.0
"""golden: makes golden.json, batches as vLLM itself encodes them, which the Python and the Go
package have to make of a cache's events.

    QUIRE_VLLM=FOLDER golden.py > golden.json

FOLDER is the unpacked source of vLLM 0.33.0; msgspec and msgpack are needed. Event structs of
releases before events became maps had the same fields, encoded as arrays; what is empty at the end
of an array is left out, because older releases had fewer fields. The heads of maps are made as
short as msgpack allows, which msgspec does not always do.
"""

import json

import msgpack
import msgspec

from judges import Vllm

BASE = 1 << 62
TENANT = 5
GROUPS = [{"kind": 0, "window": 0}, {"kind": 1, "window": 8}]
FULL = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
WINDOW = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window",
          "kv_cache_spec_sliding_window": 8}
STORED, REMOVED, CLEARED = 1, 2, 3
TOKENS, KEYED = 1, 2

vllm = Vllm().structs


def event(kind, block=0, parent=0, ns=0, group=0, level=0, flags=TOKENS, tokens=()):
    return {"kind": kind, "flags": flags if kind == STORED else 0, "block": block,
            "parent": parent, "ns": ns, "group": group, "level": level, "tokens": list(tokens)}


def stored(blocks, parent, tokens, spec, name=None, medium="GPU"):
    return vllm.BlockStored(
        block_hashes=[BASE + block for block in blocks],
        parent_block_hash=None if parent is None else BASE + parent, token_ids=tokens,
        block_size=4, lora_id=None, medium=medium, lora_name=name, **spec)


def removed(blocks, group, medium="GPU"):
    return vllm.BlockRemoved(block_hashes=[BASE + block for block in blocks], medium=medium,
                             group_idx=group)


LONG = [70000 + i for i in range(80)]

# What a case says follows from what the cases before it said.
CASES = [
    ("a chain is one event",
     [event(CLEARED), event(STORED, 1, tokens=[1, 2, 3, 4]),
      event(STORED, 2, 1, tokens=[5, 128, 256, 65536]),
      event(STORED, 3, 1, tokens=[5, 6, 7, 4294967294])],
     [vllm.AllBlocksCleared(), stored([1, 2], None, [1, 2, 3, 4, 5, 128, 256, 65536], FULL),
      stored([3], 1, [5, 6, 7, 4294967294], FULL)]),
    ("each group is told by itself",
     [event(STORED, 4, 2, group=0, tokens=[1, 1, 1, 1]),
      event(STORED, 4, 2, group=1, tokens=[1, 1, 1, 1]), event(REMOVED, 4, group=0)],
     [stored([4], 2, [1, 1, 1, 1], FULL), stored([4], 2, [1, 1, 1, 1], WINDOW), removed([4], 0)]),
    ("keyed blocks, and those after them, are left out, and not removed either",
     [event(STORED, 5, 2, flags=TOKENS | KEYED, tokens=[1, 2, 3, 4]),
      event(STORED, 6, 5, flags=TOKENS | KEYED, tokens=[1, 2, 3, 4]), event(REMOVED, 6),
      event(REMOVED, 5), event(REMOVED, 3), event(REMOVED, 2)],
     [removed([3, 2], 0)]),
    ("a namespace with a name is told, others are not",
     [event(STORED, 7, ns=TENANT, tokens=[1, 2, 3, 4]), event(STORED, 8, ns=6, tokens=[1, 2, 3, 4]),
      event(STORED, 9, 8, ns=6, tokens=[1, 2, 3, 4]), event(STORED, 10, ns=TENANT, flags=0),
      event(STORED, 11, 10, ns=TENANT, tokens=[1, 2, 3, 4])],
     [stored([7], None, [1, 2, 3, 4], FULL, "tenant")]),
    ("long lists",
     [event(STORED, 100 + i, 99 + i if i else 0, tokens=LONG[4 * i:4 * i + 4])
      for i in range(20)] + [event(REMOVED, 119 - i) for i in range(20)],
     [stored(range(100, 120), None, LONG, FULL), removed(range(119, 99, -1), 0)]),
    ("a block that moves is in both media for a moment, and levels do not mix",
     [event(STORED, 12, tokens=[1, 2, 3, 4]), event(STORED, 13, 12, level=1, tokens=[5, 6, 7, 8]),
      event(STORED, 12, level=1, tokens=[1, 2, 3, 4]), event(REMOVED, 12),
      event(REMOVED, 13, level=1), event(REMOVED, 12, level=1), event(REMOVED, 12)],
     [stored([12], None, [1, 2, 3, 4], FULL),
      stored([13], 12, [5, 6, 7, 8], FULL, medium="CPU"),
      stored([12], None, [1, 2, 3, 4], FULL, medium="CPU"), removed([12], 0),
      removed([13, 12], 0, medium="CPU")]),
    ("a block in a store is there beside the device, and stays when it leaves that",
     [event(STORED, 16, tokens=[1, 2, 3, 4]), event(STORED, 16, level=2, tokens=[1, 2, 3, 4]),
      event(STORED, 17, 16, level=3, tokens=[5, 6, 7, 8]), event(REMOVED, 16),
      event(STORED, 16, tokens=[1, 2, 3, 4]), event(REMOVED, 16), event(REMOVED, 17, level=3),
      event(REMOVED, 16, level=2)],
     [stored([16], None, [1, 2, 3, 4], FULL),
      stored([16], None, [1, 2, 3, 4], FULL, medium=vllm.MEDIUM_STORAGE),
      stored([17], 16, [5, 6, 7, 8], FULL, medium="EXTERNAL"), removed([16], 0),
      stored([16], None, [1, 2, 3, 4], FULL), removed([16], 0),
      removed([17], 0, medium="EXTERNAL"), removed([16], 0, medium=vllm.MEDIUM_STORAGE)]),
    ("a level that no release of vLLM has a word for is left out",
     [event(STORED, 14, level=9, tokens=[1, 2, 3, 4]), event(REMOVED, 14, level=9),
      event(STORED, 15, tokens=[1, 2, 3, 4])],
     [stored([15], None, [1, 2, 3, 4], FULL)]),
]


def as_array(said):
    """The event as vLLM encoded it while its structs were array_like."""
    kind = type(said)
    fields = []
    for field in msgspec.structs.fields(kind):
        with_default = field.default is not msgspec.NODEFAULT
        fields.append((field.name, object, None) if with_default else (field.name, object))
    old = msgspec.defstruct(kind.__name__, fields, tag=True, array_like=True, omit_defaults=True)
    return old(**msgspec.structs.asdict(said))


def shortest(batch):
    seconds, events, rank = msgpack.unpackb(msgspec.msgpack.encode(batch))
    for said in events:
        while isinstance(said, list) and said[-1] is None:
            said.pop()
    return msgpack.packb([seconds, events, rank]).hex()


def main():
    cases = []
    for name, events, said in CASES:
        cases.append({"name": name, "events": events,
                      "map": shortest(vllm.KVEventBatch(1.5, said, 3)),
                      "array": shortest(vllm.EventBatch(1.5, [as_array(s) for s in said], 3))})
    head = json.dumps({"base": str(BASE), "block_tokens": 4, "groups": GROUPS,
                       "names": {str(TENANT): "tenant"}, "seconds": 1.5, "rank": 3})
    lines = ",\n".join(json.dumps(case) for case in cases)
    print(f'{head[:-1]}, "cases": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
