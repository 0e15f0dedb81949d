# SPDX-License-Identifier: Apache-2.0
"""bundle: code objects of several kinds of GPU as one file, from which the driver takes its own.

    bundle.py BUNDLER NAMES OUTPUT OBJECT...

NAMES are separated by commas; the first is the host's, which has no code.
"""

import subprocess
import sys


def main():
    bundler, names, output, *objects = sys.argv[1:]
    inputs = [f"-input={path}" for path in ["/dev/null", *objects]]
    subprocess.run([bundler, "-type=o", "-bundle-align=4096", f"-targets={names}", *inputs,
                    f"-output={output}"], check=True)


main()
