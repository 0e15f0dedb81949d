# SPDX-License-Identifier: Apache-2.0
"""overhead: the cost of a step of 256 sequences in each language beside the same step in C.

    overhead.py C_PROGRAM [LANGUAGE COMMAND...]... [--json] [--rounds N] [--steps N]

All programs run at the same time and alternate their steps, so that a disturbance affects all of
them; it prints medians over the rounds. A language's COMMAND ends at the next "--".
"""

import json
import statistics
import subprocess
import sys


def split(arguments):
    """{language: command}, and the other options."""
    commands, name = {}, None
    options = {"--rounds": 30, "--steps": 100, "--json": False}
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word == "--json":
            options[word] = True
        elif word in options:
            at += 1
            options[word] = int(arguments[at])
        elif word == "--":
            name = None
        elif name is None:
            name, commands[word] = word, []
        else:
            commands[name].append(word)
        at += 1
    return commands, options


def measure(commands, rounds, steps):
    """{language: median nanoseconds per step}"""
    programs = {name: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       text=True) for name, command in commands.items()}

    def take(program, count):
        program.stdin.write(f"{count}\n")
        program.stdin.flush()
        return float(program.stdout.readline())

    for program in programs.values():
        take(program, steps)
    figures = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            figures[name].append(take(program, steps))
    for program in programs.values():
        program.stdin.close()
        program.wait()
    return {name: statistics.median(values) for name, values in figures.items()}


def main():
    if "--help" in sys.argv or "-h" in sys.argv:
        print("usage: ./dev bench bindings [--rounds N] [--steps N] [--json]\n\n"
              "A decode step of 256 sequences in each built language, compared with C.\n"
              "rounds (30) and steps of each (100): 4,000 steps in all at most.\n\n"
              "example: ./dev bench bindings --json")
        return
    commands, options = split(sys.argv[1:])
    if (options["--rounds"] + 1) * options["--steps"] > 4096:
        sys.exit("--rounds times --steps is above 4,000: the pool has no room for them")
    medians = measure(commands, options["--rounds"], options["--steps"])
    base = medians["c"]
    result = {name: {"step_us": ns / 1e3, "overhead_us": (ns - base) / 1e3,
                     "overhead_percent": (ns / base - 1) * 100} for name, ns in medians.items()}
    if options["--json"]:
        print(json.dumps({"sequences": 256, "languages": result}))
        return
    print("language   step, us   over C, us   over C")
    for name, row in result.items():
        print(f"{name:8} {row['step_us']:10.2f} {row['overhead_us']:12.2f} "
              f"{row['overhead_percent']:6.0f} %")


if __name__ == "__main__":
    main()
