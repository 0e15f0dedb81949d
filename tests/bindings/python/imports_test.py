# SPDX-License-Identifier: Apache-2.0
"""The package's modules import in the order that its docstring states, so that none imports itself
through others. Imports for annotations and inside functions count too."""

import ast
import pathlib
import tempfile
import unittest

import quire

PACKAGE = pathlib.Path(quire.__file__).parent
WHOLE = "__init__"   # a module that imports the whole package imports what imports it


def stated_order(docstring):
    """The modules of the docstring's last paragraph, from the bottom to the top."""
    return docstring.split("\n\n")[-1].split()


def targets(node, modules):
    """The modules of the package that an import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        module = ".".join(["quire"] * node.level + [node.module or ""]).strip(".")
        names = [f"{module}.{alias.name}" for alias in node.names]
    else:
        return
    for name in names:
        package, _, rest = name.partition(".")
        first = rest.partition(".")[0]
        if package == "quire":
            yield first if first in modules else WHOLE


def problems(folder, order):
    """What breaks the order, one line each."""
    paths = {path.stem: path for path in sorted(folder.glob("*.py"))}
    found = [f"{name} is listed, but does not exist" for name in order if name not in paths]
    for name, path in paths.items():
        if name not in [*order, WHOLE]:
            found.append(f"{name} has no place yet: list it in the package's docstring")
            continue
        below = order if name == WHOLE else order[:order.index(name)]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found += [f"{path.name}:{node.lineno}: imports {target}, which is not below it"
                      for target in targets(node, paths) if target not in below]
    return found


class Order(unittest.TestCase):
    def test_each_module_imports_only_those_before_it(self):
        self.assertEqual(problems(PACKAGE, stated_order(quire.__doc__)), [])


class Planted(unittest.TestCase):
    """The check finds each offence in a package of the modules low and high, and no other."""

    def said(self, **modules):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for module, text in {"__init__": "", "low": "", "high": "", **modules}.items():
                (folder / f"{module}.py").write_text(text, encoding="utf-8")
            return problems(folder, ["low", "high"])

    def test_order_is_accepted(self):
        self.assertEqual(self.said(
            __init__="from .high import A\nfrom .low import B\n",
            high="import enum\nimport numpy as np\nfrom . import low\nfrom .low import B\n"
                 "import quire.low\nfrom quire.low import B\n"), [])

    def test_import_upwards_is_found(self):
        for text in ("from . import high", "from .high import A", "import quire.high",
                     "from quire import high", "from quire.high import A",
                     "if TYPE_CHECKING:\n    from .high import A",
                     "def late():\n    from .high import A"):
            with self.subTest(text=text):
                said, = self.said(low=text)
                self.assertIn("imports high, which is not below it", said)

    def test_circle_is_found(self):
        said = self.said(low="if TYPE_CHECKING:\n    from .high import A\n",
                         high="from .low import B\n")
        self.assertEqual(said, ["low.py:2: imports high, which is not below it"])

    def test_import_of_the_whole_package_is_found(self):
        for text in ("import quire", "from quire import Cache", "from . import Cache"):
            with self.subTest(text=text):
                said, = self.said(high=text)
                self.assertIn("imports __init__", said)

    def test_module_without_a_place_is_found(self):
        said, = self.said(novel="")
        self.assertIn("novel has no place yet", said)

    def test_module_that_is_gone_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            self.assertEqual(problems(pathlib.Path(name), ["low"]),
                             ["low is listed, but does not exist"])


if __name__ == "__main__":
    unittest.main()
