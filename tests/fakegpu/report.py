# SPDX-License-Identifier: Apache-2.0
"""report: what the compilers made of the kernels, and a check that the expected
instructions are there.

    report.py [--json] [--write] FATBIN NVIDIA NVDISASM OBJDUMP READELF BUNDLE TARGET...

FATBIN and BUNDLE are what the plugins hold; beside them lies what they were made of, which is read
here. TARGET is each kind of AMD GPU that is supported, and NVIDIA those of NVIDIA's, such as 80,90.

Lists each kernel of each kind of GPU with its registers, shared memory and stack. No kernel of
NVIDIA's GPUs or of CDNA has a stack. Attention multiplies with mma.sync what cp.async loaded, or
with MFMA, uses loads of 16 bytes, and stores decoded codes as wide. This holds for the kernel of
one unit and for that of several, whose shared memory is not listed on NVIDIA's GPUs because the
launch asks for it. Both vendors have the same kernels.

Then come figures of the machine code, and the limits that code_gates.py sets for each kernel. They
need NVDISASM for NVIDIA's GPUs, which may be "". OBJDUMP and READELF may be "" too: what needs them
is not checked then, which is said. --json prints the figures once more, for programs. With all
tools, tests/gpu/kernels.json must agree with what was found; --write makes it so.
"""

import json
import pathlib
import re
import subprocess
import sys
import time

import code_gates
import disassembly
import figures as kernel_figures

GIVEN = [argument for argument in sys.argv[1:] if argument not in ("--json", "--write")]
FATBIN, NUMBERS, NVDISASM, OBJDUMP, READELF, BUNDLE, *AMD = GIVEN
NVIDIA = [f"sm_{number}" for number in NUMBERS.split(",")]
# In PTX that several kinds share: matrices, loads, stores, and the conversion of codes to 16-bit
# numbers, in pairs.
PTX_OF_ALL = ["mma.sync.aligned.m16n8k16.row.col.f32.f16",
              "mma.sync.aligned.m16n8k16.row.col.f32.bf16", "cp.async.cg.shared.global",
              "cp.async.wait_group", "ld.global.v4.u32", "st.shared.v4", "prmt.b32",
              "add.rn.f16x2", "mul.rn.f16x2", "fma.rn.bf16x2"]
PTX = {"sm_80": PTX_OF_ALL, "sm_89": [*PTX_OF_ALL, "cvt.rn.f16x2.e4m3x2"]}
# The instructions that multiply matrices of 16-bit numbers. GPUs not listed must have none, since
# they lack them; gfx908 has none for bf16.
CDNA = {"gfx908": ["v_mfma_f32_16x16x16f16"],
        "gfx90a": ["v_mfma_f32_16x16x16f16", "v_mfma_f32_16x16x4f32",
                   "v_mfma_f32_16x16x16bf16_1k"],
        "gfx942": ["v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x16_bf16"]}
MATRIX_KERNELS = ["quire_attend_fragments", "quire_attend_prefill"]
# AMD's scalars that no register was left for, and that a lane of a vector register keeps.
scalars = {}
code_figures = {}       # of each target
failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        print(result.stdout + result.stderr)
        sys.exit(1)
    return result.stdout + result.stderr


def show(target, kernels, seconds):
    print(f"{target}, {seconds:.1f} s")
    for name, (registers, shared, stack) in sorted(kernels.items()):
        print(f"  {name:24} {registers:4} registers  {shared:6} B shared  {stack:5} B of stack")


def look_at_code(vendor, target, codes, kernels):
    figures, problems = code_gates.look(vendor, target, codes, kernels)
    print(code_gates.table(target, figures))
    code_figures[target] = figures
    for problem in problems:
        expect(False, problem)


def made_for(target, kind):
    """A file that the code for one kind of NVIDIA's GPUs was made of, or by."""
    return pathlib.Path(FATBIN).with_name(f"cuda_kernels_{target.removeprefix('sm_')}.{kind}")


