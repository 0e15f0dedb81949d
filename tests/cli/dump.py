# SPDX-License-Identifier: Apache-2.0
"""dump: `quire dump` shows a cache's dump, compares two, and refuses invalid files.

    dump.py QUIRE
"""

import json
import pathlib
import tempfile

from program import expect, refuses, run


def done(*arguments):
    code, out, err = run(*arguments)
    expect(code == 0, f"{arguments}: {err}")
    return out


def replayed(folder, name, limit):
    trace, path = folder / "day.jsonl", folder / name
    done("trace", "--requests", "40", "--seed", "3", "--output", trace)
    done("replay", trace, "--blocks", "4096", "--limit", limit, "--dump", path)
    return path


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def with_new_sum(lines):
    """A complete dump, whatever its lines contain."""
    body = b"".join(line + b"\n" for line in lines)
    end = {"record": "end", "records": len(lines), "fnv1a": f"0x{fnv1a(body):016x}"}
    return body + json.dumps(end, separators=(",", ":")).encode() + b"\n"


def dump_is_shown(path):
    table = done("dump", path)
    expect(table.startswith("quire dump 1, library 0.1, without tokens\n"), table[:200])
    expect("group  tier    free" in table and "namespace" in table, table)
    records = json.loads(done("dump", path, "--json"))
    expect(records["version"] == 1 and records["tokens"] is False, "what it is")
    expect(len(records["block"]) == 4096 and records["block"][0]["state"] == "null", "blocks")
    cached = sum(block["state"] == "cached" for block in records["block"])
    expect(cached == len(records["node"]) > 0, "a node for each cached block")
    row = [line for line in table.splitlines() if line.startswith("0      device")]
    expect(len(row) == 1 and str(cached) in row[0].split(), table)


def two_are_compared(folder, path):
    expect(done("dump", "--diff", path, path) == "no record differs\n", "the same dump")
    expect(done("dump", "--diff", path, path, "--json") == "[]\n", "and as JSON")
    lines = path.read_bytes().splitlines()[:-1]
    changed = []
    for line in lines:
        record = json.loads(line)
        if record["record"] == "block" and record["id"] == 7:
            record["refs"], record["state"] = record["refs"] + 3, "held"
        if record["record"] == "node" and record["id"] == 0:
            continue
        changed.append(json.dumps(record, separators=(",", ":")).encode())
    changed.append(b'{"record":"sequence","id":5}')
    other = folder / "other.dump"
    other.write_bytes(with_new_sum(changed))
    words = done("dump", "--diff", path, other).splitlines()
    expect(len(words) == 3, words)
    expect("- node id 0" in words and "+ sequence id 5" in words, words)
    expect(any(line.startswith("  block group 0 device id 7: state ") and "refs 0 -> 3" in line
               for line in words), words)
    rows = json.loads(done("dump", "--diff", path, other, "--json"))
    expect(sorted(row["change"] for row in rows) == ["added", "differs", "removed"], rows)


def loads_are_shown(folder, path):
    expect("awaited" not in done("dump", path), "no load, no table")
    load = {"record": "load", "id": 63, "sequence": 4, "state": "ready", "first": 2, "length": 9,
            "awaited": 0}
    other = folder / "load.dump"
    other.write_bytes(with_new_sum(path.read_bytes().splitlines()[:-1] +
                                   [json.dumps(load, separators=(",", ":")).encode()]))
    lines = [line.split() for line in done("dump", other).splitlines()]
    expect(["load", "sequence", "state", "first", "length", "awaited"] in lines, lines)
    expect(["63", "4", "ready", "2", "9", "0"] in lines, lines)
    expect(done("dump", "--diff", path, other) == "+ load id 63\n", "a new record")


def what_is_none_is_refused(folder, path):
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)

    def written(name, text):
        (folder / name).write_bytes(text)
        return "dump", folder / name

    later = with_new_sum([b'{"record":"quire dump","version":2,"tokens":false}'])
    flipped = whole.replace(b'"refs":0', b'"refs":1', 1)
    fewer = b"".join(lines[:5] + lines[6:])
    refuses([
        (written("cut.dump", whole[:-5]), "cut short: its last line is incomplete"),
        (written("short.dump", b"".join(lines[:-1])), "cut short: its last record is missing"),
        (written("flipped.dump", flipped), "checksum"),
        (written("fewer.dump", fewer), "records but has"),
        (written("longer.dump", whole + lines[3]), "more after its last record"),
        (written("later.dump", later), "a dump of version 2, but this command reads version 1"),
        (written("foreign.dump", b'{"record":"other"}\n'), "not a cache dump"),
        (written("empty.dump", b""), "not a cache dump: it is empty"),
        (written("broken.dump", lines[0] + b"nonsense\n"), "line 2 is not a record"),
        (written("kind.dump", b'{"record":"quire dump","version":1,"tokens":3}\n'),
         "tokens in its first record is neither true nor false"),
        (written("count.dump", lines[0] + b'{"record":"end","records":"x"}\n'),
         "does not say how many records there are"),
        (("dump", __file__), "not a cache dump"),
        (("dump", "/dev/zero"), "not a cache dump"),
        (("dump", folder), "is a folder"),
        (("dump", folder / "none.dump"), "No such file"),
        (("dump", path, path), "--diff"),
        (("dump", "--diff", path), "name both"),
        (("dump",), "required"),
    ])
    code, out, _ = run("dump", "--help")
    expect(code == 0 and "example: quire dump" in out, out)


with tempfile.TemporaryDirectory() as name:
    place = pathlib.Path(name)
    dump = replayed(place, "day.dump", 40)
    dump_is_shown(dump)
    two_are_compared(place, dump)
    loads_are_shown(place, dump)
    what_is_none_is_refused(place, dump)
    expect(replayed(place, "again.dump", 0).stat().st_size > 0, "all of the trace")
print("ok")
