# SPDX-License-Identifier: Apache-2.0
"""predict_test: what ./dev gpu --predict says follows from its figures, which are those that the
gates hold, and from nothing that has to be built.

    predict_test.py
"""

import contextlib
import dataclasses
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "fakegpu")]
import calibration      # noqa: E402
import chain            # noqa: E402
import code_gates       # noqa: E402
import figures          # noqa: E402
import hardware         # noqa: E402
import predict          # noqa: E402
import roofline         # noqa: E402

# Ten multiprocessors at 1 GHz, 1 byte per ns of memory; a launch takes 100 ns, a ramp 10 + 5 + 5.
TOY = dataclasses.replace(
    hardware.DEVICES["A100"], name="toy", multiprocessors=10, clock_hz=1e9, ceiling=1e9,
    memory_clocks=10, launch_s=100e-9, issue_clocks=1, matrix_clocks=8)
# Four blocks of four warps fit; nothing takes any time to speak of.
LIGHT = roofline.Kernel(instructions=1e-6, wavefronts=1e-6, matrices=1e-9, clocks=1e-3, warps=4,
                        blocks=4, before=5, after=5)
# A wave of 40 blocks: four for each multiprocessor, of 1,000 bytes each.
LAUNCH = roofline.Launch(blocks=40, block_bytes=1000, memory_bytes=100)
OVERHEAD = 100 + 20


def nanoseconds(kernel, launch=LAUNCH, device=TOY):
    times = roofline.times_of(device, kernel, launch)
    return times.total * 1e9, times.binds


class Model(unittest.TestCase):
    """Each limit in turn is the only one that takes time."""

    def expect(self, limit, expected, kernel=LIGHT, launch=LAUNCH, **given):
        total, binds = nanoseconds(kernel, launch, **given)
        self.assertEqual(binds, limit)
        self.assertAlmostEqual(total, expected, delta=0.1)

    def test_bytes_bind(self):
        launch = dataclasses.replace(LAUNCH, memory_bytes=5000)
        self.expect("bytes", OVERHEAD + 5000, launch=launch)

    # A warp by itself takes twice the clocks for which it uses a unit, so four use all of it.

    def test_issue_binds(self):
        # 4 x 1,000 bytes of half an instruction each, by four schedulers.
        kernel = dataclasses.replace(LIGHT, instructions=0.5, clocks=0.25)
        self.expect("issue", OVERHEAD + 4 * 500 / 4, kernel)

    def test_few_warps_cannot_use_all_schedulers(self):
        kernel = dataclasses.replace(LIGHT, instructions=0.5, clocks=0.5, warps=1, blocks=1)
        # Four waves of one block; one scheduler.
        self.expect("issue", 100 + 4 * 20 + 4 * 500, kernel)

    def test_wavefronts_bind(self):
        kernel = dataclasses.replace(LIGHT, wavefronts=1, clocks=0.5)
        self.expect("wavefronts", OVERHEAD + 4 * 1000, kernel)

    def test_matrices_bind(self):
        kernel = dataclasses.replace(LIGHT, matrices=0.1, clocks=0.4)
        self.expect("matrix", OVERHEAD + 4 * 100 * 8 / 4, kernel)

    def test_a_chain_binds(self):
        # All blocks at once: 1,000 bytes of two clocks. A second wave takes as long again.
        kernel = dataclasses.replace(LIGHT, clocks=2)
        self.expect("chain", OVERHEAD + 2000, kernel)
        self.expect("chain", 100 + 2 * (20 + 2000), kernel, dataclasses.replace(LAUNCH, blocks=80))

    def test_a_chain_is_longer_by_waiting_for_busy_units(self):
        # Four warps share a matrix unit, which each uses for 0.2 of its 2 clocks per byte: each
        # meets each of the three others in a tenth of the cases, and waits for 0.2 clocks.
        kernel = dataclasses.replace(LIGHT, clocks=2, matrices=0.1)
        self.expect("chain", OVERHEAD + 1000 * (2 + 3 * 0.1 * 0.2), kernel)

    def test_an_unfilled_wave_takes_as_long_as_a_full_one(self):
        kernel = dataclasses.replace(LIGHT, clocks=2)
        launch = dataclasses.replace(LAUNCH, blocks=41)
        self.expect("chain", 100 + 2 * 20 + 2 * 2000, kernel, launch)

    def test_blocks_that_end_at_once_and_joins_take_time(self):
        launch = dataclasses.replace(LAUNCH, memory_bytes=5000, empty_blocks=400, empty_clocks=7,
                                     tail_clocks=30)
        self.expect("bytes", OVERHEAD + 5000 + 10 * 7 + 30, launch=launch)
        launch.empty_clocks = 700
        self.expect("ramps", OVERHEAD + 5000 + 10 * 700 + 30, launch=launch)

    def test_figures_of_code_are_per_byte(self):
        warp = {"instructions": 400, "wavefronts": 100, "matrices": 50, "clocks": 800, "before": 1,
                "after": 2}
        kernel = roofline.of_code({"warp": warp, "threads": 128, "kv_bytes": 200, "blocks": 2})
        self.assertEqual(dataclasses.astuple(kernel), (2, 0.5, 0.25, 1, 4, 2, 1, 2))


