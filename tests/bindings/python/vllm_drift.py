# SPDX-License-Identifier: Apache-2.0
"""vllm_drift: what an installed vLLM uses of its KV cache manager, by its source, and what
quire.vllm's manager lacks of that.

    vllm_drift.py [--vllm FOLDER] [--gtest_output=xml:FILE]

FOLDER is vLLM's package; default: the one that QUIRE_VLLM_PYTHON, or this Python, has. Nothing of
it is imported, so a newer release can be examined before anything supports it. There is a case per
kind of use, which fails with the names that are missing; and one that removes a method from ours,
and must then name it.
"""

import argparse
import ast
import inspect
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import report  # noqa: E402

CALLERS = ("v1/core/sched/scheduler.py", "v1/core/sched/async_scheduler.py", "v1/engine/core.py",
           "distributed/kv_transfer/kv_connector/v1/base.py")
PARTS = ("block_pool", "coordinator")


def folder():
    """The folder of the installed vLLM; None if there is none."""
    python = os.environ.get("QUIRE_VLLM_PYTHON") or sys.executable
    code = ("import importlib.util as u; s = u.find_spec('vllm'); "
            "print(s.submodule_search_locations[0] if s else '')")
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def is_manager(node):
    """True for `kv_cache_manager` and `x.kv_cache_manager`."""
    return "kv_cache_manager" in (getattr(node, "attr", None), getattr(node, "id", None))


def uses(root):
    """({attribute of the manager}, {part: {attribute}}, {method: {keyword}}) in the callers."""
    attributes, parts, keywords = set(), {part: set() for part in PARTS}, {}
    for name in CALLERS:
        path = root / name
        if not path.exists():
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and is_manager(node.value):
                attributes.add(node.attr)
            if isinstance(node, ast.Attribute) and getattr(node.value, "attr", "") in PARTS \
                    and is_manager(node.value.value):
                parts[node.value.attr].add(node.attr)
            if isinstance(node, ast.Call):
                method = called(node.func)
                if method:
                    keywords.setdefault(method, set()).update(
                        word.arg for word in node.keywords if word.arg)
    return attributes, parts, keywords


def called(function):
    """The manager's method that is called; __init__ for its class; None for another function."""
    if isinstance(function, ast.Attribute) and is_manager(function.value):
        return function.attr
    return "__init__" if getattr(function, "id", "") == "KVCacheManager" else None


def signatures(root):
    """{method: [parameters]} of vLLM's manager."""
    tree = ast.parse((root / "v1/core/kv_cache_manager.py").read_text())
    manager = next(node for node in tree.body
                   if isinstance(node, ast.ClassDef) and node.name == "KVCacheManager")
    return {node.name: [argument.arg for argument in node.args.args + node.args.kwonlyargs]
            for node in manager.body if isinstance(node, ast.FunctionDef)}


def lacking(root, ours, parts):
    """{kind of use: sorted names that ours lacks}."""
    attributes, used_parts, keywords = uses(root)
    theirs = signatures(root)
    missing = {"attributes": {name for name in attributes if not hasattr(ours, name)}}
    for part, names in used_parts.items():
        missing[part] = {name for name in names if not hasattr(parts[part], name)}
    missing["methods"] = {name for name in theirs if not hasattr(ours, name)}
    missing["parameters"] = set()
    for method in set(theirs) | set(keywords):
        function = getattr(type(ours), method, None)
        if inspect.isfunction(function):
            has = set(inspect.signature(function).parameters)
            wants = set(theirs.get(method, ())) | keywords.get(method, set())
            missing["parameters"] |= {f"{method}({name})" for name in wants - has}
    return {kind: sorted(names) for kind, names in missing.items()}


def cases(root):
    from quire import vllm
    manager = vllm.KVCacheManager(vllm.config(8, 4), 8, 4, 4)
    parts = {part: getattr(manager, part) for part in PARTS}
    found = [report.Case("VllmDrift", kind, "failed" if names else "passed", 0,
                         f"vLLM uses what quire.vllm lacks: {', '.join(names)}" if names else "")
             for kind, names in lacking(root, manager, parts).items()]
    method = vllm.KVCacheManager.cache_blocks
    del vllm.KVCacheManager.cache_blocks
    try:
        gap = lacking(root, manager, parts)
        sees = gap["attributes"] == gap["methods"] == ["cache_blocks"]
    finally:
        vllm.KVCacheManager.cache_blocks = method
    manager.close()
    return found + [report.Case("VllmDrift", "names_a_method_that_is_taken_away",
                                "passed" if sees else "failed", 0, "" if sees else str(gap))]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", help="the folder of vLLM's package")
    report.add_option(parser)
    options = parser.parse_args()
    root = options.vllm or folder()
    if root is None:
        return report.write([report.Case("VllmDrift", "uses", "skipped", 0, "no vLLM installed")],
                            options.gtest_output)
    return report.write(cases(pathlib.Path(root)), options.gtest_output)


if __name__ == "__main__":
    sys.exit(main())