def of_nvidia(target):
    begin = time.monotonic()
    said = made_for(target, "usage").read_text()
    kernels = {}
    for block in said.split("Compiling entry function '")[1:]:
        name = block.split("'")[0]
        registers = re.search(r"Used (\d+) registers", block).group(1)
        shared = re.search(r"(\d+) bytes smem", block)
        stack = re.search(r"(\d+) bytes stack frame", block).group(1)
        kernels[name] = (int(registers), int(shared.group(1)) if shared else 0, int(stack))
    show(target, kernels, time.monotonic() - begin)
    if NVDISASM:
        look_at_code("nvidia", target,
                     disassembly.of_nvidia(run(NVDISASM, made_for(target, "cubin"))), kernels)
    return kernels


def of_amd(target):
    begin = time.monotonic()
    built = pathlib.Path(BUNDLE).with_name(f"hip_kernels_{target}.co")
    codes = disassembly.of_amd(run(OBJDUMP, "-d", built))
    kernels = {}
    for block in re.split(r"^  - \.", run(READELF, "--notes", built), flags=re.MULTILINE)[1:]:
        def field(name):
            return int(re.search(rf"\.{name}:\s+(\d+)", block).group(1))
        name = re.search(r"\.name:\s+(\w+)", block).group(1)
        kernels[name] = (field("vgpr_count"), field("group_segment_fixed_size"),
                         field("private_segment_fixed_size"))
        expect(field("vgpr_spill_count") == 0, f"{target}: {name} spills")
        scalars[f"{target} {name}"] = field("sgpr_spill_count")
    show(target, kernels, time.monotonic() - begin)
    look_at_code("amd", target, codes, kernels)
    if target in CDNA:
        expect(all(stack == 0 for _, _, stack in kernels.values()), f"{target}: a stack")
        for kernel in MATRIX_KERNELS:
            for word in (*CDNA[target], "global_load_dwordx4", "ds_write_b128"):
                expect(any(name.startswith(word) for name in codes[kernel].names),
                       f"{target}: {kernel} has no {word}")
    return kernels


def keep_figures():
    """Checks, or writes, the file of figures. Some kinds of AMD GPUs may not have been built."""
    if not all((NVDISASM, OBJDUMP, READELF)) or not set(kernel_figures.TARGETS) <= {*NVIDIA, *AMD}:
        print("skipped: not all figures of tests/gpu/kernels.json are known here")
    elif "--write" in sys.argv:
        kernel_figures.write(code_figures)
    else:
        for problem in kernel_figures.out_of_date(code_figures):
            expect(False, problem)


def main():
    lists = set()
    bundle = pathlib.Path(BUNDLE).read_bytes()
    for target in AMD:
        expect(f"amdhsa--{target}".encode() in bundle, f"the bundle has no code for {target}")
    fatbin = pathlib.Path(FATBIN).read_bytes()
    for target in NVIDIA:
        kernels = of_nvidia(target)
        lists.add(tuple(sorted(kernels)))
        expect(all(stack == 0 for _, _, stack in kernels.values()), f"{target}: a stack")
        expect(made_for(target, "cubin").read_bytes() in fatbin,
               f"the fatbin has no code for {target}")
    for target, words in PTX.items():
        ptx = made_for(target, "ptx").read_text()
        for kernel in MATRIX_KERNELS:
            body = ptx.split(f".entry {kernel}(", 1)[1].split(".entry", 1)[0]
            for word in words:
                expect(word in body, f"PTX of {target}: {kernel} has no {word}")
    if OBJDUMP and READELF:
        for target in AMD:
            lists.add(tuple(sorted(of_amd(target))))
    for name, count in scalars.items():
        if count > 0:
            print(f"{name}: {count} scalars in vector registers")
    for tool, what in ((NVDISASM, "nvdisasm"), (OBJDUMP, "llvm-objdump"),
                       (READELF, "llvm-readelf")):
        if not tool:
            print(f"skipped: {what} was not found, so what it shows was not checked")
    keep_figures()
    if "--json" in sys.argv:
        print(json.dumps(code_figures, indent=1))
    expect(len(lists) == 1, f"the lists of kernels differ: {lists}")
    for message in failures:
        print(f"FAILED: {message}")
    return 1 if failures else 0


sys.exit(main())
