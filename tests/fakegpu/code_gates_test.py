# SPDX-License-Identifier: Apache-2.0
"""code_gates_test: each gate on machine code catches an offender planted for it.

The planted kernel has a loop of eight instructions that serves 256 bytes of K and V and is clean;
each test changes one line of it.
"""

import sys
import unittest

import code_gates
import disassembly
import occupancy

CLEAN = """
	.section	.text.planted,"ax",@progbits
	.sectioninfo	@"SHI_REGISTERS=40"
.text.planted:
        /*0000*/                   LDG.E.128 R4, desc[UR8][R2.64] ;
        /*0010*/                   MUFU.RCP R9, R8 ;
.L_x_1:
        /*0020*/                   LDGSTS.E.BYPASS.128 [R7], desc[UR4][R2.64] ;
        /*0030*/                   LDSM.16.M88.4 R12, [R5] ;
        /*0040*/                   HMMA.16816.F32.BF16 R16, R12, R14, R16 ;
        /*0050*/                   LDS.128 R20, [R6] ;
        /*0060*/                   FFMA R8, R8, R9, R10 ;
        /*0070*/                   IADD3 R0, R0, 0x1, RZ ;
        /*0080*/                   ISETP.GE.AND P0, PT, R0, R1, PT ;
        /*0090*/              @!P0 BRA `(.L_x_1) ;
        /*00a0*/                   STG.E [R2.64], R8 ;
        /*00b0*/                   EXIT ;
.L_x_2:
        /*00c0*/                   BRA `(.L_x_2) ;
	.section	.text.other,"ax",@progbits
        /*0000*/                   LD.E R0, [R2.64] ;
"""
AMD_CLEAN = """
0000000000001000 <planted>:
	global_load_dwordx4 v[0:3], v[4:5], off                    // 000000001000: DC5C8000 007F0004
	v_mov_b32_e32 v6, 0                                        // 000000001008: 7E0C0280
	v_mov_b32_e32 v7, 0                                        // 00000000100C: 7E0E0280
	s_waitcnt vmcnt(0)                                         // 000000001010: BF8C0F70
	v_mfma_f32_16x16x16_f16 v[8:11], v[0:1], v[2:3], v[8:11]   // 000000001014: D3CD0008 04220500
	s_cbranch_scc1 65532                                       // 00000000101C: BF85FFFC <planted+0x8>
	s_endpgm                                                   // 000000001020: BF810000
"""
ROW = code_gates.Row(128, needs=("matrix", "ldmatrix", "async_copies"), kv_bytes=256,
                     per_byte=0.04, blocks={"sm_90": 2})


def problems_of(text, row=ROW, registers=128, shared=65536):
    code = disassembly.of_nvidia(text)["planted"]
    figures = disassembly.figures_of_nvidia(code)
    figures["blocks"], figures["limit"] = occupancy.of_nvidia("sm_90", 128, registers, shared)
    return code_gates.judge("planted", "sm_90", row, figures, code)


