# SPDX-License-Identifier: Apache-2.0
"""mutants_test: every mutant can be planted in today's sources, and the gate can fail.

Plants nothing and builds nothing: ./dev test mutation does that.
"""

import json
import os
import pathlib
import tempfile
import unittest

import mutants as planted
import run

TEXT = "#pragma once\nint least(int a, int b) {\n    return a < b ? a : b;\n}\n"


def mutant(old, new, number=1, name="m"):
    return planted.Mutant(number, name, "undo", "core/x.hpp", "why", old, new)


class List(unittest.TestCase):
    def test_all_of_it_can_be_planted_today(self):
        texts = planted.planted_files(planted.read())
        self.assertIn(planted.SWITCH, texts)
        for name, text in texts.items():
            self.assertNotRegex(text, r"\bMUTANT\b", name)

    def test_has_sixty_mutants_and_more(self):
        self.assertGreaterEqual(len(planted.read()), 60)


class Planting(unittest.TestCase):
    def test_switches_on_the_number(self):
        text = planted.planted(TEXT, [mutant("a < b", "MUTANT ? a <= b : a < b", 7)])
        self.assertIn("return (::quire::planted_mutant == 7) ? a <= b : a < b ? a : b;", text)

    def test_refuses_a_text_that_is_not_there_once(self):
        for old in ("a > b", "int"):
            with self.assertRaisesRegex(planted.Bad, "occurs"):
                planted.planted(TEXT, [mutant(old, "MUTANT")])

    def test_refuses_two_mutants_of_one_text(self):
        with self.assertRaisesRegex(planted.Bad, "replace the same text"):
            planted.planted(TEXT, [mutant("a < b", "MUTANT"), mutant("b ? a", "MUTANT", 2)])

    def test_refuses_files_beside_core_and_abi(self):
        outside = mutant("a", "MUTANT")._replace(file="tests/mutation/run.py")
        with self.assertRaisesRegex(planted.Bad, "no file of core"):
            planted.planted_files([outside])


class Stages(unittest.TestCase):
    @unittest.skipUnless("QUIRE_TEST_BUILD" in os.environ, "QUIRE_TEST_BUILD names no build")
    def test_name_tests_that_there_are(self):
        listed = pathlib.Path(os.environ["QUIRE_TEST_BUILD"], "meson-info", "intro-tests.json")
        there = {test["name"] for test in json.loads(listed.read_text())}
        self.assertEqual([], [name for stage in run.STAGES for name in stage if name not in there])


class Verdict(unittest.TestCase):
    def verdict(self, *results):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "testlog.json")
            log.write_text("".join(json.dumps(result) + "\n" for result in results))
            return run.first_failure(log)

    def test_is_empty_when_all_pass(self):
        passed = {"name": "quire:unit / quire:unit_0", "result": "OK", "stdout": ""}
        self.assertEqual(self.verdict(passed, {**passed, "result": "SKIP"}), "")

    def test_names_the_case_that_failed(self):
        self.assertEqual(
            self.verdict({"name": "unit - quire:unit_0", "result": "FAIL",
                          "stdout": "[  FAILED  ] Undo.x (3 ms)\n"}), "unit_0: Undo.x")

    def test_counts_a_test_that_hangs_as_one_that_noticed(self):
        self.assertEqual(self.verdict({"name": "sim - quire:sim", "result": "TIMEOUT",
                                       "stdout": ""}), "sim: timeout")


if __name__ == "__main__":
    unittest.main()
