# SPDX-License-Identifier: Apache-2.0
"""make_ffi: turns the C headers into the module through which cffi calls the library.

    make_ffi.py OUTPUT HEADER INCLUDE_FOLDER COMPILER...

The headers are preprocessed without the system's headers, so that only Quire's declarations remain.
The result is plain Python: installing the package needs no compiler.
"""

import pathlib
import subprocess
import sys
import tempfile

import cffi


def declarations(header, include_folder, compiler):
    with tempfile.TemporaryDirectory() as empty:
        for name in ("stddef.h", "stdint.h"):  # cffi knows their types
            (pathlib.Path(empty) / name).touch()
        command = [*compiler, "-E", "-P", "-nostdinc", "-U__GNUC__", "-I", empty, "-I",
                   include_folder, "-x", "c", header]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    output, header, include_folder, *compiler = sys.argv[1:]
    builder = cffi.FFI()
    builder.set_source("quire._ffi", None)
    builder.cdef(declarations(header, include_folder, compiler))
    builder.emit_python_code(output)


if __name__ == "__main__":
    main()
