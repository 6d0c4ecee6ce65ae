"""Import walls: modules that frequently started or user-side code must not load.

Import contracts cannot express this: to them an import inside a function is as good as one at the top.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotwright.cli import _COMMANDS, _POOLS_COMMANDS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "spotwright"
OPTIONAL = {
    "accelerate",
    "save_coordinator",
    "attended_training",
    "dcp",
    "folder_saves",
    "group_saves",
    "huggingface",
    "keras",
    "lightgbm",
    "lightning",
    "random_states",
    "rank_keys",
    "shard_layout",
    "sharded_state",
    "shared_save",
    "sklearn",
    "torch",
    "xgboost",
}  # modules of checkpoint, each for users of that package
HELP = """\
sys.argv = ["spotwright", *{words}, "--help"]
from spotwright.cli import main
try:
    main()
except SystemExit:
    pass
"""
LOADED = """\
import json, sys
before = set(sys.modules)
{code}
print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""
CYTHON = ("cython_runtime", "_cython_")  # of PyYAML's compiled half
HELPS = [[], *([name] for name in _COMMANDS), *(["pools", name] for name in _POOLS_COMMANDS)]


def third_parties(code: str) -> set[str]:
    """The packages that are neither the standard library's nor ours, and that are there after this code."""
    script = LOADED.format(code=code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    names = {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}
    return {name for name in names - sys.stdlib_module_names - {"spotwright"} if not name.startswith(CYTHON)}


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_help_loads_no_package_but_those_of_the_command_line_and_of_yaml(words: list[str]) -> None:
    assert third_parties(HELP.format(words=words)) <= {"click", "yaml", "_yaml"}


def test_the_command_that_explains_a_cluster_needs_no_server() -> None:
    """A laptop reads a cluster without the packages of the webhook: the imports of ``explain --cluster``."""
    code = "from spotwright.cluster import explaining, log_client"
    assert third_parties(code) & {"aiohttp", "cryptography"} == set()


def modules_of(package: str) -> list[str]:
    paths = sorted((SOURCE / package).rglob("*.py"))
    parts = [path.relative_to(SOURCE.parent).with_suffix("").parts for path in paths if path.stem not in OPTIONAL]
    return [".".join(names[:-1] if names[-1] == "__init__" else names) for names in parts]


@pytest.mark.parametrize("package", ["checkpoint", "notices"])
def test_what_user_code_imports_is_of_the_standard_library(package: str) -> None:
    assert third_parties(f"import {', '.join(modules_of(package))}") == set()


def imports(path: Path) -> Iterator[str]:
    """The first parts of the absolute modules that a module imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


def test_the_supervisor_needs_the_standard_library_alone() -> None:
    used = {name for path in (SOURCE / "local" / "supervisor").rglob("*.py") for name in imports(path)}
    assert used - sys.stdlib_module_names == {"kfp"}  # in the process that executes a component, which has it
