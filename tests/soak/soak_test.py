# SPDX-License-Identifier: Apache-2.0
"""soak_test: a soak of a few seconds passes, and each planted fault is noticed for what it is."""

import json
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import numpy as np

import readings
from integer_model import IntegerModel, WrongText

SOAK = pathlib.Path(__file__).with_name("soak.py")


def start(*arguments):
    return subprocess.Popen([sys.executable, SOAK, "--json", *arguments], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def ended(process):
    """(exit status, report, stderr)"""
    out, err = process.communicate(timeout=60)
    return process.returncode, json.loads(out), err


class Run(unittest.TestCase):
    def test_of_a_few_seconds_passes(self):
        status, report, err = ended(start("--minutes", "0.03", "--seed", "3"))
        self.assertEqual(status, 0, err)
        self.assertGreater(report["counts"]["texts compared, whole"], 20)
        self.assertEqual(report["complaints"], [])

    def test_that_is_interrupted_reports_what_it_saw(self):
        process = start("--minutes", "5")
        self.assertIn("Ctrl-C ends it", process.stderr.readline())
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        status, report, err = ended(process)
        self.assertEqual(status, 0, err)
        self.assertTrue(report["interrupted"])
        self.assertGreater(report["counts"]["steps"], 0)


class Planted(unittest.TestCase):
    def found(self, *plants):
        arguments = [word for plant in plants for word in ("--plant", plant)]
        status, report, _ = ended(start("--minutes", "0.02", *arguments))
        self.assertEqual(status, 1)
        return "\n".join(report["complaints"] + report["errors"])

    def test_whatever_each_text_leaves_is_found(self):
        found = self.found("leak", "memory", "descriptor", "thread")
        for complaint in (r"[1-9]\d* sequences at the end", "resident_bytes grew",
                          "malloc_bytes grew", "descriptors grew", "threads grew",
                          "descriptors after everything was closed"):
            with self.subTest(complaint):
                self.assertRegex(found, complaint)

    def test_one_wrong_token_is_found(self):
        self.assertRegex(self.found("text"), "token .* the dense run's is")


class Slopes(unittest.TestCase):
    @staticmethod
    def of(seconds, **values):
        """The slopes of a run whose values are functions of its seconds."""
        still = {"resident_bytes": 60 << 20, "malloc_bytes": 8 << 20, "cache_bytes": 1 << 20,
                 "descriptors": 5, "threads": 36}
        names = readings.Reading.__dataclass_fields__
        taken = []
        for at in range(0, seconds, 5):
            fields = {**{name: 0 for name in names}, **still, "seconds": at}
            taken.append(readings.Reading(**{**fields, **{name: int(of(at)) for name, of
                                                          in values.items()}}))
        return readings.growth(taken)[1]

    def test_nothing_grows_in_a_flat_run_with_noise(self):
        self.assertEqual(self.of(1800, resident_bytes=lambda at: (60 << 20) + at % 35 * 9000), [])

    def test_growth_of_a_mebibyte_in_five_minutes_is_found(self):
        found = self.of(1800, malloc_bytes=lambda at: (8 << 20) + at * (1 << 20) / 300)
        self.assertEqual(len(found), 1)
        self.assertIn("malloc_bytes grew by 2.9", found[0])

    def test_warm_up_is_no_growth(self):
        self.assertEqual(self.of(1800, malloc_bytes=lambda at: min(at, 800) << 20), [])

    def test_one_descriptor_more_is_found(self):
        found = self.of(600, descriptors=lambda at: 5 + (at > 500))
        self.assertEqual(len(found), 1)
        self.assertIn("descriptors grew by 1", found[0])

    def test_few_readings_are_refused(self):
        self.assertIn("too few", self.of(30)[0])


class Dense(unittest.TestCase):
    """The dense run, against attention written down as its definition says."""

    def test_is_attention_over_the_whole_text(self):
        model = IntegerModel(5)
        tokens = np.random.default_rng(6).integers(0, 512, 70)
        keys, values = {}, {}

        def attend(layer, k, v, q):
            scores = np.einsum("qhd,khd->hqk", q, k).astype(np.float64) / 4
            places = np.arange(len(k))
            hidden = places[None, :] > places[:, None]
            if layer == 2:
                hidden |= places[None, :] <= places[:, None] - 24
            scores[:, hidden] = -np.inf
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            return np.einsum("hqk,khd->qhd", weights, v).astype(np.float32)

        paged = model.forward(np.full(70, 2), tokens, np.arange(70), attend)
        self.assertEqual(paged.tolist(), model.dense(2, tokens).tolist())

    def test_any_other_token_changes_what_follows(self):
        model = IntegerModel(5)
        tokens = np.random.default_rng(7).integers(0, 512, 64)
        right = model.dense(1, tokens)
        for place in range(64):
            wrong = tokens.copy()
            wrong[place] = (wrong[place] + 1) % 512
            changed = (model.dense(1, wrong) != right)[place:]
            self.assertTrue(changed[:2].any(), place)

    def test_another_tenants_text_is_another(self):
        model = IntegerModel(5)
        tokens = np.random.default_rng(8).integers(0, 512, 64)
        self.assertFalse((model.dense(1, tokens) == model.dense(2, tokens))[4:].any())

    def test_wrong_token_is_named(self):
        model = IntegerModel(5)
        tokens = [1, 2, 3]
        for _ in range(8):
            tokens.append(int(model.dense(0, tokens)[-1]))
        self.assertEqual(model.compare(0, tokens, {0, 1, 2}), 8)
        tokens[6] ^= 1
        with self.assertRaisesRegex(WrongText, "token 6 of tenant 0"):
            model.compare(0, tokens, {0, 1, 2})


if __name__ == "__main__":
    unittest.main()
