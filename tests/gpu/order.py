# SPDX-License-Identifier: Apache-2.0
"""order: which parts ./dev gpu runs first, that slow parts leave others their reserved seconds,
that no process outlives or holds up a part, and how outputs are read.

    order.py
"""

import argparse
import contextlib
import io
import json
import pathlib
import re
import runpy
import sys
import tempfile
import time

GPU = runpy.run_path(str(pathlib.Path(__file__).with_name("gpu.py")))
DONE = {"case": "good", "dtype": "f16", "clock": "device", "milliseconds": 0.02, "gbps": 1.0,
        "share_of_stream": 0.5, "plan_us": 1.0, "call_us": 20.0}
OPTIONS = argparse.Namespace(out=None, short=False, backend=None)


def slow_parts_leave_others_their_time():
    Part = GPU["Part"]
    parts = [Part("slow", ["sleep", "60"], 60), Part("kept", ["sleep", "0.5"], 60, kept=6),
             Part("none is kept of this", ["true"], 60, why_not="no reason", kept=100),
             Part("late", ["sleep", "60"], 60)]
    outcomes = {part.name: outcome for part, outcome in GPU["run_parts"](parts, 12, OPTIONS)}
    slow, kept = outcomes["slow"], outcomes["kept"]
    assert slow.outcome == "failed" and 5 < slow.seconds < 11, slow
    assert kept.outcome == "passed", kept
    # The time that it did not use is left for later parts.
    assert outcomes["late"].seconds > 1, outcomes["late"]


def at_most_half_of_the_time_is_kept():
    Part = GPU["Part"]
    parts = [Part("slow", ["sleep", "60"], 60), Part("kept", ["true"], 60, kept=60)]
    outcomes = [outcome for _, outcome in GPU["run_parts"](parts, 11, OPTIONS)]
    assert 5 < outcomes[0].seconds < 10, outcomes
    assert outcomes[1].outcome == "passed", outcomes


def correctness_comes_first_and_figures_have_time():
    found = {"cuda": ["one"], "vulkan": ["one"]}
    parts = list(GPU["parts_of"](found, OPTIONS))
    names = [part.name for part in parts]
    assert names[:5] == ["conformance cuda", "decode cuda", "prefill cuda", "ceilings and peers",
                         "engine cuda"], names
    assert names.index("conformance vulkan") < names.index("beyond 4 GiB cuda"), names
    # The vendor of the other order may come second, whatever the order of the options.
    options = argparse.Namespace(out=None, short=False, backend=["vulkan", "cuda"])
    assert next(GPU["parts_of"](found, options)).name == "conformance cuda"
    kept = {part.name for part in parts if part.kept}
    assert {"decode cuda", "prefill cuda", "engine cuda", "graphs cuda", "decode vulkan"} <= kept
    # In nine minutes the whole reserve fits, not just a share of it.
    assert sum(part.kept for part in parts) <= 9 * 60 / 2


def sanitizers_have_to_have_looked():
    Part = GPU["Part"]
    part = Part("memcheck cuda", [], 60, "sanitizer")
    summary = "========= ERROR SUMMARY: 0 errors\n"
    cases = "[  PASSED  ] 30 tests.\n"
    figures = GPU["figures_of"](part, cases + summary)
    assert figures == {"passed": 30, "summary": "ERROR SUMMARY: 0 errors"}, figures
    for text in (cases, cases + summary.replace("0", "2"), "[  PASSED  ] 0 tests.\n" + summary):
        try:
            figures = GPU["figures_of"](part, text)
        except TypeError:
            continue
        raise AssertionError(f"{text!r} was taken for {figures}")


def nobody_holds_up_a_part():
    """Not even a process that left the group and holds the outputs."""
    for last, wanted in (("sleep 20", None), ("echo done", 0)):
        start = time.monotonic()
        code, out, _ = GPU["ended"](["sh", "-c", f"setsid sleep 15 & {last}"], 2)
        assert code == wanted and time.monotonic() - start < 8, (last, code)
        assert out == ("done\n" if code == 0 else ""), out


