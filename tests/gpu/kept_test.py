# SPDX-License-Identifier: Apache-2.0
"""kept_test: kernels that were compiled before are copied only if the same would come out again.

    kept_test.py KEPT     KEPT: backends/gpu/kept.py

The compiler is a script that counts its runs, in folders of this test alone.
"""

import pathlib
import subprocess
import sys
import tempfile

# compiler [ARGUMENT...] [-MD -MF RULE] SOURCE -o OUTPUT: copies SOURCE, which names one header.
COMPILER = """#!/bin/sh
PATH=/usr/bin:/bin
here=$(dirname "$0")
[ "$1" = --version ] && { cat "$here/version"; exit 0; }
while [ $# -gt 3 ]; do [ "$1" = -MF ] && rule=$2; shift; done
echo run >>"$here/runs"
echo "about $1" >&2
[ -z "$rule" ] || printf 'all.o: %s \\\\\\n  %s\\n' "$(realpath "$1")" "$HEADER" >"$rule"
grep -q wrong "$1" && exit 3
cat "$1" "$HEADER" >"$3"
"""


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


class Workshop:
    """A folder with a compiler, a source and a header of the project."""

    def __init__(self, folder, kept):
        self.folder, self.kept = folder, kept
        for name, text in (("compiler", COMPILER), ("ccache", "#!/bin/sh\n")):
            path = folder / name
            path.write_text(text)
            path.chmod(0o755)
        self.header = kept.with_name("embed.py")  # only a file of the project is missed
        (folder / "version").write_text("version 1")
        (folder / "runs").touch()
        self.source, self.output = folder / "source", folder / "output"
        self.source.write_text("source 1")
        self.messages = folder / "messages"

    def run(self, *arguments, includes=None, has_ccache=True):
        """The exit status, what was printed, and how often the compiler ran.

        includes: the header that the source does name.
        """
        before = self.count()
        path = str(self.folder if has_ccache else self.folder / "nothing")
        self.output.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, self.kept, "--messages", self.messages, self.source, self.output,
             "--reads", self.header, "--", self.folder / "compiler", *arguments],
            env={"PATH": path, "XDG_CACHE_HOME": str(self.folder / "cache"),
                 "HEADER": str(includes or self.header)},
            capture_output=True, text=True, check=False)
        return done.returncode, done.stderr, self.count() - before

    def count(self):
        return len((self.folder / "runs").read_text().split())

    def gives(self, runs, what, *arguments, **options):
        status, said, count = self.run(*arguments, **options)
        expect(status == 0 and count == runs, f"{what}: {status}, {count} runs, {said}")
        text = self.source.read_text() + self.header.read_text()
        expect(self.output.read_text() == text, f"{what}: another output")
        expect(self.messages.read_text() == f"about {self.source}\n", f"{what}: other messages")


def main():
    kept = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        shop = Workshop(pathlib.Path(scratch), kept)
        shop.gives(1, "the first time")
        shop.gives(0, "the same again")
        shop.gives(1, "another argument", "-O1")
        (shop.folder / "version").write_text("version 2")
        shop.gives(1, "another compiler")
        shop.source.write_text("source 2")
        shop.gives(1, "another source")
        shop.gives(0, "the same again")
        entries = list((shop.folder / "cache/quire/kernels").iterdir())
        expect(len(entries) == 4, f"{len(entries)} entries of 4")
        for entry in entries:
            (entry / "1").unlink()
        shop.gives(1, "an entry that is not whole")
        shop.gives(0, "it is whole again")
        shop.gives(1, "without ccache", has_ccache=False)

        shop.source.write_text("source 4")
        unlisted = kept.with_name("meson.build")
        status, said, _ = shop.run(includes=unlisted)
        expect(status == 1 and "backends/gpu/meson.build" in said, f"{status}: {said}")

        shop.source.write_text("wrong")
        for _ in range(2):
            status, said, count = shop.run()
            expect((status, count) == (3, 1) and "about" in said, f"{status}, {count}: {said}")
        shop.source.write_text("source 3")
        (shop.folder / "cache").rename(shop.folder / "gone")
        (shop.folder / "cache").write_text("no folder can be made here")
        shop.gives(1, "nothing can be kept")
    print("kernels are kept as they should be")


if __name__ == "__main__":
    main()
