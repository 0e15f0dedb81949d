# SPDX-License-Identifier: Apache-2.0
"""run_test: the gate of ./dev test coverage can fail."""

import collections
import unittest

import run


def counts(lines, branches):
    return collections.Counter(line_covered=lines, line_total=1000, branch_covered=branches,
                               branch_total=1000)


class Gate(unittest.TestCase):
    def test_is_open_at_what_is_wanted(self):
        self.assertEqual(run.too_little(counts(950, 900)), [])

    def test_is_shut_below(self):
        self.assertEqual(run.too_little(counts(949, 900)), ["94.9 % of lines, 95 % are wanted"])
        self.assertEqual(run.too_little(counts(1000, 899)),
                         ["89.9 % of branches, 90 % are wanted"])


if __name__ == "__main__":
    unittest.main()
