# SPDX-License-Identifier: Apache-2.0
"""compare: the script's operations give the same bytes in every language.

    compare.py [--seeds=N] [--gtest_output=xml:FILE] LANGUAGE COMMAND... [-- LANGUAGE COMMAND...]...

The others are compared with the first language.
"""

import argparse
import hashlib
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import make_script  # noqa: E402
import report  # noqa: E402

LENGTH = 3000


def split(words):
    """{language: command}"""
    commands, name = {}, None
    for word in words:
        if word == "--":
            name = None
        elif name is None:
            name, commands[word] = word, []
        else:
            commands[name].append(word)
    return commands


def transcript(command, path):
    process = subprocess.run([*command, path], capture_output=True, text=True, timeout=100)
    return process.stdout if process.returncode == 0 else process.stdout + process.stderr


def first_difference(wanted, found, script):
    for i, (ours, theirs) in enumerate(zip(wanted.splitlines() + [""], found.splitlines() + [""])):
        if ours != theirs:
            done = script[i] if i < len(script) else "the end"
            return f"operation {i + 1}, {done}: '{ours}', but here '{theirs}'"
    return "one is longer"


def does_something(lines):
    """A script whose operations are all refused would compare well."""
    outcomes = [line.split()[1] for line in lines]
    return min(outcomes.count(word) for word in ("ok", "busy", "argument", "none", "short")) > 0


def run_seed(commands, seed, folder, done):
    """Adds to `done` the names of the operations that the cache did."""
    script = make_script.make(seed, LENGTH)
    path = pathlib.Path(folder, f"{seed}.txt")
    path.write_text("\n".join(script) + "\n")
    found = {name: transcript(command, path) for name, command in commands.items()}
    reference, wanted = next(iter(found.items()))
    done |= {op.split()[0] for op, line in zip(script, wanted.splitlines())
             if line.split()[1] == "ok"}
    cases = []
    for name, text in found.items():
        digest = hashlib.sha256(text.encode()).hexdigest()
        is_good = text == wanted and len(text.splitlines()) == len(script)
        message = "" if is_good else first_difference(wanted, text, script)
        if name == reference and not does_something(text.splitlines()):
            is_good, message = False, "some outcomes never occurred:\n" + text[-2000:]
        print(f"seed {seed}: {name:8} {digest}")
        cases.append(report.Case("Script", f"{name}_seed_{seed}", "passed" if is_good else "failed",
                                 0, message))
    return cases


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    report.add_option(parser)
    # argparse would consume a "--" itself.
    own = [word for word in sys.argv[1:] if word.startswith(("--seeds=", "--gtest_output="))]
    options = parser.parse_args(own)
    commands = split([word for word in sys.argv[1:] if word not in own])
    done = set()
    with tempfile.TemporaryDirectory() as folder:
        cases = [case for seed in range(1, options.seeds + 1)
                 for case in run_seed(commands, seed, folder, done)]
    missing = make_script.OF_LEASES - done
    cases.append(report.Case("Script", "leases_do_something", "failed" if missing else "passed", 0,
                             f"never done: {sorted(missing)}" if missing else ""))
    return report.write(cases, options.gtest_output)


if __name__ == "__main__":
    sys.exit(main())
