# SPDX-License-Identifier: Apache-2.0
"""decode: the decoding examples as a user runs them.

    decode.py PROGRAM WEIGHTS_FOLDER CASE

Each case is one test. A case that needs the trained model exits 77 if it is not in the folder
that QUIRE_WEIGHTS names, or else in WEIGHTS_FOLDER.
"""

import json
import os
import pathlib
import subprocess
import sys

SKIPPED = 77
LONG_PROMPT = ("Once upon a time, there was a little girl named Lily. She loved to play outside in "
               "the park. One day, she saw a big red ball.")


class Program:
    def __init__(self, path, folder):
        self.path = path
        self.folder = pathlib.Path(os.environ.get("QUIRE_WEIGHTS") or folder)

    def run(self, *options):
        return subprocess.run([self.path, *options], capture_output=True, timeout=300)

    def trained(self, *options):
        weights = self.folder / "stories260K.bin"
        if not weights.exists():
            print(f"no stories260K.bin in {self.folder}; name its folder with QUIRE_WEIGHTS")
            sys.exit(SKIPPED)
        result = self.run(*options, "--weights", str(weights), "--tokenizer",
                          str(self.folder / "tok512.bin"))
        expect(result.returncode == 0, result.stderr.decode() + result.stdout.decode())
        return result

    def golden(self):
        return (self.folder / "stories260K_greedy_256.txt").read_bytes()


def expect(condition, message):
    if not condition:
        print(f"FAILED: {message}")
        sys.exit(1)


def expect_golden(program, *options):
    result = program.trained(*options, "--steps", "256")
    expect(result.stdout == program.golden(), f"{options}: differs from the golden text")


def one_beam_is_the_golden_text(program):
    expect_golden(program, "beam", "--width", "1")
    expect_golden(program, "beam", "--width", "1", "--block-tokens", "4")


def greedy_samples_are_the_golden_text(program):
    expect_golden(program, "best-of", "--temperature", "0", "--count", "3")


def drafts_leave_the_golden_text(program):
    for options in (["--noise", "0"], [], ["--depth", "7"], ["--tree"],
                    ["--tree", "--depth", "6", "--noise", "0.3"], ["--noise", "10"],
                    ["--tree", "--block-tokens", "1", "--pool-blocks", "400"]):
        expect_golden(program, "speculate", "--check", *options)


def drafts_of_a_good_copy_save_steps(program):
    result = program.trained("speculate", "--json", "--noise", "0", "--steps", "200")
    perfect = json.loads(result.stdout)
    expect(perfect["accepted"] == perfect["drafted"], "a copy without noise is always right")
    expect(perfect["tokens_a_step"] > 4.5, str(perfect))
    result = program.trained("speculate", "--json", "--tree", "--noise", "0.3", "--steps", "200")
    tree = json.loads(result.stdout)
    expect(tree["off_chain"] > 0, f"no runner-up was ever right: {tree}")
    expect(tree["moved"] > 0, f"nothing was moved in the cache: {tree}")
    expect(tree["tokens_a_step"] > 1.2, str(tree))


def beams_are_those_of_contiguous_copies(program):
    for options in ([], ["--length-penalty", "0"], ["--block-tokens", "4"], ["--width", "7"]):
        program.trained("beam", "--check", "--prompt", LONG_PROMPT, "--steps", "90", *options)


def beams_hold_their_prompt_once(program):
    result = program.trained("beam", "--json", "--prompt", LONG_PROMPT, "--steps", "90",
                             "--block-tokens", "4")
    memory = json.loads(result.stdout)
    expect(memory["prompt_blocks_held"] >= 8, f"the prompt is too short to say much: {memory}")
    expect(memory["prompt_blocks_copies"] == 4 * memory["prompt_blocks_held"], str(memory))
    expect(memory["prompt_saved_percent"] == 75.0, str(memory))
    expect(memory["blocks_held"] < memory["blocks_copies"], str(memory))


def the_best_sample_is_printed(program):
    options = ["--prompt", LONG_PROMPT, "--steps", "90", "--count", "5"]
    result = program.trained("best-of", "--json", *options)
    out = json.loads(result.stdout)
    expect(len(set(out["scores"])) == 5, "five samples are five texts")
    expect(out["scores"][out["best"]] == max(out["scores"]), str(out))
    expect(out["prompt_saved_percent"] == 80.0, str(out))
    again = program.trained("best-of", *options)
    expect(again.stdout.decode() == out["texts"][out["best"]] + "\n",
           "the same seed gives the same text")


def a_seeded_model_needs_no_files(program):
    for options in (["beam", "--check", "--steps", "40"], ["best-of", "--steps", "40"],
                    ["speculate", "--check", "--tree", "--steps", "40"]):
        result = program.run(*options)
        expect(result.returncode == 0, f"{options}: {result.stderr.decode()}")
        expect(len(result.stdout) > 20, f"{options}: no text")


def mistakes_are_explained(program):
    for options, word in ((["beam", "--width", "0"], "--width"), ([], "subcommand"),
                          (["speculate", "--depth", "99"], "--depth"),
                          (["speculate", "--noise", "nan"], "--noise"),
                          (["beam", "--weights", "x"], "--tokenizer")):
        result = program.run(*options)
        expect(result.returncode == 2, f"{options}: status {result.returncode}")
        expect(word in result.stderr.decode(), result.stderr.decode())
    result = program.run("beam", "--pool-blocks", "3", "--block-tokens", "1", "--steps", "40")
    expect(result.returncode == 1 and b"--pool-blocks" in result.stderr, result.stderr.decode())


CASES = [one_beam_is_the_golden_text, greedy_samples_are_the_golden_text,
         drafts_leave_the_golden_text, drafts_of_a_good_copy_save_steps,
         beams_are_those_of_contiguous_copies, beams_hold_their_prompt_once,
         the_best_sample_is_printed, a_seeded_model_needs_no_files, mistakes_are_explained]


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(case.__name__ for case in CASES))
        return
    program, folder, wanted = sys.argv[1:]
    for case in CASES:
        if case.__name__ == wanted:
            case(Program(program, folder))
            return
    sys.exit(f"there is no case {wanted}")


main()
