# SPDX-License-Identifier: Apache-2.0
"""run_test: the machinery of the fuzzer can fail.

    run_test.py CANARY PLANTED

CANARY replays inputs; PLANTED is one that shows the bug planted in it. The replay fails on it, and
where there are no inputs; run.py reads a log of libFuzzer as such, and says where a run failed.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import run

CANARY, PLANTED = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
FOUND = """#2\tINITED cov: 5 ft: 6 corp: 1/1b exec/s: 0 rss: 30Mb
#4096\tNEW    cov: 12 ft: 14 corp: 4/20b lim: 43 exec/s: 0 rss: 31Mb
broken promise: nothing is written past the table
==1== ERROR: libFuzzer: deadly signal
"""
ENDED = FOUND.splitlines(keepends=True)[1] + "stat::number_of_executed_units: 5000\n"


def replay(*inputs):
    return subprocess.run([CANARY, *inputs], capture_output=True, text=True, check=False)


class Replay(unittest.TestCase):
    def test_an_input_that_breaks_a_promise_fails_and_is_named(self):
        process = replay(PLANTED)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn(PLANTED.name, process.stderr)
        self.assertIn("broken promise: nothing is written past the table", process.stderr)

    def test_other_inputs_pass(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "one").write_bytes(b"QC\x01\x0f\x07")
            self.assertEqual(replay(folder).returncode, 0)

    def test_no_input_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(replay(folder).returncode, 1)
            self.assertEqual(replay(folder + "/missing").returncode, 1)


class Log(unittest.TestCase):
    def test_figures_are_the_last_ones(self):
        self.assertEqual(run.read_log(FOUND),
                         {"executions": 4096, "coverage": 12, "features": 14, "corpus": 4})
        self.assertEqual(run.read_log(ENDED)["executions"], 5000)
        self.assertEqual(run.read_log("")["executions"], 0)

    def test_a_broken_promise_is_the_reason(self):
        self.assertEqual(run.reason(FOUND), "broken promise: nothing is written past the table")
        self.assertEqual(run.reason(ENDED), "")


class Kept(unittest.TestCase):
    def test_kept_inputs_are_few_and_small(self):
        inputs = [path for path in (run.HERE / "corpus").rglob("*") if path.is_file()]
        self.assertGreater(len(inputs), 10)
        self.assertLessEqual(max(path.stat().st_size for path in inputs), 4096)
        self.assertLessEqual(sum(path.stat().st_size for path in inputs), 200 << 10)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