class Rounds(unittest.TestCase):
    def test_a_table_for_more_than_there_is_makes_rounds_and_empty_blocks(self):
        # 256 chunks of 32 heads and 130 words: 4.06 MiB per row, of 64 MiB.
        shape = predict.Shape("bf16", 64, 4096, 32, 8, 131072)
        self.assertEqual(predict.rounds_of(shape), ([15, 15, 15, 15, 4], 256))
        self.assertEqual(predict.rounds_of(dataclasses.replace(shape, table_keys=0)), ([64], 8))

    def test_a_work_list_has_items_for_what_there_is(self):
        # 4,032 chunks of 32 heads and 130 words fit a round; the table has room for 4,096.
        shape = predict.Shape("bf16", 64, 4096, 32, 8, 131072)
        self.assertEqual(predict.rounds_of_list(shape), (2, 1))
        self.assertEqual(predict.rounds_of_list(dataclasses.replace(shape, table_keys=0)), (1, 1))
        self.assertEqual(predict.rounds_of_list(dataclasses.replace(shape, keys=131072)), (2, 2))

    def test_chunks_grow_with_the_keys_of_a_row(self):
        self.assertEqual([predict.places_of(keys) for keys in (1, 2048, 2049, 8192, 8193)],
                         [512, 512, 1024, 1024, 2048])
        self.assertEqual([predict.chunks_of_table(keys) for keys in (100, 2048, 8192, 131072)],
                         [1, 4, 8, 64])

    def test_constants_are_those_of_the_backend(self):
        for path, pattern, value in (
                ("kernels/calls.hpp", r"kChunkPlaces = (\d+)", predict.CHUNK_PLACES),
                ("kernels/calls.hpp", r"kMostKeysOfShort = (\d+)", predict.CHUNK_LENGTHS[0][0]),
                ("kernels/calls.hpp", r"kMostKeysOfMiddle = (\d+)", predict.CHUNK_LENGTHS[1][0]),
                ("kernels/join.hpp", r"kAtOnce = (\d+)", predict.JOINED_AT_ONCE),
                ("kernels/pages.hpp", r"kWarpsOfBlock = (\d+)", predict.JOINING_WARPS),
                ("rounds.cpp", r"kRoundBytes = uint64_t\{(\d+)\} << 20",
                 predict.ROUND_BYTES >> 20),
                ("work_shape.cpp", r"kRoundBytes = uint64_t\{(\d+)\} << 20",
                 predict.ROUND_BYTES >> 20),
                ("decode.cpp", r"kMostDecodeBlocks = (\d+)", predict.LIST_BLOCKS)):
            text = (ROOT / "backends" / "gpu" / path).read_text()
            self.assertEqual(int(re.search(pattern, text)[1]), value, path)


class Figures(unittest.TestCase):
    def setUp(self):
        self.file = json.loads(figures.FILE.read_text())

    def problems(self):
        """Where the file does not match a gate of code_gates.py, in words."""
        found = []
        for name, row in code_gates.NVIDIA.items():
            if not row.kv_bytes:
                continue
            for target, blocks in row.blocks.items():
                has = self.file["code"].get(name, {}).get(target)
                if has is None:
                    found.append(f"{name} of {target} is missing: run {figures.COMMAND}")
                    continue
                spent = has["warp"]["instructions"] / row.kv_bytes
                limit = row.other_per_byte.get(target, row.per_byte)
                if not 0.88 * limit <= spent <= limit or has["blocks"] < blocks or \
                        has["kv_bytes"] != row.kv_bytes or has["threads"] != row.threads:
                    found.append(f"{name} of {target}: run {figures.COMMAND}")
        return found

    def test_match_the_gates_on_machine_code(self):
        self.assertEqual(self.problems(), [])

    def test_that_do_not_match_are_noticed(self):
        warp = self.file["code"]["quire_decode_bf16_128"]["sm_90"]["warp"]
        warp["instructions"] *= 1.1
        self.assertEqual(len(self.problems()), 1)
        del self.file["code"]["quire_decode_bf16_128"]["sm_80"]
        self.assertEqual(len(self.problems()), 2)

    def test_match_the_limits_on_counts(self):
        for kernel, of_shapes in self.file["counts"].items():
            self.assertEqual(of_shapes, figures.limits()[kernel])
        self.assertIn("decode of fp8", self.file["counts"]["quire_attend_fragments"])

    def test_differences_are_said(self):
        other = json.loads(json.dumps(self.file))
        self.assertEqual(figures.differences(self.file, other), [])
        other["code"]["quire_reduce"]["sm_80"]["registers"] *= 2
        del other["code"]["quire_reduce"]["sm_90"]["blocks"]
        self.assertEqual(len(figures.differences(self.file, other)), 2)

    def test_latencies_are_those_of_the_chain(self):
        for device in hardware.DEVICES.values():
            if device.vendor == "nvidia":
                clocks = chain.CLOCKS[device.target]
                self.assertEqual((device.memory_clocks, device.cache_clocks, device.matrix_clocks),
                                 (clocks.memory, clocks.cache, clocks.matrix_unit), device.name)