def is_running(pid):
    try:
        return pathlib.Path("/proc", pid, "stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def nobody_outlives_a_part():
    code, out, _ = GPU["ended"](["sh", "-c", "sleep 30 & echo $!"], 10)
    assert code == 0, code
    end = time.monotonic() + 5
    while is_running(out.strip()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(out.strip()), out


def peers_end_within_what_is_kept():
    part = next(GPU["peers"](OPTIONS))
    text = pathlib.Path(__file__).with_name("peers.py").read_text()
    grace = float(re.search(r"^GRACE_SECONDS = (\d+)$", text, re.M)[1])
    seconds = float(part.command[part.command.index("--seconds") + 1])
    assert seconds + grace + 3 <= part.seconds <= part.kept, part


def ended_cases_count_when_a_part_is_stopped():
    """A case that was cut off does not, and no line of a case is quoted as an error."""
    lines = [json.dumps(DONE), "an error", '{"case": "cut']
    with tempfile.TemporaryDirectory() as folder:
        options = argparse.Namespace(out=pathlib.Path(folder), short=False, backend=None)
        script = "; ".join(f"echo '{line}' >&2" for line in lines) + "; exec sleep 30"
        part = GPU["Part"]("decode cuda", ["sh", "-c", script], 1, "cases")
        outcome = GPU["run"](part, 60, options)
        log = (options.out / "gpu.log").read_text()
    assert outcome.outcome == "failed" and "timed out" in outcome.said, outcome
    assert "an error" in outcome.said and "milliseconds" not in outcome.said, outcome
    assert GPU["cases_of"]([outcome], "decode") == [("cuda", DONE)], outcome
    assert "== decode cuda: sh" in log and "an error" in log, log
    case = {"outcome": "yes", "seconds": 1.0}
    errors = "\n".join(json.dumps({"case": name, **case, **more}) for name, more in
                       (("A.a", {}), ("A.b", {"outcome": "no"}), ("B.a", {})))
    part = GPU["Part"]("conformance cuda", [], 60, "counts")
    figures = GPU["figures_of_failed"](part, "", errors)
    assert figures["counts"]["cases"] == {"passed": 2, "failed": 1, "skipped": 0}, figures
    assert figures["failed"] == ["A.b"], figures


def counters_are_read_or_skipped():
    Part = GPU["Part"]
    names = ["ID", "Process Name", "Kernel Name", *GPU["METRICS"]]
    rows = [names, ["", "", "", *("unit" for _ in GPU["METRICS"])],
            ["0", "bench", "quire_kv_write", *("1,234" for _ in GPU["METRICS"])]]
    text = "==PROF== Connected\n{}\n" + "\n".join(
        ",".join(f'"{field}"' for field in row) for row in rows)
    figures = GPU["figures_of"](Part("counters cuda", [], 60, "counters"), text)
    assert figures["launches"][0]["Kernel Name"] == "quire_kv_write", figures
    assert figures["launches"][0][GPU["METRICS"][0]] == "1,234", figures
    assert set(figures["units"]) == set(GPU["METRICS"]), figures
    part = Part("counters cuda", ["sh", "-c", "echo ==ERROR== ERR_NVGPUCTRPERM; exit 1"], 60,
                "counters")
    outcome = GPU["run"](part, 60, OPTIONS)
    assert outcome.outcome == "skipped" and "counters" in outcome.said, outcome


def good_cases_count_beside_failed_ones():
    bad = {"case": "bad", "dtype": "bf16", "milliseconds": None, "failed": "out of memory"}
    text = json.dumps({"cases": [DONE, bad]})
    part = GPU["Part"]("decode cuda", ["sh", "-c", "echo \"$0\"; exit 1", text], 10, "cases")
    outcome = GPU["run"](part, 60, OPTIONS)
    assert outcome.outcome == "failed", outcome
    assert "bad bf16: out of memory" in outcome.said, outcome
    assert GPU["cases_of"]([outcome], "decode") == [("cuda", DONE)], outcome


def printed(case):
    outcome = GPU["Outcome"]("decode cuda", "passed", figures={"cases": [case]})
    with contextlib.redirect_stdout(io.StringIO()) as text:
        GPU["print_decode"]([outcome])
    return text.getvalue()


def waiting_is_marked():
    text = printed(DONE)
    assert "0.020* " in text and "waiting" in text, text
    for other in ({"call_us": 19.0}, {"clock": "host"}):
        assert "*" not in printed({**DONE, **other}), other


def main():
    nobody_holds_up_a_part()
    nobody_outlives_a_part()
    peers_end_within_what_is_kept()
    good_cases_count_beside_failed_ones()
    ended_cases_count_when_a_part_is_stopped()
    counters_are_read_or_skipped()
    waiting_is_marked()
    sanitizers_have_to_have_looked()
    slow_parts_leave_others_their_time()
    at_most_half_of_the_time_is_kept()
    correctness_comes_first_and_figures_have_time()


if __name__ == "__main__":
    sys.exit(main())
