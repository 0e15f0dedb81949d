# SPDX-License-Identifier: Apache-2.0
"""The examples in numpy: texts do not depend on how blocks are shared, read and taken away, and an
engine's own kernels find K and V in a pool of Quire's."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "examples" / "python" / "numpy_engine.py"
WEIGHTS = pathlib.Path(os.environ.get("QUIRE_WEIGHTS") or ROOT.parent / "shared" / "weights")
TRAINED = ["--weights", str(WEIGHTS / "stories260K.bin"),
           "--tokenizer", str(WEIGHTS / "tok512.bin")]


def run(*options):
    result = subprocess.run([sys.executable, PROGRAM, *options], capture_output=True, timeout=100)
    if result.returncode != 0:
        raise AssertionError(result.stderr.decode())
    return result.stdout


def counts(*options):
    return json.loads(run("--json", *options))


@unittest.skipUnless((WEIGHTS / "stories260K.bin").exists(),
                     f"no stories260K.bin in {WEIGHTS}; name its folder with QUIRE_WEIGHTS")
class Trained(unittest.TestCase):
    def test_text_is_golden_in_both_layouts(self):
        golden = (WEIGHTS / "stories260K_greedy_256.txt").read_bytes()
        for layout in ("vllm", "flashinfer"):
            with self.subTest(layout=layout):
                self.assertEqual(run(*TRAINED, "--layout", layout), golden)


class Seeded(unittest.TestCase):
    STEPS = ("--steps", "96")

    def setUp(self):
        self.text = counts(*self.STEPS)["texts"][0]
        self.assertEqual(len(self.text), 96)

    def test_samples_share_and_are_preempted(self):
        tight = counts(*self.STEPS, "--samples", "6", "--pool-blocks", "20", "--block-tokens", "8",
                       "--layout", "flashinfer")
        self.assertEqual(tight["texts"], [self.text] * 6)
        self.assertGreater(tight["preemptions"], 0)
        self.assertGreater(tight["hit_tokens"], 0)

    def test_fork_goes_on_alike(self):
        forked = counts(*self.STEPS, "--fork-at", "21", "--block-tokens", "8")
        self.assertEqual(forked["texts"], [self.text] * 2)
        self.assertEqual((forked["forks"], forked["copies_on_write"]), (1, 1))

    def test_pool_that_is_too_small_is_said(self):
        with self.assertRaisesRegex(AssertionError, "more blocks"):
            run(*self.STEPS, "--pool-blocks", "4", "--block-tokens", "8")


class OwnKernels(unittest.TestCase):
    def test_they_read_and_write_as_quires_do(self):
        result = subprocess.run([sys.executable, PROGRAM.with_name("own_kernels.py")],
                                capture_output=True, timeout=100, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
