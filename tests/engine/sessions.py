# SPDX-License-Identifier: Apache-2.0
"""sessions: texts that one process of the example engine begins and others go on with.

    sessions.py ENGINE WEIGHTS_FOLDER CASE
"""

import json
import pathlib
import tempfile

import serving
from serving import expect, refused

HALF = 128


def told(result, what):
    expect(result.returncode == 0, f"{what}: {result.stderr.decode()}")
    return result.stdout


def told_in_parts(engine, parts, *options):
    """A story of 256 tokens told by one process per part: (its last token, its own options)."""
    text = b""
    with tempfile.TemporaryDirectory() as name:
        file = str(pathlib.Path(name) / "text.session")
        for i, (steps, own) in enumerate(parts):
            first = ["--prompt", ""] if i == 0 else ["--restore-session", file]
            last = [] if i == len(parts) - 1 else ["--save-session", file]
            result = engine.run(*engine.trained(), *first, *last, "--steps", str(steps), *own,
                                *options)
            text = text[:-1] + told(result, f"{steps} {own} {options}")
    return text


def between(engine, first, second, *options):
    """The golden story, half of it on each device."""
    text = told_in_parts(engine, [(HALF, ["--device", first]), (256, ["--device", second])],
                         *options)
    expect(text == engine.golden(), f"{first} and {second} tell another story: {text}")


def golden_story_by_two_processes(engine):
    for half in (1, 100, HALF, 255, 256):
        text = told_in_parts(engine, [(half, []), (256, ["--check"])])
        expect(text == engine.golden(), f"after {half} tokens it goes on as another story")
    shards = [(60, ["--tp", "2"]), (61, []), (HALF, ["--tp", "4"]), (200, ["--chunk", "1"]),
              (256, [])]
    expect(told_in_parts(engine, shards) == engine.golden(), "over other devices each time")
    expect(told_in_parts(engine, [(HALF, []), (256, [])], "--kv-dtype", "f16") == engine.golden(),
           "f16 tells another story")
    one = ["--block-tokens", "1", "--pool-blocks", "300"]
    expect(told_in_parts(engine, [(HALF, []), (256, [])], *one) == engine.golden(), str(one))


def rounded_story_by_two_processes(engine):
    for dtype in ("int8", "fp8", "int4", "bf16"):
        kept = ["--kv-dtype", dtype]
        whole = told(engine.story(*kept), dtype)
        for half in (90, HALF):
            text = told_in_parts(engine, [(half, []), (256, ["--tp", "2"])], *kept)
            expect(text == whole, f"{dtype} goes on as another story after {half} tokens")


def measured_story_by_two_processes(engine):
    with tempfile.TemporaryDirectory() as name:
        file = str(pathlib.Path(name) / "story.cal")
        told(engine.story("--calibrate", file), "measuring")
        kept = ["--kv-dtype", "int8", "--kv-scale", "head", "--calibration", file]
        whole = told(engine.story(*kept), "uninterrupted")
        expect(told_in_parts(engine, [(HALF, []), (256, [])], *kept) == whole, "static scales")


def sampled_text_goes_on_as_it_would_have(engine):
    how = ["--temperature", "1", "--seed", "3"]
    whole = told(engine.run("--prompt", "Tell me", "--steps", "120", *how), "whole")
    with tempfile.TemporaryDirectory() as name:
        file = str(pathlib.Path(name) / "text.session")
        first = told(engine.run("--prompt", "Tell me", "--steps", "50", "--save-session", file,
                                *how), "first")
        result = engine.run("--restore-session", file, "--steps", "120", "--check", "--json", *how)
        expect(first[:-1] + told(result, "second") == whole, "it goes on as another text")
        table = json.loads(result.stderr)
        expect(table["passed"] and table["repeated_tokens"] == 0, table)
        # Each computed token gave the next one: those before the last saved one were not computed.
        expect(table["computed_tokens"] == table["generated_tokens"] < 120 - 48, table)


def foreign_sessions_are_refused(engine):
    with tempfile.TemporaryDirectory() as name:
        file = str(pathlib.Path(name) / "text.session")
        saved = engine.run("--prompt", "Tell me", "--steps", "40", "--save-session", file)
        told(saved, "saving")
        expect(b"text.session holds 40 tokens" in saved.stderr, saved.stderr)
        whole = pathlib.Path(file).read_bytes()
        restore = ["--restore-session", file]
        refused(engine, 1, "another model", *restore, "--seed", "2")
        refused(engine, 1, "k_dtype", *restore, "--kv-dtype", "f16")
        refused(engine, 1, "block_tokens", *restore, "--block-tokens", "8")
        refused(engine, 1, "--host-bytes", *restore, "--host-bytes", "0")
        refused(engine, 1, "40 tokens already", *restore, "--steps", "39")
        for content, words in ((whole[:-1], "damaged session"), (whole[:100], "no session"),
                               (whole[:300], "no session"), (b"!" + whole[1:], "no session"),
                               (whole[:403] + b"!" + whole[404:], "another model"),
                               (whole[:400] + b"!" + whole[401:], "checksum"),
                               (whole[:-70] + b"!" + whole[-69:], "damaged")):
            pathlib.Path(file).write_bytes(content)
            refused(engine, 1, words, *restore)
        refused(engine, 1, "cannot be read", "--restore-session", name + "/none")
        nowhere = name + "/none/text.session"
        refused(engine, 1, "cannot be written", "--prompt", "Tell me", "--save-session", nowhere)


def mistakes_about_sessions_are_explained(engine):
    refused(engine, 2, "--save-session", "--save-session", "a")
    refused(engine, 2, "excludes", "--restore-session", "a", "--prompt", "b")
    refused(engine, 2, "excludes", "--prompt", "a", "--samples", "2", "--save-session", "b")
    refused(engine, 2, "--processes", "--restore-session", "a", *serving.IN_PROCESSES)
    refused(engine, 2, "--processes", "--prompt", "a", "--save-session", "b",
            *serving.IN_PROCESSES)


def golden_story_from_cpu_to_vulkan_and_back(engine):
    serving.on_vulkan(engine)
    between(engine, "cpu", "vulkan")
    between(engine, "vulkan", "cpu", "--kv-dtype", "f16")


def golden_story_from_cuda_to_cpu(engine):
    between(engine, "cuda", "cpu", "--kv-dtype", "f16")


def golden_story_from_cpu_to_hip(engine):
    between(engine, "cpu", "hip", "--kv-dtype", "f16")


def golden_story_from_vendor_to_vendor(engine):
    serving.on_vulkan(engine)
    stations = [(40, "cuda"), (90, "vulkan"), (HALF, "hip"), (200, "cuda"), (256, "cpu")]
    parts = [(steps, ["--device", device]) for steps, device in stations]
    expect(told_in_parts(engine, parts) == engine.golden(), f"{stations} tell another story")


LISTS = {
    "--list": [golden_story_by_two_processes, sampled_text_goes_on_as_it_would_have,
               foreign_sessions_are_refused, mistakes_about_sessions_are_explained],
    "--list-long": [rounded_story_by_two_processes, measured_story_by_two_processes],
    "--list-vulkan": [golden_story_from_cpu_to_vulkan_and_back],
    "--list-cuda": [golden_story_from_cuda_to_cpu],
    "--list-hip": [golden_story_from_cpu_to_hip],
    "--list-gpu": [golden_story_from_vendor_to_vendor],
}


if __name__ == "__main__":
    serving.main(LISTS)
