# SPDX-License-Identifier: Apache-2.0
"""calibration: `quire calibration` shows a calibration that the example engine saved, merges runs,
and refuses invalid files.

    calibration.py QUIRE ENGINE
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from program import expect, refuses, run

ENGINE = sys.argv[2]


def measure(path, prompt, *options):
    process = subprocess.run([ENGINE, "--json", "--prompt", prompt, "--steps", "40",
                              "--calibrate", path, *options], capture_output=True, timeout=120)
    expect(process.returncode == 0 and path.stat().st_size > 0, process.stderr.decode())


def shown(*arguments):
    code, out, err = run("calibration", *arguments, "--json")
    expect(code == 0 and err == "", err)
    return json.loads(out)


def numbers(result):
    return [number for layer in result["layers"] for number in layer["k"] + layer["v"]]


def file_is_shown(path):
    result = shown(path)
    expect(list(result) == ["version", "layer_count", "unwritten", "layers"], list(result))
    expect(result["version"] == 1 and result["layer_count"] == len(result["layers"]), result)
    expect(result["unwritten"] == 0 and min(numbers(result)) > 0, "every head was written")
    for layer in result["layers"]:
        expect(len(layer["k"]) == len(layer["v"]) == layer["kv_heads"] > 0, layer)
    code, out, _ = run("calibration", path)
    expect(code == 0 and out.startswith("layer") and len(out.splitlines()) ==
           result["layer_count"] + 1, f"the table has one row per layer: {out}")


def runs_are_merged(folder, first, second):
    larger = list(map(max, numbers(shown(first)), numbers(shown(second))))
    expect(larger not in (numbers(shown(first)), numbers(shown(second))), "the runs differ")
    both = folder / "both.cal"
    expect(numbers(shown("--merge", both, first, second)) == larger, "the merged is shown")
    expect(numbers(shown(both)) == larger, "and written")
    expect(numbers(shown("--merge", both, second, both, first)) == larger, "OUT may be an input")
    expect(sorted(p.name for p in folder.iterdir()) == ["a.cal", "b.cal", "both.cal"],
           "nothing else is left behind")


def what_is_none_is_refused(folder, good):
    damaged, foreign = folder / "damaged.cal", folder / "foreign.cal"
    whole = good.read_bytes()
    damaged.write_bytes(whole[:-3])
    measure(foreign, "hello", "--kv-heads", "1")
    before = good.read_bytes()
    refuses([
        (("calibration", damaged), "damaged.cal: quire_calibration_get_info: damaged"),
        (("calibration", folder / "none.cal"), "No such file"),
        (("calibration", folder), "is a folder"),
        (("calibration", "/dev/zero"), "more than 4 MiB"),
        (("calibration", __file__), "not a calibration"),
        (("calibration", good, good), "--merge OUT"),
        (("calibration", "--merge", good, good, foreign), "different models"),
        (("calibration", "--merge", good, good, damaged), "damaged"),
        (("calibration", "--merge", folder / "no" / "out.cal", good), "cannot be written"),
        (("calibration",), "required"),
    ])
    expect(good.read_bytes() == before, "a merge that fails changes nothing")


with tempfile.TemporaryDirectory() as name:
    place = pathlib.Path(name)
    a, b = place / "a.cal", place / "b.cal"
    measure(a, "hello")
    measure(b, "another text")
    file_is_shown(a)
    runs_are_merged(place, a, b)
    what_is_none_is_refused(place, a)
