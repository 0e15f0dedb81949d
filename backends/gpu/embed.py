# SPDX-License-Identifier: Apache-2.0
"""embed: a code object as a C++ array of 64-bit words.

    embed.py FILE OUTPUT
"""

import struct
import sys


def main():
    source, output = sys.argv[1:]
    with open(source, "rb") as file:
        data = file.read()
    data += bytes(-len(data) % 8)
    words = [f"0x{word:x}u," for (word,) in struct.iter_unpack("<Q", data)]
    lines = ["".join(words[i:i + 6]) for i in range(0, len(words), 6)]
    with open(output, "w", encoding="ascii") as file:
        file.write('#include "driver.hpp"\n\nalignas(4096) const uint64_t '
                   "quire::gpu::kCodeObject[] = {\n" + "\n".join(lines) + "\n};\n")


main()
