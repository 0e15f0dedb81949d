# SPDX-License-Identifier: Apache-2.0
"""command: the `quire` command as a person uses it: its output, and its messages on bad input."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from program import QUIRE, expect, refuses, run

LINE = '{"timestamp": 0, "input_length": 1100, "output_length": 20, "hash_ids": [1, 2, %d]}\n'
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"


def replay_counts_hits(folder):
    trace = folder / "trace.jsonl"
    trace.write_text(LINE % 3 + LINE % 4)
    code, out, _ = run("replay", trace, "--blocks", 1000, "--json")
    result = json.loads(out)
    keys = ("requests input_tokens output_tokens hit_tokens hit_rate cached_blocks preemptions "
            "evictions steps bytes_hashed bytes_compared manager_seconds blocks block_tokens "
            "policy mode").split()
    expect(code == 0 and list(result) == keys, f"the keys of --json are {keys}, not {list(result)}")
    expect(result["hit_tokens"] == 1024, "two shared ids of 512 tokens are hit")
    expect(result["bytes_compared"] == 1024 * 4, "every hit token was compared")
    expect(result["steps"] == 40, "one step for the prompt and one per decoded token")
    code, out, _ = run("replay", trace, "--blocks", 1000)
    expect(code == 0 and "hit tokens" in out, "without --json there is a table")


def replay_refuses(folder):
    broken = folder / "broken.jsonl"
    broken.write_text(LINE % 3 + '{"input_length": 5,\n')
    cases = [
        (("replay", broken, "--blocks", 100), "broken.jsonl:2"),
        (("replay", folder / "none.jsonl", "--blocks", 100), "No such file"),
        (("replay", folder / "good.jsonl", "--blocks", 0), "zero blocks"),
        (("replay", folder / "good.jsonl", "--blocks", 20), "does not fit into the pool"),
        (("replay", folder / "good.jsonl", "--blocks", 100, "--policy", "mru"), "mru"),
        (("replay", folder / "good.jsonl", "--blocks", 100, "--block-tokens", 5000), "1 to 4096"),
        (("replay", folder / "short.jsonl", "--blocks", 100), "hash_ids has 1 ids"),
        (("replay", folder / "good.jsonl", "--blocks", 100, "--block-tokens", 0, "--baseline"),
         "--block-tokens 0"),
        (("replay", folder, "--blocks", 100), "Is a directory"),
        (("replay", "/dev/zero", "--blocks", 100), "more than 4 MiB"),
        (("replay", folder / "long.csv", "--blocks", 100), "long.csv:129: more than 2^31 tokens"),
        (("replay", folder / "good.jsonl", "--blocks", 100, "--limit", -1), "not be negative"),
        (("replay", folder / "good.jsonl", "--blocks", 100, "--mode", "both"), "both"),
        (("replay", folder / "good.jsonl", "--blocks", 100, "--mode", "concurrent"), "--running"),
        (("replay", folder / "good.jsonl", "--blocks", 100, "--running", 3), "--mode concurrent"),
        (("replay", folder / "good.jsonl", "--blocks", 20, "--mode", "concurrent", "--running", 3),
         "request 1 does not fit into the pool"),
        (("replay",), "required"),
        ((), "subcommand is required"),
        (("sing",), "sing"),
    ]
    (folder / "good.jsonl").write_text(LINE % 3)
    (folder / "long.csv").write_text(HEADER + "2023,16777216,1\n" * 200)
    short = '{"input_length": 999, "output_length": 2, "hash_ids": [1]}\n'
    (folder / "short.jsonl").write_text(short)
    refuses(cases)


def replay_reads_azure_traces(folder):
    trace = folder / "azure.csv"
    rows = "2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,1\r\n"
    trace.write_bytes((HEADER + rows).encode())
    for mode in ([], ["--mode", "concurrent", "--running", 2]):
        code, out, err = run("replay", trace, "--blocks", 100, "--json", *mode)
        result = json.loads(out)
        expect(code == 0 and err == "", "a trace with carriage returns is read")
        counts = [result[key] for key in ("requests", "input_tokens", "output_tokens")]
        expect(counts == [2, 770, 45],
               "its lengths are the two columns")
        expect(result["hit_tokens"] == 0, "its prompts share nothing")
    bad = folder / "bad.csv"
    for row, words in (("2023,374", "bad.csv:2: not a trace line: it does not have three columns"),
                       ("2023,1,2,3", "three columns"),
                       ("2023,many,2", "ContextTokens is 'many'"),
                       ("2023,5,-2", "GeneratedTokens is '-2'"),
                       ("2023,0,2", "ContextTokens is 0")):
        bad.write_bytes((HEADER + row + "\r\n").encode())
        refuses([(("replay", bad, "--blocks", 100), words)])
    bad.write_bytes(HEADER.encode())
    refuses([(("replay", bad, "--blocks", 100), "holds no request")])


def devices_explain_themselves(folder):
    plugins = folder / "plugins"
    plugins.mkdir(mode=0o755)
    os.chmod(folder, 0o755)
    for path in pathlib.Path(os.environ["QUIRE_PLUGIN_PATH"]).glob("quire_backend_*.so"):
        shutil.copy(path, plugins)
    (plugins / "quire_backend_broken.so").write_text("no plugin")
    (plugins / "quire_backend_link.so").symlink_to(plugins / "quire_backend_cpu.so")
    code, out, _ = run("devices", "--json", env={"QUIRE_PLUGIN_PATH": str(plugins)})
    found = {backend["name"]: backend for backend in json.loads(out)}
    cpu, null = found["cpu"], found["null"]
    expect(code == 0 and cpu["loaded"] and len(cpu["devices"]) == 1, "cpu is there")
    expect(null["loaded"] and null["devices"] == [], "null loads and has no device")
    expect("dynamic linker" in found["broken"]["reason"], "a file that is no plugin gives a reason")
    expect("symbolic link" in found["link"]["reason"], "a link is not followed")
    expect(found["broken"]["path"].endswith("quire_backend_broken.so"), "and says where it is")
    code, out, _ = run("devices", env={"QUIRE_PLUGIN_PATH": str(plugins)})
    expect(code == 0 and "not loaded" in out, "the table says so too")


def full_disk_is_a_failure():
    for arguments in (["size", "--list"], ["devices"], ["trace"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            process = subprocess.run([QUIRE, *arguments], stdout=full, stderr=subprocess.PIPE,
                                     stdin=subprocess.DEVNULL, text=True)
        expect(process.returncode == 1 and "written" in process.stderr or
               "write" in process.stderr, f"{arguments} must notice a full disk")


def version_is_said():
    code, out, _ = run("--version")
    expect(code == 0 and out.startswith("quire 0."), f"--version says {out!r}")


def help_has_an_example():
    for arguments in (("--help",), ("replay", "--help"), ("devices", "--help"),
                      ("size", "--help"), ("trace", "--help")):
        code, out, _ = run(*arguments)
        expect(code == 0 and "example:" in out, f"{arguments} shows an example")


with tempfile.TemporaryDirectory() as name:
    replay_counts_hits(pathlib.Path(name))
    replay_refuses(pathlib.Path(name))
    replay_reads_azure_traces(pathlib.Path(name))
    devices_explain_themselves(pathlib.Path(name))
    help_has_an_example()
    version_is_said()
    full_disk_is_a_failure()
