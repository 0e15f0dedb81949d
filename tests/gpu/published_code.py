# SPDX-License-Identifier: Apache-2.0
"""published_code: reads the machine code of FlashAttention 2 as ours is read, for published.json.

    published_code.py CUOBJDUMP NVDISASM LIBRARY

LIBRARY is vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so of the wheel vllm 0.33.0 on PyPI, CUOBJDUMP of
nvidia-cuda-cuobjdump. Its code is of sm_80 alone, which newer GPUs run too. Writes the figures of
the kernels that published.json names into it.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

FILE = pathlib.Path(__file__).with_name("published.json")
sys.path.insert(0, str(FILE.parents[1] / "fakegpu"))
import chain            # noqa: E402
import disassembly      # noqa: E402
import occupancy        # noqa: E402

MATRICES = r"HMMA|HGMMA"
CLOCKS_OF = ("sm_80", "sm_86", "sm_90")


def run(*command, folder):
    return subprocess.run([str(part) for part in command], cwd=folder, capture_output=True,
                          text=True, check=True).stdout


def figures_of(kernel, code, registers):
    figures = {}
    for target in CLOCKS_OF:
        blocks, _ = occupancy.of_nvidia(target, kernel["threads"], registers,
                                        kernel["shared_bytes"])
        figures[target] = {"registers": registers, "blocks": blocks, "threads": kernel["threads"],
                           "kv_bytes": kernel["kv_bytes"],
                           "warp": chain.figures_of(code, target, MATRICES,
                                                    other_loads=kernel["other_loads"])}
    return figures


def main():
    cuobjdump, nvdisasm, library = (pathlib.Path(part).resolve() for part in sys.argv[1:])
    published = json.loads(FILE.read_text())
    left = {kernel["symbol"]: kernel for kernel in published["kernels"].values()}
    with tempfile.TemporaryDirectory() as folder:
        run(cuobjdump, "-xelf", "all", library, folder=folder)
        for cubin in sorted(pathlib.Path(folder).glob("*.cubin")):
            held = cubin.read_bytes()
            if not any(symbol.encode() in held for symbol in left):
                continue
            text = run(nvdisasm, cubin.name, folder=folder)
            codes = disassembly.of_nvidia(text)
            for symbol in left.keys() & codes.keys():
                section = text.split(f"\t.section\t.text.{symbol},", 1)[1]
                registers = int(re.search(r"SHI_REGISTERS=(\d+)", section).group(1))
                kernel = left.pop(symbol)
                kernel["code"] = figures_of(kernel, codes[symbol], registers)
    FILE.write_text(json.dumps(published, indent=1) + "\n")
    for symbol in left:
        print(f"not found: {symbol}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
