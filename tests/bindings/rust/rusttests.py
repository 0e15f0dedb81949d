# SPDX-License-Identifier: Apache-2.0
"""rusttests: the Rust crates' own tests, clippy, format, the example on candle, the packages.

    rusttests.py CARGO SOURCE_ROOT PART [--program EXAMPLE] [--gtest_output=xml:FILE]

PART is crates, example, example_lint or packages.
"""

import argparse
import contextlib
import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[3] / "bindings" / "rust" / "tools")]

import report  # noqa: E402
import shared_target  # noqa: E402

# Nothing is downloaded: ./dev setup rust has fetched what is needed.
OFFLINE = ["--offline", "--locked"]


class Cargo:
    def __init__(self, program, root):
        self.program = program
        self.root = root

    def __call__(self, folder, *arguments):
        return subprocess.run([self.program, *arguments], cwd=folder, capture_output=True,
                              text=True, env={**os.environ, "CARGO_TERM_COLOR": "never"})

    def has(self, tool):
        return self(self.root, tool, "--version").returncode == 0


def single(name, process, outcome=None):
    outcome = outcome or ("passed" if process.returncode == 0 else "failed")
    return report.Case("Rust", name, outcome, 0,
                       "" if outcome == "passed" else process.stdout + process.stderr)


def skipped(name, why):
    return report.Case("Rust", name, "skipped", 0, why)


def own_tests(cargo, folder):
    process = cargo(folder, "test", *OFFLINE, "--no-fail-fast")
    cases = []
    for line in process.stdout.splitlines():
        found = re.match(r"test (.+?)(?: - compile fail)? \.\.\. (ok|FAILED|ignored)", line)
        if found:
            name = re.sub(r"\W+", "_", found[1]).strip("_")
            outcome = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}[found[2]]
            cases.append(report.Case("Rust", name, outcome, 0,
                                     process.stdout if outcome == "failed" else ""))
    if process.returncode != 0 and not any(case.outcome == "failed" for case in cases):
        cases.append(single("tests", process))
    return cases


def is_linted(cargo, folder):
    name = f"clippy_{folder.name}"
    if not cargo.has("clippy"):
        return skipped(name, "no clippy")
    return single(name, cargo(folder, "clippy", *OFFLINE, "--all-targets", "--", "-D", "warnings"))


def is_formatted(cargo, folder):
    name = f"format_{folder.name}"
    if not cargo.has("fmt"):
        return skipped(name, "no rustfmt")
    return single(name, cargo(folder, "fmt", "--all", "--check"))


def crates(cargo):
    workspace = cargo.root / "bindings" / "rust"
    others = [cargo.root / "tests/bindings/script/rust", cargo.root / "tests/bench/bindings/rust"]
    return [*own_tests(cargo, workspace), is_linted(cargo, workspace),
            *(is_formatted(cargo, folder) for folder in [workspace, *others])]


class Llama:
    """The example on candle."""

    def __init__(self, cargo, program):
        self.program = program
        self.weights = pathlib.Path(os.environ.get("QUIRE_WEIGHTS") or
                                    cargo.root.parent / "shared" / "weights")

    def run(self, *options):
        return subprocess.run([self.program, *options], capture_output=True, timeout=100)

    def golden(self):
        name = "candle_llama_gives_the_golden_text"
        if not (self.weights / "stories260K.bin").exists():
            return skipped(name, f"no stories260K.bin in {self.weights}; name its folder with "
                                 "QUIRE_WEIGHTS")
        process = self.run("--weights", self.weights / "stories260K.bin", "--tokenizer",
                           self.weights / "tok512.bin", "--check")
        wanted = (self.weights / "stories260K_greedy_256.txt").read_bytes()
        is_good = process.stdout == wanted and b"257 tokens equal" in process.stderr
        return report.Case("Rust", name, "passed" if is_good else "failed", 0,
                           (process.stdout + process.stderr).decode())

    def shared(self):
        """Batched, with a shared prefix, a fork and preemptions; `--check` compares every text."""
        process = self.run("--steps", "96", "--samples", "5", "--share-at", "40", "--fork-at", "21",
                           "--pool-blocks", "24", "--block-tokens", "8", "--check", "--json")
        said = (process.stdout + process.stderr).decode()
        is_good = process.returncode == 0
        if is_good:
            counts = json.loads(process.stdout)
            said = json.dumps({**counts, "texts": len(counts["texts"])})
            is_good = (counts["tokens_compared"] == 7 * 97 and counts["preemptions"] > 0
                       and counts["hit_tokens"] > 0 and counts["copies_on_write"] == 1
                       # K and V were never larger than one step's computed tokens.
                       and counts["largest_kv_tokens"] == counts["largest_step_tokens"] < 97)
        return report.Case("Rust", "candle_llama_shares_forks_and_is_preempted",
                           "passed" if is_good else "failed", 0, said)

    def refuses(self, name, wanted, *options):
        process = self.run(*options)
        said = process.stderr.decode()
        is_good = process.returncode != 0 and wanted in said and "panicked" not in said
        return report.Case("Rust", f"candle_llama_says_{name}", "passed" if is_good else "failed",
                           0, said)


