# SPDX-License-Identifier: Apache-2.0
"""shared_target: the folder where cargo builds, which several checkouts may share, so that
dependencies are compiled once.

Cargo takes a crate for fresh if what it built is newer than the crate's sources, also if it built
those of another checkout. So one checkout has the folder at a time, and what was built of our own
crates is forgotten when another one had it before.
"""

import contextlib
import fcntl
import pathlib
import re
import shutil

OWN = re.compile(r"(quire|quire-sys|candle-llama|script|step)-[0-9a-f]{16}")


def forget_own(folder):
    for built in folder.glob("*/.fingerprint/*"):
        if OWN.fullmatch(built.name):
            shutil.rmtree(built)


@contextlib.contextmanager
def turn(target, checkout):
    """Has the folder `target` for the block, for the checkout that is in that folder."""
    folder = pathlib.Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        owner = folder / "checkout"
        if not owner.exists() or owner.read_text() != str(checkout):
            forget_own(folder)
            owner.write_text(str(checkout))
        yield
