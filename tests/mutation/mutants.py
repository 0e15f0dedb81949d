# SPDX-License-Identifier: Apache-2.0
"""mutants: the planted bugs of mutants.toml, and a copy of the sources that contains all of them.

Each mutant replaces a text that occurs once in its file. In its replacement the word MUTANT stands
for a condition that holds in a process whose environment has QUIRE_MUTANT=<number>. So one build
serves all mutants, and none of them touches the sources themselves.
"""

import collections
import pathlib
import re
import shutil
import subprocess
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIST = HERE / "mutants.toml"
FIELDS = ("name", "area", "file", "why", "old", "new")
SWITCH = "core/base/planted_mutant.hpp"  # exists in the copy only
SWITCH_TEXT = """#pragma once
#include <cstdlib>
namespace quire {
inline const int planted_mutant = [] {
    const char *number = std::getenv("QUIRE_MUTANT");
    return number != nullptr ? std::atoi(number) : 0;
}();
}  // namespace quire
"""

Mutant = collections.namedtuple("Mutant", ("number", *FIELDS))


class Bad(Exception):
    """A mutant that cannot be planted: the message names it, and says why."""


def read(path=LIST):
    entries = tomllib.loads(path.read_text()).get("mutant", [])
    names = set()
    mutants = []
    for number, entry in enumerate(entries, 1):
        if set(entry) != set(FIELDS):
            raise Bad(f"mutant {number} of {path.name} has the fields {sorted(entry)}; "
                      f"each needs {', '.join(FIELDS)}")
        if entry["name"] in names:
            raise Bad(f"{entry['name']}: two mutants have this name")
        if not re.search(r"\bMUTANT\b", entry["new"]):
            raise Bad(f"{entry['name']}: `new` does not contain the word MUTANT")
        names.add(entry["name"])
        mutants.append(Mutant(number, **entry))
    return mutants


def planted(text, mutants):
    """The text of one file with these mutants in it."""
    places = []
    for mutant in mutants:
        count = text.count(mutant.old)
        if count != 1:
            raise Bad(f"{mutant.name}: its old text occurs {count} times in {mutant.file}")
        begin = text.index(mutant.old)
        places.append((begin, begin + len(mutant.old), mutant))
    places.sort()
    for (_, end, first), (begin, _, second) in zip(places, places[1:]):
        if begin < end:
            raise Bad(f"{first.name} and {second.name} replace the same text of {first.file}")
    for begin, end, mutant in reversed(places):
        switched = re.sub(r"\bMUTANT\b", f"(::quire::planted_mutant == {mutant.number})",
                          mutant.new)
        text = text[:begin] + switched + text[end:]
    return text


def with_switch(text):
    """The text of a file, with the header of the switch among its includes."""
    pragma = "#pragma once\n"
    include = f'#include "{SWITCH}"\n'
    return (text.replace(pragma, pragma + include, 1) if pragma in text else include + text)


def planted_files(mutants, root=ROOT):
    """Path inside the checkout -> its text with all mutants in it."""
    by_file = collections.defaultdict(list)
    for mutant in mutants:
        if not mutant.file.startswith(("core/", "abi/")) or not (root / mutant.file).is_file():
            raise Bad(f"{mutant.name}: {mutant.file} is no file of core/ or abi/")
        by_file[mutant.file].append(mutant)
    texts = {file: with_switch(planted((root / file).read_text(), of_file))
             for file, of_file in by_file.items()}
    return {SWITCH: SWITCH_TEXT, **texts}


def sources(root=ROOT):
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True).stdout.split("\n")
    return [name for name in listed if name and (root / name).is_file()]


def write(path, content):
    """Leaves a file that has this content already as old as it is: it need not be built again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def make_copy(folder, mutants, root=ROOT):
    """A checkout in `folder` with all mutants in it, which builds as the real one does."""
    texts = planted_files(mutants, root)
    wanted = {*texts, *sources(root)}
    for old in sources(folder) if (folder / ".git").exists() else []:
        if old not in wanted:
            (folder / old).unlink()
    for name in wanted:
        content = texts[name].encode() if name in texts else (root / name).read_bytes()
        write(folder / name, content)
        if name not in texts:
            shutil.copymode(root / name, folder / name)
    if not (folder / ".git").exists():
        subprocess.run(["git", "init", "-q", folder], check=True)
    for shared in (".env", "subprojects/mimalloc"):
        link = folder / shared
        if not link.is_symlink():
            link.symlink_to(root / shared)
