# SPDX-License-Identifier: Apache-2.0
"""wheel: installs the wheel into an empty virtual environment, and runs the README's example there.

    wheel.py WHEEL

Its dependencies come from where pip looks; without the network the test is skipped.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

SKIPPED = 77
README = pathlib.Path(__file__).resolve().parents[3] / "bindings" / "python" / "README.md"


def expect(condition, message):
    if not condition:
        print(f"FAILED: {message}")
        sys.exit(1)


def main():
    wheel = pathlib.Path(sys.argv[1]).resolve()
    example, = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    promised = re.search(r"# means so far: (.*)", example).group(1)
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("PYTHONPATH", "QUIRE_LIBRARY", "QUIRE_PLUGIN_PATH")}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = pathlib.Path(folder) / "bin" / "python"
        command = [python, "-m", "pip", "install", "--quiet", wheel]
        installed = subprocess.run(command, capture_output=True, text=True, env=environment)
        if installed.returncode != 0 and "No matching distribution" in installed.stderr:
            print("cffi and numpy cannot be installed: no network")
            return SKIPPED
        expect(installed.returncode == 0, installed.stderr)
        result = subprocess.run([python, "-X", "dev", "-c", example], capture_output=True,
                                text=True, env=environment, cwd=folder)
    expect(result.returncode == 0, result.stderr)
    expect(result.stdout.strip() == promised, f"{result.stdout!r} is not {promised!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
