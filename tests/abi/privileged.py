# SPDX-License-Identifier: Apache-2.0
"""privileged: a privileged program takes neither library nor plugins from its environment.

    privileged.py PROGRAM LIBRARY PLUGIN

The program belongs to root and is run by another user: first without its setuid bit, when the
environment must work, then with it, when the environment is untrusted and must be ignored.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
NOBODY = 65534


def run(program, library, environment):
    result = subprocess.run([program, library], env=environment, user=NOBODY, group=NOBODY,
                            extra_groups=[], cwd="/", capture_output=True, text=True)
    return result.stdout.strip() + result.stderr.strip()


def main():
    if os.geteuid() != 0:
        print("only root can make a program that others run with privilege")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        program, library, plugin = [shutil.copy(path, folder) for path in sys.argv[1:]]
        for path in (program, library, plugin):
            os.chmod(path, 0o755)
        environment = {"QUIRE_LIBRARY": library, "QUIRE_PLUGIN_PATH": name}
        plain = run(program, library, environment)
        os.chmod(program, 0o4755)
        privileged = run(program, library, environment)
    print(f"plain: {plain}\nprivileged: {privileged}")
    if "secure=0" in privileged:
        print("the folder for temporary files gives no privilege (nosuid)")
        return SKIPPED
    return 0 if (plain, privileged) == ("secure=0 library=1 backends=1",
                                        "secure=1 library=0 backends=0") else 1


if __name__ == "__main__":
    sys.exit(main())
