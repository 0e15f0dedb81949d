# SPDX-License-Identifier: Apache-2.0
"""accuracy: the cost of K and V formats, as the program reports it.

    accuracy.py PROGRAM ENGINE WEIGHTS_FOLDER CASE

Each case is one test. A case that needs the trained model exits 77 if it is not in the folder
that QUIRE_WEIGHTS names, or else in WEIGHTS_FOLDER.
"""

import json
import math
import os
import pathlib
import subprocess
import sys

SKIPPED = 77
FORMATS = ["f32", "f16", "bf16", "fp8", "fp8-e5m2", "int8", "int4"]
SAMPLES = ["greedy", "sample 1", "sample 2"]


class Programs:
    def __init__(self, accuracy, engine, folder):
        self.accuracy = accuracy
        self.engine = engine
        self.folder = pathlib.Path(os.environ.get("QUIRE_WEIGHTS") or folder)

    def run(self, *options):
        return subprocess.run([self.accuracy, *options], capture_output=True, timeout=300)

    def trained(self):
        weights = self.folder / "stories260K.bin"
        if not weights.exists():
            print(f"no stories260K.bin in {self.folder}; name its folder with QUIRE_WEIGHTS")
            sys.exit(SKIPPED)
        return ["--weights", str(weights), "--tokenizer", str(self.folder / "tok512.bin")]

    def golden(self):
        return (self.folder / "stories260K_greedy_256.txt").read_text()

    def report(self, *options):
        result = self.run("--json", *options)
        expect(result.returncode == 0, result.stderr.decode())
        return json.loads(result.stdout)

    def story(self, kv_dtype):
        result = subprocess.run([self.engine, *self.trained(), "--prompt", "", "--steps", "256",
                                 "--kv-dtype", kv_dtype], capture_output=True, timeout=300)
        expect(result.returncode == 0, result.stderr.decode())
        return result.stdout.decode()


def expect(condition, message):
    if not condition:
        print(f"FAILED: {message}")
        sys.exit(1)


def by_format(report):
    return {cost["kv_dtype"]: cost for cost in report["formats"]}


def every_format_has_its_line(programs):
    table = programs.run()
    expect(table.returncode == 0, table.stderr.decode())
    lines = table.stdout.decode().splitlines()
    expect("seed 1 (no --weights)" in lines[0], lines[0])
    expect([line.split()[0] for line in lines[3:10]] == FORMATS, lines)
    report = programs.report()
    expect(not report["trained"] and [*by_format(report)] == FORMATS, report)
    expect([text["name"] for text in report["texts"]] == SAMPLES, report["texts"])
    expect(len({text["text"] for text in report["texts"]}) == 3, "three texts, not the same twice")
    for cost in report["formats"]:
        expect(len(cost["texts"]) == 3, cost)
        for text in cost["texts"]:
            expect(1 < text["perplexity"] < 512 and 0 < text["ratio"] < 10, text)
            expect(text["perplexity_one_by_one"] == text["perplexity"], text)


def expect_sums_up(report):
    """A format's perplexity over all texts follows from those of its texts."""
    places = [text["places"] for text in report["texts"]]
    for cost in report["formats"]:
        surprise = sum(count * math.log(text["perplexity"])
                       for count, text in zip(places, cost["texts"]))
        expect(math.isclose(cost["perplexity"], math.exp(surprise / sum(places)), rel_tol=1e-9),
               cost)
        expect(cost["other_choices"] == sum(text["other_choices"] for text in cost["texts"]), cost)


def f32_tells_the_golden_text_and_so_does_f16(programs):
    report = programs.report(*programs.trained())
    expect(report["trained"], report["model"])
    expect(report["texts"][0]["text"] + "\n" == programs.golden(), report["texts"][0])
    expect_sums_up(report)
    costs = by_format(report)
    for kv_dtype in ("f32", "f16"):
        expect(costs[kv_dtype]["first_difference"] is None, costs[kv_dtype])
    expect(costs["f32"]["ratio"] == 1 and costs["f32"]["other_choices"] == 0, costs["f32"])


def int8_costs_less_than_a_percent(programs):
    costs = by_format(programs.report(*programs.trained()))
    for kv_dtype in ("f16", "bf16", "int8"):
        expect(abs(costs[kv_dtype]["ratio"] - 1) < 0.01, costs[kv_dtype])
    # The measured cost is that of the format: fewer bits cost more.
    for fewer, more in (("int4", "int8"), ("fp8-e5m2", "fp8"), ("int8", "bf16"), ("bf16", "f16")):
        expect(abs(costs[fewer]["ratio"] - 1) > abs(costs[more]["ratio"] - 1),
               f"{fewer} costs less than {more}: {costs}")


def engine_leaves_the_golden_text_where_the_report_says(programs):
    costs = by_format(programs.report(*programs.trained()))
    golden = programs.golden()
    for kv_dtype in FORMATS:
        story = programs.story(kv_dtype)
        difference = costs[kv_dtype]["first_difference"]
        if difference is None:
            expect(story == golden, f"{kv_dtype} tells a different story: {story}")
            continue
        expect(difference["gap"] >= 0 and difference["own_gap"] >= 0, difference)
        pieces = difference["piece"], difference["f32_piece"]
        common = len(os.path.commonprefix([story, golden]))
        expect(any(story[at:].startswith(pieces[0]) and golden[at:].startswith(pieces[1])
                   for at in range(common - max(map(len, pieces)) + 1, common + 1)),
               f"{kv_dtype}: {difference}: {story[common - 20:common + 20]}")


def blocks_and_chunks_change_no_bit(programs):
    formats = programs.report(*programs.trained())["formats"]
    for options in (["--block-tokens", "1"], ["--block-tokens", "64", "--chunk", "7"],
                    ["--chunk", "256"]):
        report = programs.report(*programs.trained(), *options)
        expect(report["formats"] == formats, f"{options} change the result")


def mistakes_are_explained(programs):
    for options, word in ((["--steps", "1"], "--steps"), (["--weights", "x"], "--tokenizer"),
                          (["--chunk", "0"], "--chunk"), (["surplus"], "surplus")):
        result = programs.run(*options)
        expect(result.returncode == 2 and word in result.stderr.decode(),
               f"{options}: {result.returncode}, {result.stderr.decode()}")
    for options, word in ((["--block-tokens", "12"], "power of two"),
                          (["--device", "abacus"], "abacus")):
        result = programs.run(*options)
        expect(result.returncode == 1 and word in result.stderr.decode(),
               f"{options}: {result.returncode}, {result.stderr.decode()}")


CASES = [f32_tells_the_golden_text_and_so_does_f16, mistakes_are_explained]
LONG_CASES = [every_format_has_its_line, int8_costs_less_than_a_percent,
              engine_leaves_the_golden_text_where_the_report_says, blocks_and_chunks_change_no_bit]
LISTS = {"--list": CASES, "--list-long": LONG_CASES}


def main():
    if len(sys.argv) == 2 and sys.argv[1] in LISTS:
        print("\n".join(case.__name__ for case in LISTS[sys.argv[1]]))
        return
    accuracy, engine, folder, name = sys.argv[1:]
    {case.__name__: case for case in CASES + LONG_CASES}[name](Programs(accuracy, engine, folder))


if __name__ == "__main__":
    main()
