"""Sizes that keep the code readable, and modules that stand for nothing but another one."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "spotwright"
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
MODULES = sorted(SOURCE.rglob("*.py"))
MOST_MODULES, MOST_FILES, MOST_LINES = 15, 20, 400


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def modules_of(package: Path) -> list[str]:
    return [path.name for path in package.glob("*.py") if path.name != "__init__.py"]


@pytest.mark.parametrize("package", PACKAGES, ids=named)
def test_a_package_has_at_most_fifteen_modules(package: Path) -> None:
    assert len(modules_of(package)) <= MOST_MODULES


@pytest.mark.parametrize("package", PACKAGES, ids=named)
def test_a_package_says_in_its_first_line_what_it_is(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert docstring.partition("\n")[0].endswith("."), docstring


def test_no_folder_has_more_than_twenty_files() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    sizes = Counter(str(Path(name).parent) for name in tracked.split("\0") if name and (ROOT / name).exists())
    assert {folder: size for folder, size in sizes.items() if size > MOST_FILES} == {}


def test_no_module_has_more_than_four_hundred_lines() -> None:
    files = [
        path
        for folder in ("src", "tests", "benchmarks", "scripts", "testbed")
        for path in (ROOT / folder).rglob("*.py")
    ]
    sizes = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {path: size for path, size in sizes.items() if size > MOST_LINES} == {}


def is_alias(source: str) -> bool:
    """Whether a module defines nothing of its own: only a docstring, imports and ``__all__``."""
    return all(
        isinstance(node, (ast.Import, ast.ImportFrom))
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
        for node in ast.parse(source).body
    )


def test_no_module_is_only_another_name_for_others() -> None:
    found = [path for path in MODULES if path.name != "__init__.py" and is_alias(path.read_text(encoding="utf-8"))]
    assert [named(path) for path in found] == []


def test_an_alias_would_be_found() -> None:
    assert is_alias('"""Old name."""\nfrom .new import Thing\n__all__ = ["Thing"]\n')
    assert not is_alias("from .new import Thing\nOther = Thing\n")


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
