# SPDX-License-Identifier: Apache-2.0
"""A checkout does not take another one's crates for its own where both build in one folder."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bindings" / "rust" / "tools"))

import shared_target  # noqa: E402

HASH = "0123456789abcdef"


class Turns(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.prints = pathlib.Path(self.place.name, "debug", ".fingerprint")

    def build(self, *crates):
        for crate in crates:
            (self.prints / f"{crate}-{HASH}").mkdir(parents=True, exist_ok=True)

    def built(self):
        return sorted(entry.name.rpartition("-")[0] for entry in self.prints.iterdir())

    def test_own_crates_are_forgotten_when_another_checkout_had_the_folder(self):
        with shared_target.turn(self.place.name, "/one"):
            self.build("quire", "quire-sys", "serde", "quire-like")
        with shared_target.turn(self.place.name, "/one"):
            self.assertEqual(self.built(), ["quire", "quire-like", "quire-sys", "serde"])
        with shared_target.turn(self.place.name, "/two"):
            self.assertEqual(self.built(), ["quire-like", "serde"])
            self.build("quire")
        with shared_target.turn(self.place.name, "/one"):
            self.assertEqual(self.built(), ["quire-like", "serde"])

    def test_every_crate_of_ours_is_known(self):
        for manifest in ROOT.glob("**/Cargo.toml"):
            # The judge of events is built elsewhere, by hand.
            if {"build", "dynamo"} & set(manifest.relative_to(ROOT).parts):
                continue
            names = [line.split('"')[1] for line in manifest.read_text().splitlines()
                     if line.startswith("name = ")]
            for name in names[:1]:
                self.assertRegex(f"{name}-{HASH}", shared_target.OWN)


if __name__ == "__main__":
    unittest.main()