class Gates(unittest.TestCase):
    def expect(self, old, new, word, **given):
        self.assertIn(old, CLEAN)
        problems = problems_of(CLEAN.replace(old, new), **given)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(word, problems[0])

    def test_clean_code_passes(self):
        self.assertEqual(problems_of(CLEAN), [])

    def test_generic_load_is_caught(self):
        self.expect("LDG.E.128", "LD.E.128", "'generic'")
        self.expect("STG.E", "ST.E", "'generic'")

    def test_short_shared_load_in_a_loop_is_caught(self):
        self.expect("LDS.128", "LDS.U16", "'short_shared'")

    def test_reciprocal_and_call_in_a_loop_are_caught(self):
        self.expect("FFMA R8, R8, R9, R10", "MUFU.RCP R8, R9", "'reciprocals'")
        self.expect("FFMA R8, R8, R9, R10", "CALL.REL.NOINC 0x90", "'calls'")

    def test_spill_is_caught(self):
        self.expect("FFMA R8, R8, R9, R10", "LDL R8, [R1]", "'local'")

    def test_missing_instructions_are_caught(self):
        self.expect("LDSM.16.M88.4 R12, [R5]", "LDS.64 R12, [R5]", "none of 'ldmatrix'")
        self.expect("LDGSTS.E.BYPASS.128", "LDS.64", "none of 'async_copies'")
        problems = problems_of(CLEAN.replace("HMMA.16816.F32.BF16", "FADD"))
        self.assertEqual(len(problems), 2)      # and so there is no hot loop
        self.assertIn("none of 'matrix'", problems[0])

    def test_long_loop_is_caught(self):
        longer = "IADD3 R0, R0, 0x1, RZ ;\n" + 3 * "        /*0070*/  IMAD R2, R2, R3, R4 ;\n"
        self.expect("IADD3 R0, R0, 0x1, RZ ;\n", longer, "0.0430 instructions per byte")

    def test_branch_that_a_round_can_leave_out_is_not_counted(self):
        rare = "        /*0068*/  {}BRA `(.L_x_3) ;\n{}.L_x_3:\n        /*0070*/"
        rest = 9 * "        /*006c*/  IMAD R2, R2, R3, R4 ;\n"
        row = code_gates.Row(128, kv_bytes=256, per_byte=9 / 256)
        for condition in ("@P1 ", ""):
            branch = rare.format(condition, rest)
            self.assertEqual(problems_of(CLEAN.replace("        /*0070*/", branch), row=row), [])
        # All copies and matrices that a round can take are counted, and what leads to them.
        copies = rest + "        /*006c*/  LDGSTS.E.128 [R7], desc[UR4][R2.64] ;\n"
        self.expect("        /*0070*/", rare.format("@P1 ", copies), "instructions per byte",
                    row=row)

    def test_lost_occupancy_is_caught(self):
        self.expect("MUFU.RCP R9, R8", "MUFU.RCP R9, R8", "shared memory", shared=120 << 10)
        self.expect("MUFU.RCP R9, R8", "MUFU.RCP R9, R8", "registers", registers=255,
                    row=code_gates.Row(128, needs=(), blocks={"sm_90": 3}))

    def test_target_that_a_row_leaves_out_has_limits_too(self):
        rows = code_gates.NVIDIA
        row = code_gates.row_of(rows, "quire_decode_bf16_128")
        self.assertEqual(row.blocks["sm_120"], 1)
        self.assertEqual(row, code_gates.dataclasses.replace(rows["quire_decode_bf16_128"],
                                                             blocks=row.blocks))
        self.assertIsNone(code_gates.row_of(rows, "planted"))

    def test_instructions_per_byte_are_limited_by_target(self):
        row = code_gates.Row(128, kv_bytes=32, per_byte=0.1, other_per_byte={"sm_80": 0.3})
        code = disassembly.of_nvidia(CLEAN)["planted"]      # a quarter of an instruction per byte
        found = {target: code_gates.judge("planted", target, row,
                                          disassembly.figures_of_nvidia(code), code)
                 for target in ("sm_80", "sm_90")}
        self.assertEqual(found["sm_80"], [])
        self.assertIn("spends 0.2500 instructions", found["sm_90"][0])

    def test_wait_after_a_load_is_measured_on_amd(self):
        code = disassembly.of_amd(AMD_CLEAN)["planted"]
        self.assertEqual(code.loops, [(1, 5)])
        figures = disassembly.figures_of_amd(code)
        self.assertEqual(figures["wait_distance"], 2)
        row = code_gates.Row(64, wait_distance=2)
        self.assertEqual(code_gates.judge("planted", "gfx942", row, figures), [])
        row.wait_distance = 3
        self.assertEqual(len(code_gates.judge("planted", "gfx942", row, figures)), 1)
        for old, new, field in (("global_load_dwordx4", "flat_load_dwordx4", "generic"),
                                ("v_mov_b32_e32 v7, 0 ", "ds_read_u16 v7, v6", "short_shared"),
                                ("v_mov_b32_e32 v7, 0 ", "v_rcp_f32_e32 v7, v6", "reciprocals"),
                                ("v_mov_b32_e32 v7, 0 ", "scratch_load_dword v7", "local")):
            self.assertIn(old, AMD_CLEAN)
            code = disassembly.of_amd(AMD_CLEAN.replace(old, new))["planted"]
            self.assertEqual(disassembly.figures_of_amd(code)[field], 1, new)

    def test_blocks_are_those_of_the_vendors_tables(self):
        # 128 threads of 128 registers: 16 Ki of 64 Ki. 1,024 threads of 64: all of them.
        self.assertEqual(occupancy.of_nvidia("sm_80", 128, 128, 0), (4, "registers"))
        self.assertEqual(occupancy.of_nvidia("sm_80", 1024, 64, 0), (1, "registers"))
        self.assertEqual(occupancy.of_nvidia("sm_86", 256, 32, 0), (6, "warps"))
        self.assertEqual(occupancy.of_nvidia("sm_90", 32, 32, 227 << 10), (1, "shared memory"))
        self.assertEqual(occupancy.of_amd("gfx942", 256, 128, 0), (4, "registers"))
        self.assertEqual(occupancy.of_amd("gfx942", 256, 64, 33 << 10), (1, "LDS"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
