# SPDX-License-Identifier: Apache-2.0
#
# step: prints one line on standard error per thing done, and the whole log only if it failed.
#
# Sourced by the scripts beside it. Standard output stays untouched: it belongs to the program that
# ./dev was asked to run.

fail() { # MESSAGE...: what went wrong and what to do
    printf 'dev: %s\n' "$@" >&2
    exit 1
}

step() { # TEXT COMMAND...: runs the command with its output in a log
    local text=$1 log
    shift
    printf '%s ...\n' "$text" >&2
    log=$(mktemp "${TMPDIR:-/tmp}/quire-step.XXXXXX")
    if "$@" >"$log" 2>&1 </dev/null; then
        rm -f "$log"
        return 0
    fi
    tail -n 60 "$log" >&2
    printf 'dev: %s failed; full log: %s\n' "$text" "$log" >&2
    return 1
}
