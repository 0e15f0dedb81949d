# SPDX-License-Identifier: Apache-2.0
"""golden: the replay of a production trace gives the numbers of exact LRU, to the token.

The conversation trace of kvcache-ai/Mooncake (FAST'25, Apache-2.0) is looked for in QUIRE_TRACES,
else beside the project in shared/traces. The golden columns come from two independent programs.

    golden.py QUIRE SOURCE_ROOT BLOCKS|BLOCKS+HOST_BLOCKS|BLOCKS/DISK_BLOCKS...

A pool and a host tier give what a pool of the sum of their sizes gives. A pool and a store that
never evicts give what a pool that never evicts gives, which computes each block once.
"""

import json
import os
import pathlib
import subprocess
import sys

GOLDEN = {  # blocks: hit tokens, cached blocks at the end
    16384: (6229248, 16382),
    65536: (8082640, 65534),
    262144: (26641616, 262142),
    1048576: (49165984, 1048574),
    8000000: (54097440, 5919726),
}

command, source_root, *pools = sys.argv[1:]
folder = os.environ.get("QUIRE_TRACES") or pathlib.Path(source_root).parent / "shared" / "traces"
trace = pathlib.Path(folder) / "mooncake_fast25_conversation_trace.jsonl"
if not trace.exists():
    print(f"no {trace.name} in QUIRE_TRACES or ../shared/traces")
    sys.exit(77)
for sizes in pools:
    blocks, _, disk_blocks = sizes.partition("/")
    blocks, _, host_blocks = blocks.partition("+")
    total = int(disk_blocks or blocks) + int(host_blocks or 0)
    tiers = ["--host-blocks", host_blocks] if host_blocks else []
    tiers += ["--disk-blocks", disk_blocks] if disk_blocks else []
    out = subprocess.run([command, "replay", trace, "--blocks", blocks, *tiers, "--json"],
                         check=True, capture_output=True, text=True,
                         stdin=subprocess.DEVNULL).stdout
    result = json.loads(out)
    got = (result["hit_tokens"], result.get("disk_cached_blocks") or
           result["cached_blocks"] + result.get("host_cached_blocks", 0))
    print(f"{sizes} blocks: {got[0]} tokens hit, {got[1]} blocks cached"
          + (f", {result['promoted_blocks']} promoted" if host_blocks else ""))
    if got != GOLDEN[total] or host_blocks and result["promoted_blocks"] == 0:
        sys.exit(f"FAILED: {sizes} blocks must give {GOLDEN[total]}")
