# SPDX-License-Identifier: Apache-2.0
"""tree: an installed Quire that was moved, and an environment that points to no other."""

import os
import pathlib
import shutil
import subprocess
import sys


def stranger():
    """The environment of a user who has only the tree."""
    ours = ("QUIRE_", "LD_", "PKG_CONFIG", "MESON_", "DESTDIR")
    return {key: value for key, value in os.environ.items() if not key.startswith(ours)}


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


class Tree:
    """`meson install` into a folder, then moved to another."""

    def __init__(self, build, prefix, libdir, folder):
        stage = folder / "stage"
        command = [sys.executable, "-m", "mesonbuild.mesonmain", "install", "-C", build, "--quiet",
                   "--no-rebuild", "--destdir", str(stage)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.root = folder / "elsewhere"
        shutil.move(stage / prefix.lstrip("/"), self.root)
        shutil.rmtree(stage)
        self.libdir = self.root / libdir
        self.plugins = self.libdir / "quire" / "backends-0"
        self.command = self.root / "bin" / "quire"

    def files(self):
        """Relative names, with the library's folder called lib on every system."""
        def name(path):
            inside = path.is_relative_to(self.libdir)
            base, head = (self.libdir, "lib/") if inside else (self.root, "")
            return head + path.relative_to(base).as_posix()
        return sorted(name(path) for path in self.root.rglob("*") if not path.is_dir())

    def flags(self, package, *wanted):
        """The flags that pkg-config finds in this tree alone."""
        environment = {**stranger(), "PKG_CONFIG_PATH": str(self.libdir / "pkgconfig")}
        return self.run("pkg-config", *wanted, package, env=environment).stdout.split()

    def run(self, *command, env=None, fails=False):
        process = subprocess.run([*map(str, command)], capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL, timeout=100, env=env or stranger())
        expect((process.returncode != 0) == fails,
               f"{command} ended with {process.returncode}: {process.stdout}{process.stderr}")
        return process


def compiler(language):
    return os.environ[language].split()


def planted(path, text):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