def said(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        predict.main(list(arguments))
    return text.getvalue()


class Command(unittest.TestCase):
    def test_json_has_every_device_and_shape(self):
        rows = json.loads(said("--json"))["predicted"]
        self.assertEqual(len(rows), len(hardware.SHOWN) * len(predict.SHAPES))
        for row in rows:
            limits = [row[f"{name}_us"] for name in roofline.LIMITS]
            beside = row["launches_us"] + row["ramps_us"]
            self.assertGreaterEqual(row["us"], beside + max(limits) - 1e-6)
            self.assertLessEqual(row["us"], beside + sum(limits))
            self.assertTrue(0 < row["of_ceiling"] < 1, row)
            self.assertEqual(max([*limits, row["ramps_us"]]), row[f"{row['binds']}_us"])

    def test_decode_kernels_serve_16_bits_on_nvidia_alone(self):
        for row in json.loads(said("--json"))["predicted"]:
            is_nvidia = hardware.DEVICES[row["device"]].vendor == "nvidia"
            if row["dtype"] == "bf16":
                self.assertEqual("quire_decode" in row["kernel"], is_nvidia, row)

    def test_a_new_kernel_is_a_row_of_data(self):
        data = json.loads(figures.FILE.read_text())
        shape, device = predict.Shape("fp8", 32, 4096), hardware.DEVICES["H200"]
        data["code"]["quire_decode_e4m3_128"] = data["code"]["quire_decode_bf16_128"]
        times, server = predict.predict(device, shape, data)
        self.assertEqual(server.kernel, "quire_decode_e4m3_128")
        self.assertEqual(times.binds, "bytes")

    def test_unknown_names_are_refused_in_words(self):
        for arguments, word in ((("--device", "H3"), "H200"), (("--case", "1x1"), "32x4096")):
            with self.assertRaises(SystemExit) as refused:
                said(*arguments)
            self.assertIn(arguments[1], str(refused.exception))
            self.assertIn(word, str(refused.exception))

    def test_a_format_without_a_kernel_is_refused_in_words(self):
        with self.assertRaisesRegex(SystemExit, "no kernel .* serves int4 on H200"):
            predict.predict(hardware.DEVICES["H200"], predict.Shape("int4", 1, 512),
                            json.loads(figures.FILE.read_text()))

    def test_what_was_measured_stands_beside(self):
        case = {"case": "32x4096-32/8-d128", "dtype": "bf16", "milliseconds": 0.1875}
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "gpu.json").write_text(json.dumps({
                "devices": {"cuda": ["NVIDIA H100 80GB HBM3"], "vulkan": []},
                "parts": [{"name": "decode cuda", "figures": {"cases": [case]}},
                          {"name": "decode vulkan", "figures": None}]}))
            rows = json.loads(said("--json", "--out", folder))["predicted"]
            self.assertIn("187.5", said("--out", folder))
        measured = {(row["device"], row["case"], row["dtype"]): row["measured_us"] for row in rows
                    if row["measured_us"]}
        self.assertEqual(measured, {("H100", case["case"], "bf16"): 187.5})
        with self.assertRaisesRegex(SystemExit, "gpu.json cannot be read"):
            said("--out", folder)

    def test_the_documentation_has_the_same_table(self):
        text = (ROOT / "docs" / "performance" / "gpu.md").read_text()
        self.assertIn(said("--markdown"), text, "put in what ./dev gpu --predict --markdown prints")

    def test_it_needs_no_build(self):
        with tempfile.TemporaryDirectory() as folder:
            to = pathlib.Path(folder, "tests", "gpu")
            shutil.copytree(HERE, to)
            process = subprocess.run([sys.executable, to / "gpu.py", "--predict", "--json"],
                                     capture_output=True, text=True, check=True)
        self.assertIn("H200", process.stdout)


class Calibration(unittest.TestCase):
    def test_every_entry_names_a_source_and_what_is_known_of_the_kernel(self):
        published = json.loads(calibration.FILE.read_text())
        for entry in published["times"]:
            self.assertIn(entry["source"], published["sources"])
            if entry["kernel"] is not None:
                self.assertIn("code", published["kernels"][entry["kernel"]])

    def test_rows_are_divided_as_flash_attention_does(self):
        # 216 places: 512 blocks fill them; of 64 and of 2, 192 and 188 are enough.
        self.assertEqual(calibration.parts_of_rows(512, 216, 2), 1)
        self.assertEqual(calibration.parts_of_rows(64, 216, 16), 3)
        self.assertEqual(calibration.parts_of_rows(2, 216, 1024), 94)

    def test_the_model_is_within_what_the_documentation_says(self):
        text = (ROOT / "docs" / "performance" / "gpu.md").read_text()
        lowest, highest = map(int, re.search(r"errs\s+by (-\d+) to \+(\d+) %", text).groups())
        found = [100 * one.error for one in calibration.checked()
                 if one.entry["us"] >= calibration.SHORT_US]
        self.assertEqual((round(min(found)), round(max(found))), (lowest, highest))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
