# SPDX-License-Identifier: Apache-2.0
"""traces: `quire trace` makes both kinds, equal for equal seeds, and replay reads them."""

import hashlib
import json
import pathlib
import tempfile

from program import expect, refuses, run

# Digests of `quire trace --requests 500 --seed 7`: equal on every machine, for ever.
DIGESTS = {"mooncake": "0da08b582f5167f1", "azure": "6eb0f29cd90d1ecc"}


def digest_of(folder, kind, seed):
    trace = folder / "trace"
    code, out, err = run("trace", "--kind", kind, "--requests", 500, "--seed", seed, "--output",
                         trace)
    expect(code == 0 and out == "" and err == "", err)
    return hashlib.sha256(trace.read_bytes()).hexdigest()[:16]


def same_seed_same_bytes(folder):
    for kind, digest in DIGESTS.items():
        got = digest_of(folder, kind, 7)
        expect(got == digest, f"{kind}: the digest is {got}, not {digest}")
        expect(digest_of(folder, kind, 8) != digest, f"{kind}: another seed, another trace")
        code, out, _ = run("trace", "--kind", kind, "--requests", 3)
        expect(code == 0 and len(out.splitlines()) >= 3, f"{kind}: goes to standard output")


def replay_reads_them(folder):
    for kind in DIGESTS:
        trace = folder / kind
        expect(run("trace", "--kind", kind, "--requests", 200, "--output", trace)[0] == 0, kind)
        code, out, err = run("replay", trace, "--blocks", 200_000, "--json")
        expect(code == 0, err)
        result = json.loads(out)
        expect(result["requests"] == 200, f"{kind}: every line is a request")
        shares = kind == "mooncake"
        expect((result["hit_rate"] > 0.2) == shares, f"{kind}: hit rate {result['hit_rate']}")


def lines_have_the_published_form(folder):
    rows = (folder / "azure").read_bytes().split(b"\r\n")
    expect(rows[0] == b"TIMESTAMP,ContextTokens,GeneratedTokens" and rows[-1] == b"", "azure")
    line = json.loads((folder / "mooncake").read_text().splitlines()[-1])
    expect(list(line) == ["timestamp", "input_length", "output_length", "hash_ids"], "mooncake")
    expect(len(line["hash_ids"]) == -(-line["input_length"] // 512), "an id for 512 tokens")


with tempfile.TemporaryDirectory() as name:
    same_seed_same_bytes(pathlib.Path(name))
    replay_reads_them(pathlib.Path(name))
    lines_have_the_published_form(pathlib.Path(name))
    refuses([
        (("trace", "--kind", "parquet"), "parquet"),
        (("trace", "--requests", 0), "--requests 0"),
        (("trace", "--output", f"{name}/none/x"), "No such file"),
        (("trace", "--output", "/dev/full"), "cannot write the trace"),
    ])
