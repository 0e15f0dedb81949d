# SPDX-License-Identifier: Apache-2.0
"""conform: the suite for stores passes on a real cluster, with one thread and with several.

    conform.py QUIRE_CONFORM_STORE
"""

import subprocess
import sys

import cluster as clusters
from cluster import Cluster
from faults import expect

if __name__ == "__main__":
    clusters.skip_without_server()
    with Cluster() as cluster:
        for threads in (1, 3):
            process = subprocess.run(
                [sys.argv[1], "valkey", "--option", f"nodes={cluster.nodes()}", "--option",
                 "prefix={dir}", "--option", "timeout=20000", "--option", f"threads={threads}"],
                capture_output=True, text=True, timeout=250)
            expect(process.returncode == 0, process.stdout + process.stderr)
            print(process.stdout.splitlines()[-1], [line for line in process.stdout.splitlines()
                                                    if "PASSED" in line])
