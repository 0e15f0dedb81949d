# SPDX-License-Identifier: Apache-2.0
"""sources: only the dialect knows which compiler reads a kernel, and the host knows every kernel.

    sources.py BACKENDS_GPU
"""

import pathlib
import re
import sys

FORBIDDEN = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|else)\b|__CUDA|__HIP|fakegpu", re.MULTILINE)


def problems_of(name, text):
    if name in ("dialect.hpp", "dialect_warp.hpp", "global.hpp"):
        return []
    return [f"kernels/{name}: {match.group(0).strip()} belongs into dialect.hpp"
            for match in FORBIDDEN.finditer(text)]


def kernels_of(folder):
    """Name, block size, and whether that size is per team, as the kernels state them."""
    found = []
    for path in sorted(folder.glob("*.cu")):
        found += re.findall(r"QUIRE_KERNEL\((\w+), (\d+)( \* kTeamsOfBlock)?,", path.read_text())
    return sorted((name, threads, bool(teams)) for name, threads, teams in found)


def main():
    gpu = pathlib.Path(sys.argv[1])
    problems = []
    for path in sorted((gpu / "kernels").iterdir()):
        problems += problems_of(path.name, path.read_text())
    table = re.findall(r'\{"(\w+)", (\d+), sizeof\(\w+\)(, true)?[^}]*\}',
                       (gpu / "kernels.cpp").read_text())
    known = sorted((name, threads, bool(teams)) for name, threads, teams in table)
    if known != kernels_of(gpu / "kernels") or not known:
        problems.append(f"kernels.cpp knows {known}, there are {kernels_of(gpu / 'kernels')}")
    listed = re.findall(r'#include "(\w+\.cu)"', (gpu / "kernels" / "all.cu").read_text())
    there = {path.name for path in (gpu / "kernels").glob("*.cu")} - {"all.cu"}
    if set(listed) != there:
        problems.append(f"all.cu has {listed}, there are {sorted(there)}")
    if not problems_of("planted.cu", "  #ifdef __CUDACC__\n"):
        problems.append("a planted #ifdef was not seen")
    print("\n".join(problems))
    return 1 if problems else 0


sys.exit(main())
