# SPDX-License-Identifier: Apache-2.0
"""symbols: libquire exports what abi/symbols.txt lists, and that matches the list in api.h.

    symbols.py LIBRARY abi/symbols.txt include/quire/api.h

Each line of the list is a version node and a name. A function keeps the node of the version that
introduced it, so lines are added and never changed. Besides the functions of QUIRE_API_LIST there
are quire_get_api, which returns the table, and quire_status_name, which needs no table.

After the comparison the same lists are compared with one fault planted in each; each fault must be
found.
"""

import pathlib
import re
import subprocess
import sys

NOT_IN_THE_TABLE = {"quire_get_api", "quire_status_name"}


def exported(library):
    command = ["nm", "-D", "--defined-only", "--with-symbol-versions", library]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names = [line.split()[-1] for line in text.splitlines() if line.split()[-2] != "A"]
    return {(node, name) for name, _, node in (name.partition("@@") for name in names)}


def listed(text):
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {(node, name) for node, name in lines}


def declared(header):
    return {"quire_" + name for name in re.findall(r"^    QUIRE_FN\((\w+),", header, re.MULTILINE)}


def problems(library, names, header):
    found = [f"{name} is exported ({node}), but not listed" for node, name in library - names]
    found += [f"{name} is listed ({node}), but not exported with that node"
              for node, name in names - library]
    in_list = {name for _, name in names} - NOT_IN_THE_TABLE
    found += [f"{name} is listed, but not in QUIRE_API_LIST" for name in in_list - header]
    found += [f"{name} is in QUIRE_API_LIST, but not listed" for name in header - in_list]
    found += [f"{name} is not listed" for name in
              NOT_IN_THE_TABLE - {name for _, name in names}]
    return sorted(found)


def unseen(library, names, header):
    """The planted faults that the comparison does not find."""
    one = ("QUIRE_0.1", "quire_seq_fork")
    renamed = {("QUIRE_0.2", "quire_seq_fork")}
    extra = {("QUIRE_0.1", "quire_secret")}
    faults = {
        "an unlisted export": (library | extra, names, header),
        "a removed function": (library - {one}, names, header),
        "a function that changed its node": ((library - {one}) | renamed, names, header),
        "an export without a node": ((library - {one}) | {("", one[1])}, names, header),
        "a removed line": (library, names - {one}, header),
        "an entry of the table that is not exported": (library, names, header | {"quire_new"}),
        "an export that is not in the table": (library | extra, names | extra, header),
    }
    return [what for what, lists in faults.items() if not problems(*lists)]


def main():
    library = exported(sys.argv[1])
    names = listed(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
    header = declared(pathlib.Path(sys.argv[3]).read_text(encoding="utf-8"))
    found = problems(library, names, header)
    found += [f"the comparison does not see {what}" for what in unseen(library, names, header)]
    print("\n".join(found) or f"{len(library)} exports, all listed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
