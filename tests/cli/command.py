# SPDX-License-Identifier: Apache-2.0
"""command: the `quire` command as a person uses it: what it prints, what it says to bad input."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

QUIRE = sys.argv[1]
LINE = '{"timestamp": 0, "input_length": 1100, "output_length": 20, "hash_ids": [1, 2, %d]}\n'


def run(*arguments, env=None):
    process = subprocess.run([QUIRE, *map(str, arguments)], capture_output=True, text=True,
                             stdin=subprocess.DEVNULL, timeout=60,
                             env={**os.environ, **(env or {})})
    return process.returncode, process.stdout, process.stderr


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def replay_counts_hits(folder):
    trace = folder / "trace.jsonl"
    trace.write_text(LINE % 3 + LINE % 4)
    code, out, _ = run("replay", trace, "--blocks", 1000, "--json")
    result = json.loads(out)
    keys = ("requests input_tokens output_tokens hit_tokens hit_rate cached_blocks preemptions "
            "evictions steps bytes_hashed bytes_compared manager_seconds blocks block_tokens "
            "policy").split()
    expect(code == 0 and list(result) == keys, f"the keys of --json are {keys}, not {list(result)}")
    expect(result["hit_tokens"] == 1024, "two shared ids of 512 tokens are hit")
    expect(result["bytes_compared"] == 1024 * 4, "every hit token was compared")
    expect(result["steps"] == 40, "one step for the prompt and one a decoded token")
    code, out, _ = run("replay", trace, "--blocks", 1000)
    expect(code == 0 and "hit tokens" in out, "without --json there is a table")


def replay_refuses(folder):
    broken = folder / "broken.jsonl"
    broken.write_text(LINE % 3 + '{"input_length": 5,\n')
    cases = [
        (("replay", broken, "--blocks", 100), "broken.jsonl:2"),
        (("replay", folder / "none.jsonl", "--blocks", 100), "No such file"),
        (("replay", folder / "good.jsonl", "--blocks", 0), "zero blocks"),
        (("replay", folder / "good.jsonl", "--blocks", 20), "does not fit the pool"),
        (("replay", folder / "good.jsonl", "--blocks", 100, "--policy", "mru"), "mru"),
        (("replay", folder / "good.jsonl", "--blocks", 100, "--block-tokens", 17), "power of two"),
        (("replay", folder / "short.jsonl", "--blocks", 100), "hash_ids has 1 ids"),
        (("replay",), "required"),
    ]
    (folder / "good.jsonl").write_text(LINE % 3)
    short = '{"input_length": 999, "output_length": 2, "hash_ids": [1]}\n'
    (folder / "short.jsonl").write_text(short)
    for arguments, words in cases:
        code, out, err = run(*arguments)
        expect(code != 0 and words in err and out == "",
               f"{arguments} must say {words!r} on stderr, said {err!r}")


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


def help_has_an_example():
    for arguments in (("--help",), ("replay", "--help"), ("devices", "--help")):
        code, out, _ = run(*arguments)
        expect(code == 0 and "example:" in out, f"{arguments} shows an example")


with tempfile.TemporaryDirectory() as name:
    replay_counts_hits(pathlib.Path(name))
    replay_refuses(pathlib.Path(name))
    devices_explain_themselves(pathlib.Path(name))
    help_has_an_example()
