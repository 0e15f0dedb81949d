# SPDX-License-Identifier: Apache-2.0
"""registers: once a shape is known, kernels index a lane's own arrays by constants alone.

    registers.py GLSLC SPIRV_OPT SPIRV_DIS KERNELS_FOLDER [DEFINITION]

A compiler can keep an array in registers only then; otherwise it lies in scratch memory, and each
access goes there. What a driver does after it was given a shape is done by spirv-opt here: it sets
the constants and unrolls the loops that are marked [[unroll]]. DEFINITION is the spelling of
cooperative matrices, if glslc knows one.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

# attend_call.glsl: head dims 128, f16, four query heads per KV head, blocks of 16, any options.
SHAPE = "1:128 2:128 3:1 4:1 5:4 6:16 8:1"
KERNELS = ["attend", "attend_fragments", "kv_write", "merge", "move", "reduce", "rows"]
# A kernel that indexes its array by a loop that no compiler unrolls: this test must notice.
OFFENDER = """#version 460
layout(local_size_x = 64) in;
layout(binding = 0) buffer Numbers { uint count; float v[]; };
void main() {
    float own[8];
    for (uint i = 0; i < count; ++i) own[i % 8] = v[i];
    v[0] = own[count % 8];
}
"""


def disassembly(tools, source, definitions):
    glslc, optimise, disassemble = tools
    with tempfile.TemporaryDirectory() as folder:
        compiled, known = (str(pathlib.Path(folder) / name) for name in ("a.spv", "b.spv"))
        subprocess.run([glslc, "--target-env=vulkan1.3", "-O", *definitions, source, "-o",
                        compiled], check=True)
        subprocess.run([optimise, "--set-spec-const-default-value", SHAPE, "--freeze-spec-const",
                        "--fold-spec-const-op-composite", "--ccp", "--eliminate-dead-branches",
                        "-O", "-O", compiled, "-o", known], check=True)
        return subprocess.run([disassemble, "--raw-id", known], check=True, text=True,
                              capture_output=True).stdout


def varying_accesses(text):
    """Accesses to a lane's own variables by indices that are no constants."""
    constants = set(re.findall(r"(%\d+) = OpConstant", text))
    classes = dict(re.findall(r"(%\d+) = OpTypePointer (\w+)", text))
    own = {name for name, pointer in re.findall(r"(%\d+) = OpVariable (%\d+)", text)
           if classes[pointer] in ("Function", "Private")}
    return [line.strip() for line in text.splitlines()
            for base, *indices in re.findall(r"OpAccessChain %\d+ (%\d+)((?: %\d+)+)", line)
            if base in own and not constants.issuperset(" ".join(indices).split())]


def main():
    *tools, folder = sys.argv[1:5]
    spellings = [[], *([definition] for definition in sys.argv[5:])]
    with tempfile.TemporaryDirectory() as made:
        offender = pathlib.Path(made) / "offender.comp"
        offender.write_text(OFFENDER)
        if not varying_accesses(disassembly(tools, offender, [])):
            sys.exit("the offender went unnoticed")
    failures = []
    for kernel in KERNELS:
        for spelling in spellings if kernel == "attend_fragments" else [[]]:
            text = disassembly(tools, pathlib.Path(folder) / f"{kernel}.comp", spelling)
            failures += [f"{kernel} {spelling}: {line}" for line in varying_accesses(text)]
    sys.exit("\n".join(failures) or 0)


if __name__ == "__main__":
    main()