def example(cargo, program):
    llama = Llama(cargo, program)
    return [llama.golden(), llama.shared(),
            llama.refuses("that_the_pool_is_too_small", "more blocks", "--pool-blocks", "3"),
            llama.refuses("what_is_no_checkpoint", "checkpoint", "--weights", __file__),
            llama.refuses("which_backends_there_are", "cpu", "--device", "none"),
            llama.refuses("what_is_no_option", "--help", "--sample", "2")]


def example_lint(cargo):
    folder = cargo.root / "examples" / "rust"
    return [is_linted(cargo, folder), is_formatted(cargo, folder)]


def declarations(cargo):
    """The committed declarations equal bindgen's output for the headers."""
    name = "declarations_are_the_headers"
    if not glob.glob("/usr/lib/llvm-*/lib/libclang*.so*") + glob.glob("/usr/lib/*/libclang*.so*"):
        return skipped(name, "no libclang")
    workspace = cargo.root / "bindings" / "rust"
    process = cargo(workspace, "build", *OFFLINE, "-p", "quire-sys", "--features",
                    "buildtime-bindgen", "--message-format=json")
    if process.returncode != 0:
        return single(name, process)
    messages = [json.loads(line) for line in process.stdout.splitlines()]
    out = next(message["out_dir"] for message in messages
               if message["reason"] == "build-script-executed" and "quire-sys" in
               message["package_id"])
    made = pathlib.Path(out, "bindings.rs").read_bytes()
    committed = (workspace / "quire-sys" / "src" / "bindings.rs").read_bytes()
    return report.Case("Rust", name, "passed" if made == committed else "failed", 0,
                       "" if made == committed else f"cp {out}/bindings.rs bindings/rust/quire-sys"
                       "/src: the headers have changed")


def packages(cargo):
    """The packages as published, used by the README's example from an empty folder."""
    workspace = cargo.root / "bindings" / "rust"
    packed = cargo(workspace, "package", "--workspace", "--no-verify", "--allow-dirty", *OFFLINE)
    cases = [declarations(cargo), single("packages_are_made", packed)]
    if packed.returncode != 0:
        return cases
    text = (workspace / "quire" / "README.md").read_text()
    program = re.search(r"```rust\n(.*?)```", text, re.S).group(1)
    promised = re.search(r"```text\n(.*?)```", text, re.S).group(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for crate in pathlib.Path(os.environ["CARGO_TARGET_DIR"], "package").glob("*.crate"):
            tarfile.open(crate).extractall(folder)
        (folder / "src").mkdir()
        (folder / "src" / "main.rs").write_text(program)
        (folder / "Cargo.toml").write_text(
            '[package]\nname = "first"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\n'
            'quire = "0.1.0"\n\n[patch.crates-io]\nquire = { path = "quire-0.1.0" }\n'
            'quire-sys = { path = "quire-sys-0.1.0" }\n\n[workspace]\n')
        process = cargo(folder, "run", "--offline", "--quiet")
    if process.returncode == 0 and process.stdout != promised:
        process.returncode = 1
    return [*cases, single("readme_example_runs_on_the_packages", process)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cargo")
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("part", choices=("crates", "example", "example_lint", "packages"))
    parser.add_argument("--program", type=pathlib.Path, help="the example, built")
    report.add_option(parser)
    options = parser.parse_args()
    more = [options.program.resolve()] if options.program else []
    cargo = Cargo(options.cargo, options.root)
    # The example was built before.
    with (contextlib.nullcontext() if options.program else
          shared_target.turn(os.environ["CARGO_TARGET_DIR"], options.root.resolve())):
        cases = globals()[options.part](cargo, *more)
    return report.write(cases, options.gtest_output)


if __name__ == "__main__":
    sys.exit(main())
