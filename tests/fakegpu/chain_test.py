# SPDX-License-Identifier: Apache-2.0
"""chain_test: the clocks of a warp by itself are those that its dependences need, one kind in turn.

Expectations are sums of the published latencies, written out here.
"""

import sys
import unittest

import chain
import disassembly

CLOCKS = chain.CLOCKS["sm_80"]


def code_of(*lines):
    """A loop of these instructions, and its round."""
    text = "\n".join(f"        /*{16 * index:04x}*/  {line} ;" for index, line in enumerate(lines))
    code = disassembly.of_nvidia(f"""
	.section	.text.planted,"ax",@progbits
.L_x_1:
{text}
        /*1000*/              @P0 BRA `(.L_x_1) ;
        /*1010*/                   EXIT ;
""")["planted"]
    return code, list(range(len(lines) + 1))


def clocks(*lines):
    code, way = code_of(*lines)
    return chain.clocks_of_round(code, way, "sm_80")


class Rounds(unittest.TestCase):
    def test_instructions_that_need_nothing_start_one_per_clock(self):
        lines = [f"FFMA R{10 + i}, R1, R2, R3" for i in range(20)]
        self.assertAlmostEqual(clocks(*lines), 21)

    def test_a_result_is_waited_for(self):
        self.assertAlmostEqual(clocks(*10 * ["FFMA R4, R4, R2, R3"]), 10 * CLOCKS.plain, delta=1.1)
        self.assertAlmostEqual(clocks("MUFU.EX2 R4, R4"), CLOCKS.special)
        self.assertAlmostEqual(clocks("SHFL.BFLY PT, R4, R4, 0x1, 0x1f"), CLOCKS.shuffle)
        self.assertAlmostEqual(clocks("LDS.128 R4, [R4]"), CLOCKS.shared + 3)

    def test_all_registers_of_a_wide_result_are_waited_for(self):
        for register in range(8, 12):
            needs = f"FADD R1, R{register}, R3"
            for load in ("LDSM.16.M88.4 R8, [R1]", "LDS.128 R8, [R1]"):
                self.assertAlmostEqual(clocks(load, needs), CLOCKS.shared + 3 + CLOCKS.plain)
            self.assertAlmostEqual(clocks("HMMA.16816.F32 R8, R1, R20, RZ", needs),
                                   CLOCKS.matrix + CLOCKS.plain)
        self.assertLess(clocks("LDSM.16.M88.4 R8, [R1]", "FADD R20, R12, R3"), 8)

    def test_sums_of_matrices_are_waited_for_and_units_are_busy(self):
        summed = clocks(*4 * ["HMMA.16816.F32 R8, R4, R2, R8"])
        self.assertAlmostEqual(summed, 4 * CLOCKS.matrix)
        apart = clocks(*[f"HMMA.16816.F32 R{20 + 4 * i}, R4, R2, R{20 + 4 * i}" for i in range(8)])
        self.assertAlmostEqual(apart, 8 * CLOCKS.matrix_unit)

    def test_all_registers_that_a_product_reads_are_waited_for(self):
        # Four of the left matrix, two of the right one, four of the sums.
        for register in (*range(20, 24), *range(30, 32), *range(40, 44)):
            before = f"MUFU.EX2 R{register}, R8"
            self.assertAlmostEqual(clocks(before, "HMMA.16816.F32 R8, R20, R30, R40"),
                                   CLOCKS.special + CLOCKS.matrix)
        self.assertAlmostEqual(clocks("MUFU.EX2 R32, R8", "HMMA.16816.F32 R8, R20, R30, R40"),
                               1 + CLOCKS.matrix)

    def test_a_predicate_and_a_condition_are_waited_for(self):
        lines = ("ISETP.NE.AND P1, PT, R4, RZ, PT", "@P1 FADD R4, R5, R6")
        self.assertAlmostEqual(clocks(*lines), 2 * CLOCKS.plain)
        self.assertLess(clocks(lines[0], "FADD R4, R5, R6"), 2 * CLOCKS.plain)

    def test_copies_land_after_the_latency_of_memory(self):
        copy = ("LDGSTS.E.BYPASS.128 [R7], [R2.64]", "LDGDEPBAR")
        self.assertAlmostEqual(clocks(*copy, "DEPBAR.LE SB0, 0x0"), CLOCKS.memory, delta=4)
        # Three groups on their way: each round waits for a copy of the third round before it.
        self.assertAlmostEqual(clocks(*copy, "DEPBAR.LE SB0, 0x3"), CLOCKS.memory / 4, delta=3)

    def test_what_is_around_a_loop_is_the_shortest_way(self):
        code = disassembly.of_nvidia("""
	.section	.text.planted,"ax",@progbits
        /*0000*/                   LDG.E R4, [R2.64] ;
        /*0010*/              @P0 EXIT ;
        /*0020*/              @P1 BRA `(.L_x_2) ;
        /*0030*/                   EXIT ;
.L_x_1:
        /*0040*/                   FADD R4, R4, R4 ;
        /*0050*/              @P2 BRA `(.L_x_1) ;
        /*0060*/                   FADD R5, R4, R4 ;
        /*0070*/                   EXIT ;
.L_x_2:
        /*0080*/                   MUFU.EX2 R4, R4 ;
        /*0088*/              @P3 LDG.E R4, [R2.64] ;
        /*0090*/                   BRA `(.L_x_1) ;
""")["planted"]
        before, after = chain.clocks_around(code, code.hot_loop("FADD"), "sm_80")
        # No way goes on after an EXIT, or makes a load under a condition. The FADD that begins the
        # loop is the last.
        self.assertAlmostEqual(before, 1 + CLOCKS.cache + CLOCKS.special)
        more, _ = chain.clocks_around(code, code.hot_loop("FADD"), "sm_80", other_loads=2)
        self.assertAlmostEqual(more, before + 2 * CLOCKS.cache)
        self.assertAlmostEqual(after, 2)

    def test_passes_through_shared_memory_are_counted_by_width(self):
        for name, passes in (("LDSM.16.M88.4", 4), ("LDGSTS.E.BYPASS.128", 4), ("LDS.64", 2),
                             ("STS", 1), ("SHFL.BFLY", 1), ("LDG.E.128", 0), ("FADD", 0)):
            self.assertEqual(chain.wavefronts_of(name), passes, name)

    def test_figures_are_those_of_the_hot_loop(self):
        code, _ = code_of("LDSM.16.M88.4 R8, [R1]", "HMMA.16816.F32 R12, R8, R2, R12")
        figures = chain.figures_of(code, "sm_80", "HMMA")
        self.assertEqual({key: figures[key] for key in ("instructions", "wavefronts", "matrices")},
                         {"instructions": 3, "wavefronts": 4, "matrices": 1})
        self.assertIsNone(chain.figures_of(code, "sm_80", "HGMMA"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
