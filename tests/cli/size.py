# SPDX-License-Identifier: Apache-2.0
"""size: `quire size` gives the numbers worked out by hand, and refuses impossible input."""

import json

from program import expect, refuses, run

KEYS = ("kv_bytes_per_token pool_bytes blocks tokens max_sequences batch step_seconds "
        "tokens_per_second bound").split()
LLAMA = ["--layers", 80, "--kv-heads", 8, "--head-dim", 128]
QWEN = ["--layers", 36, "--kv-heads", 8, "--head-dim", 128, "--params", "8.19e9",
        "--weight-dtype", "bf16"]
H100 = ["--hbm", "80e9", "--bandwidth", "3.35e12", "--flops", "989e12", "--util", 0.9,
        "--reserve", "2e9"]
CTX = ["--ctx", 8192]


def size(*arguments):
    code, out, err = run("size", *arguments, "--json")
    expect(code == 0 and err == "", f"{arguments}: {err}")
    result = json.loads(out)
    expect(list(result) == KEYS, f"the keys are {KEYS}, not {list(result)}")
    return result


def gives(arguments, **wanted):
    result = size(*arguments)
    for key, value in wanted.items():
        got = result[key]
        near = isinstance(value, float) and got is not None and abs(got - value) < value * 1e-3
        expect(near or got == value, f"{arguments}: {key} is {got}, not {value}")


def numbers_worked_out_by_hand():
    gives(LLAMA, kv_bytes_per_token=327_680, pool_bytes=None, blocks=None, tokens=None,
          max_sequences=None, batch=1, step_seconds=None, tokens_per_second=None, bound=None)
    gives([*LLAMA, "--kv-dtype", "fp8"], kv_bytes_per_token=80 * 8 * 2 * (128 + 4))
    gives([*LLAMA, "--kv-dtype", "fp8-e5m2"], kv_bytes_per_token=168_960)
    gives([*LLAMA, "--kv-dtype", "int8"], kv_bytes_per_token=168_960)
    gives([*LLAMA, "--kv-dtype", "int4"], kv_bytes_per_token=80 * 8 * 2 * (64 + 4))
    gives(["--layers", 61, "--head-dim", 576, "--latent", 512, "--kv-dtype", "fp8"],
          kv_bytes_per_token=61 * (576 + 4))
    gives(["--layers", 80, "--kv-heads", 64, "--head-dim", 128], kv_bytes_per_token=2_621_440)
    gives(["--layers", 61, "--head-dim", 576, "--latent", 512], kv_bytes_per_token=70_272)
    fp8 = [*LLAMA, "--kv-dtype", "fp8", "--hbm", "40GiB"]
    gives([*fp8, "--ctx", 8192], max_sequences=31, blocks=15_887, tokens=254_192,
          pool_bytes=40 * 2**30)
    gives([*fp8, "--ctx", 8193], max_sequences=30)
    gives([*LLAMA, "--hbm", "45GiB", "--util", 0.95, "--block-tokens", 16], blocks=8_755)
    gives([*QWEN, *H100, *CTX], max_sequences=44, batch=1, tokens_per_second=190.5,
          bound="bandwidth")
    gives([*QWEN, *H100, *CTX, "--batch", 44], batch=44, tokens_per_second=2120.0,
          bound="bandwidth")
    gives([*QWEN, *H100, *CTX, "--kv-dtype", "fp8"], max_sequences=86)
    gives([*QWEN, *H100], max_sequences=None, step_seconds=None, bound=None)
    gives([*QWEN[:6], "--params", "8.19B", *H100, *CTX], max_sequences=44)
    gives([*LLAMA, "--params", "70.6e9", *H100, *CTX, "--tp", 4], max_sequences=51)


def presets_are_their_numbers():
    numbers = size(*QWEN, "--q-heads", 32, "--hbm", "80GB", "--bandwidth", "3.35TB/s", "--flops",
                   "989T", "--util", 0.9, *CTX)
    expect(size("--model", "qwen3-8b", "--gpu", "h100-sxm", *CTX) == numbers,
           "a preset gives what its numbers give")
    expect(size("--model", "qwen3-8b", "--layers", 72)["kv_bytes_per_token"] == 2 * 147_456,
           "a number given beside a preset replaces the preset's")
    code, out, _ = run("size", "--list")
    expect(code == 0 and "qwen3-8b" in out and "mi300x" in out, "--list names them")
    models, gpus = (part.strip().splitlines()[1:] for part in out.split("\n\n"))
    expect(len(models) >= 12 and len(gpus) >= 12, "at least twelve of each")
    for row in models:
        size("--model", row.split()[0])
    for row in gpus:
        size("--model", "llama-3.2-1b", "--gpu", row.split()[0], *CTX)


def people_get_a_table():
    code, out, _ = run("size", *QWEN, *H100, *CTX)
    expect(code == 0 and "44 of 8,192 tokens" in out and "2119.9" in out, f"the table: {out}")
    expect(out.count("bandwidth") == 7, "a row for each batch, and all are bound by bandwidth")


def what_cannot_be_is_refused_with_status_2():
    tp = [*LLAMA, "--params", "70.6e9", *H100, *CTX, "--tp"]
    cases = [
        ((*tp, 1), "the model does not fit"),
        ((*tp, 2), "the model does not fit"),
        ((*QWEN, *H100, *CTX, "--batch", 45), "batch 45 is too large: 44 sequences fit"),
        (("--layers", 80, "--kv-heads", 0, "--head-dim", 128), "--kv-heads 0"),
        (("--layers", 0, "--kv-heads", 8, "--head-dim", 128), "--layers 0"),
        ((*LLAMA, "--batch", 0), "--batch 0"),
        ((*LLAMA, "--hbm", 0), "--hbm 0"),
        ((*LLAMA, "--hbm", "1e9", "--ctx", 9999999), "not one sequence of 9999999 tokens fits"),
        ((*LLAMA, "--hbm", "many"), "is not a quantity"),
        ((*LLAMA, "--hbm", "-5"), "is not a quantity"),
        ((*LLAMA, "--hbm", "5XB"), "is not a quantity"),
        ((*LLAMA, "--hbm", "1e999"), "is not a quantity"),
        ((*LLAMA, "--hbm", "1.5"), "is not a whole number"),
        ((*LLAMA, "--hbm", "1e9", "--util", 1.5), "utilization"),
        ((*LLAMA, "--hbm", "1e9", "--util", 0), "--util 0"),
        ((*LLAMA, "--block-tokens", 17), "block_tokens is 17"),
        ((*LLAMA, "--hbm", "0x50GB"), "is not a quantity"),
        ((*LLAMA, "--params", 8), "write it like 8B"),
        ((*LLAMA, "--hbm", "10e6", "--batch", 1000),
         "each sequence needs a block, and the pool has 1"),
        ((*LLAMA, "--kv-dtype", "f8"), "f32, f16, bf16, fp8, fp8-e5m2, int8 or int4"),
        (("--layers", 80), "--kv-heads"),
        (("--model", "gpt-5"), "qwen3-8b"),
        (("--model", "qwen3-8b", "--gpu", "abacus"), "mi300x"),
    ]
    refuses([(("size", *arguments), words) for arguments, words in cases])
    for arguments, _ in cases:
        expect(run("size", *arguments)[0] == 2, f"{arguments} ends with status 2")


numbers_worked_out_by_hand()
presets_are_their_numbers()
people_get_a_table()
what_cannot_be_is_refused_with_status_2()
