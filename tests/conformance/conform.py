# SPDX-License-Identifier: Apache-2.0
"""conform: `quire conform` as a vendor runs it, and a proof that the suite detects faults.

    conform.py QUIRE SUITE WRONG_BACKEND README

Each fault of tests/conformance/wrong must fail the run, in a case that covers it; the same plugin
without a fault must pass. README is backends/README.md, whose table of stages must be true.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

QUIRE, SUITE, WRONG, README = sys.argv[1:5]

def random_over(what):
    return f"OptionTest.random_shapes_over_{what}_agree_with_the_oracle_whatever_the_poison"


# fault, the cases that run, one that must fail
FAULTS = [
    ("wrong_page", "AttentionTest.random_shapes_over_f16_*",
     "AttentionTest.random_shapes_over_f16_agree_with_the_oracle_whatever_the_poison"),
    ("write_beside", "AttentionTest.scale_*",
     "AttentionTest.scale_is_the_plans_or_one_over_the_root_of_the_head_dim"),
    ("read_poison", "AttentionTest.random_*:AttentionTest.long_row_*",
     "AttentionTest.random_shapes_over_f32_agree_with_the_oracle_whatever_the_poison"),
    ("ignore_window", "AttentionTest.window_*", "AttentionTest.window_sees_only_its_newest_keys"),
    ("ignore_scale", "AttentionTest.scale_*",
     "AttentionTest.scale_is_the_plans_or_one_over_the_root_of_the_head_dim"),
    ("vary_with_batch", "InvarianceTest.row_*",
     "InvarianceTest.row_gives_the_same_bits_alone_and_in_a_batch"),
    ("vary_with_batch", "InvarianceTest.prompt_*",
     "InvarianceTest.prompt_gives_the_same_bits_alone_and_among_short_rows"),
    ("vary_with_batch", "InvarianceTest.short_row_*",
     "InvarianceTest.short_row_gives_the_same_bits_alone_and_beside_a_prompt"),
    ("vary_with_batch", "InvarianceTest.keys_*",
     "InvarianceTest.keys_that_are_no_numbers_touch_no_query_of_a_prompt_before_them"),
    ("vary_with_batch", "InvarianceTest.random_*",
     "InvarianceTest.random_schedules_give_the_bits_of_each_row_alone"),
    ("widen_sunk_window", "OptionTest.window_*",
     "OptionTest.window_keeps_its_sinks_and_no_key_between"),
    ("forget_sink_tokens", "OptionTest.window_*",
     "OptionTest.window_keeps_its_sinks_and_no_key_between"),
    ("widen_chunk", "OptionTest.chunk_*", "OptionTest.chunk_begins_at_multiples_of_its_size"),
    ("latent_tail", "OptionTest.*_latent_*", random_over("latent_pools")),
    ("cross_causal", "OptionTest.cross_*", "OptionTest.cross_row_may_have_more_queries_than_keys"),
    ("forget_soft_cap", "OptionTest.*_soft_caps_*", random_over("soft_caps")),
    ("cap_after_mask", "OptionTest.soft_cap_*", "OptionTest.soft_cap_comes_before_the_mask"),
    ("turn_slopes_over", "OptionTest.*_alibi_*", random_over("alibi_slopes")),
    ("stand_where_it_lies", "OptionTest.alibi_*",
     "OptionTest.alibi_counts_positions_of_masked_keys_and_not_places"),
    ("count_sinks_twice", "OptionTest.*_sink_logits_*", random_over("sink_logits")),
    ("shift_mask", "OptionTest.*_masks_*", random_over("masks_of_trees")),
    ("weigh_hidden_keys", "OptionTest.*_masks_*", random_over("masks_of_bits")),
    ("share_a_block_more", "OptionTest.*_shared_*", random_over("shared_prefixes")),
    ("swap_pairing", "RopeTest.*",
     "RopeTest.random_shapes_over_ropes_in_pairs_agree_with_the_formula"),
    ("forget_to_turn_q", "RopeTest.*",
     "RopeTest.random_shapes_over_ropes_in_halves_agree_with_the_formula"),
    ("ignore_an_lse", "MergeTest.*",
     "MergeTest.random_shapes_over_merges_agree_with_the_formula_whatever_empty_parts_hold"),
    ("weigh_empty_parts", "MergeTest.*",
     "MergeTest.parts_that_saw_no_key_give_zeros_and_minus_infinity"),
    ("move_backwards", "MoveTest.*", "MoveTest.chain_moves_one_after_another"),
    ("move_one_layer", "MoveTest.*",
     "MoveTest.random_moves_in_random_pools_change_nothing_beside"),
    ("say_yes", "AnswerTest.*", "AnswerTest.query_and_plan_agree_on_random_shapes"),
    ("truncate", "KvWriteTest.*", "KvWriteTest.every_value_is_rounded_to_the_nearest_even"),
    ("scale_of_a_neighbour", "QuantisedTest.random_*_int8_*_token_and_head_*",
     "QuantisedTest.random_shapes_over_int8_scaled_per_token_and_head_agree_with_the_oracle"),
    ("scale_of_a_neighbour", "QuantisedTest.random_*_int4_*_per_head_*",
     "QuantisedTest.random_shapes_over_int4_scaled_per_head_agree_with_the_oracle"),
    ("scale_of_a_neighbour", "QuantisedTest.output_*_int8_*",
     "QuantisedTest.output_over_int8_agrees_with_that_over_the_values_given"),
    ("leave_scales_behind", "MoveTest.*",
     "MoveTest.moved_token_takes_its_codes_and_scales_along"),
    ("cut_codes", "QuantisedWriteTest.*",
     "QuantisedWriteTest.every_row_gets_its_own_scale_and_codes_whatever_is_in_it"),
    ("swap_halves", "QuantisedWriteTest.*",
     "QuantisedWriteTest.every_value_becomes_the_nearest_code_of_a_static_scale"),
    ("measure_before_the_rope", "AmaxTest.*", "AmaxTest.key_is_measured_after_its_rope"),
    ("lose_a_nan", "AmaxTest.*", "AmaxTest.infinity_is_above_all_numbers_and_a_nan_above_it"),
    ("signal_at_once", "QueueTest.held_*",
     "QueueTest.held_queue_runs_nothing_and_holds_up_nobody"),
    ("fail_late", "FenceTest.*",
     "FenceTest.queues_that_wait_for_a_failed_one_end_alike_whenever_it_failed"),
    ("copy_beside", "QueueTest.copy_behind_*",
     "QueueTest.copy_behind_a_wait_runs_after_it_and_after_what_was_before"),
    ("drop_last_byte", "CopyTest.large_*", "CopyTest.large_copy_moves_every_byte"),
    ("leak_fence", "LifeTest.*", "LifeTest.shutdown_counts_what_was_not_released"),
    ("leak_fence_and_hide_it", "LifeTest.*",
     "LifeTest.fences_that_come_and_go_leave_no_memory_behind"),
]


def run(*arguments, fault=None, env=None):
    environment = {**os.environ, "QUIRE_CONFORM": SUITE, **(env or {})}
    environment.pop("QUIRE_WRONG", None)
    if fault:
        # Whether a fault is detected must not depend on which random cases this run picks.
        environment.pop("QUIRE_TEST_EFFORT", None)
        environment.pop("QUIRE_TEST_SEED", None)
        environment["QUIRE_WRONG"] = fault
    process = subprocess.run([QUIRE, "conform", *map(str, arguments)], capture_output=True,
                             text=True, stdin=subprocess.DEVNULL, timeout=300, env=environment)
    return process.returncode, process.stdout, process.stderr


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def outcomes(out):
    return {case["name"]: case for case in json.loads(out)["cases"]}


def faults_are_found():
    for fault, only, expected in FAULTS:
        code, out, err = run(WRONG, "--short", "--json", "--only", only, fault=fault)
        expect(out.startswith("{"), f"{fault}: no result: {err}")
        case = outcomes(out)[expected]
        expect(code == 1 and case["outcome"] == "failed", f"{fault} was not seen by {expected}")
        print(f"{fault}: {case['text'].splitlines()[0]}")


def death_is_a_result():
    code, out, _ = run(WRONG, "--json", "--only", "FillTest.*", fault="crash")
    cases = outcomes(out)
    dead = [name for name, case in cases.items() if case["outcome"] == "failed"]
    expect(code == 1 and dead == ["FillTest.nothing_to_fill_is_done"], "one case died")
    print(f"crash: {cases[dead[0]]['text'].splitlines()[0]}")
    expect("signal 6" in cases[dead[0]]["text"], "the report names the signal")
    expect(sum(case["outcome"] == "passed" for case in cases.values()) == len(cases) - 1,
           "the others of its group ran all the same")
    code, out, _ = run(WRONG, "--json", "--only", "FillTest.*", fault="throw")
    text = outcomes(out)["FillTest.nothing_to_fill_is_done"]["text"]
    print(f"throw: {text.splitlines()[0]}")
    expect(code == 1 and "exception" in text and "signal" not in text,
           f"an exception of a plugin, which has a runtime of its own, is caught: {text}")
    code, out, _ = run(WRONG, "--json", "--only", "QueueTest.q*", "--patience", 8, fault="hang")
    cases = outcomes(out)
    text = cases["QueueTest.quiesce_waits_for_every_queue_or_for_the_time"]["text"]
    print(f"hang: {text.splitlines()[0]}")
    expect(code == 1 and "was silent for 8 s" in text, f"a hang is reported as one: {text}")
    expect(cases["QueueTest.queue_waits_for_the_fence_of_another"]["outcome"] == "passed",
           "and the rest ran")


def without_a_fault_it_passes():
    code, out, err = run(WRONG, "--short", "--json")
    result = json.loads(out)
    failed = [case["name"] for case in result["cases"] if case["outcome"] == "failed"]
    expect(code == 0 and result["passed"] and not failed,
           f"the wrapped plugin passes without a fault: {failed}")
    expect(result["random_shapes"] > 0 and 0 < result["largest_error"] <= 1, "shapes are counted")


def missing_musts_are_named():
    code, out, _ = run("null", "--json")
    result = json.loads(out)
    musts = {one["name"] for one in result["capabilities"] if one["need"] == "must"}
    expect(code == 1 and set(result["missing"]) == musts - {"loading"} and len(musts) > 10,
           "null lacks every must but to load")
    code, out, _ = run("null")
    last = out.strip().splitlines()[-1]
    expect(code == 1 and all(name in last for name in result["missing"]), "the verdict names them")
    expect("capabilities: 1 yes, 12 no, 43 skip" in out, "and counts: " + out)
    code, out, _ = run(WRONG, "--json", "--only", "Load.*:FillTest.*", fault="no_fill")
    fills = [one for one in json.loads(out)["capabilities"] if one["name"] == "fills"][0]
    expect(code == 1 and fills["outcome"] == "no" and "fill is NULL" in fills["reason"],
           "a missing function is named")


def stages_are_as_the_page_says():
    rows = re.findall(r"^\| (\d) \|.*`(\d+ yes, \d+ no)", pathlib.Path(README).read_text(), re.M)
    expect([int(stage) for stage, _ in rows] == list(range(6)), f"six stages with counts: {rows}")
    for stage, counts in rows:
        arguments = ("null",) if stage == "0" else (WRONG, "--short")
        code, out, _ = run(*arguments, fault=f"stage_{stage}")
        said = re.search(r"^capabilities: (\d+ yes, \d+ no)", out, re.M).group(1)
        expect(code == 1 and said == counts, f"stage {stage}: the page says {counts}, it is {said}")
        expect(", 0 failed," in out, f"stage {stage}: the implemented parts pass: {out}")


def promise_can_be_left_out():
    code, out, _ = run(WRONG, "--short", "--json", "--only", "InvarianceTest.row_*:Load.*",
                       "--without", "batch invariance", fault="vary_with_batch")
    one = [o for o in json.loads(out)["capabilities"] if o["name"] == "batch invariance"][0]
    expect(code == 0 and one["outcome"] == "not run", "an excluded capability is not run")
    code, _, err = run("cpu", "--without", "fences")
    expect(code == 2 and "must" in err, "a must cannot be left out")


def bad_usage_is_refused(folder):
    not_a_plugin = folder / "plain.so"
    not_a_plugin.write_text("no plugin")
    for arguments, words, status in [
            (("nobody",), "found:", 2),
            ((folder / "none.so",), "No such file", 2),
            (("cpu", "--only", "Nothing.*"), "no case matches", 2),
            (("cpu", "--report", folder / "no" / "report.html"), "cannot be written", 2),
            (("cpu", "--bogus"), "bogus", None),
            (("cpu", "--without", "wings"), "wings", 2)]:
        code, out, err = run(*arguments)
        is_refused = code != 0 if status is None else code == status
        expect(is_refused and words in err and out == "",
               f"{arguments}: {status} and {words!r} on stderr, not {code} and {err!r}")
    code, out, _ = run(not_a_plugin)
    expect(code == 1 and "FAILED" in out, "a file that is no plugin fails, with the reason")
    code, _, err = run("cpu", env={"QUIRE_CONFORM": str(folder / "none")})
    expect(code == 1 and "cannot be run" in err, "a missing suite is reported")
    expect(sorted(os.listdir(folder)) == ["plain.so"], "nothing was left behind")


def suite_that_is_not_there_is_said(folder):
    alone = folder / "bin" / "quire"
    alone.parent.mkdir()
    shutil.copy(QUIRE, alone)
    environment = {key: value for key, value in os.environ.items() if key != "QUIRE_CONFORM"}
    process = subprocess.run([alone, "conform"], capture_output=True, text=True, env=environment)
    expect(process.returncode == 1 and "no conformance suite at" in process.stderr and
           "libgtest-dev" in process.stderr, f"where it is not, and why: {process.stderr}")


def report_is_a_page(folder):
    page = folder / "cpu.html"
    code, _, _ = run("cpu", "--short", "--only", "Load.*:FillTest.*", "--report", page)
    text = page.read_text(encoding="utf-8")
    expect(code == 0 and text.startswith("<!doctype html>") and text.endswith("</html>\n"),
           "the report is a whole page")
    expect("576 / 512" in text and "host processor" in text, "it shows device and matrix")


def help_has_an_example():
    code, out, _ = run("--help")
    expect(code == 0 and "example:" in out, "--help shows an example")


def list_fits_the_cases():
    process = subprocess.run([SUITE, "--check-list"], capture_output=True, text=True)
    expect(process.returncode == 0, "the list of capabilities: " + process.stdout)


help_has_an_example()
list_fits_the_cases()
faults_are_found()
death_is_a_result()
without_a_fault_it_passes()
missing_musts_are_named()
stages_are_as_the_page_says()
promise_can_be_left_out()
with tempfile.TemporaryDirectory() as name:
    bad_usage_is_refused(pathlib.Path(name))
with tempfile.TemporaryDirectory() as name:
    suite_that_is_not_there_is_said(pathlib.Path(name))
with tempfile.TemporaryDirectory() as name:
    report_is_a_page(pathlib.Path(name))
