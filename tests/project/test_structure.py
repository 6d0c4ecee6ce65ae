"""Structural rules beside the import contracts: few packages, and none that only re-exports names."""

from __future__ import annotations

import ast
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "spotwright"
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")

TORN_OUT = 5  # generator_hook.py among them, which is executed in interpreters of users
"""How many modules have less than 120 lines and one importer: pages torn out of it. It only falls: lower it with the code."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("spotwright", cache_dir=None)


@pytest.mark.parametrize("package", PACKAGES, ids=named)
def test_a_package_says_in_its_first_line_what_it_is(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert docstring.partition("\n")[0].endswith("."), docstring


def is_torn_out(path: Path, graph: grimp.ImportGraph) -> bool:
    name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    few = len(path.read_text(encoding="utf-8").splitlines()) < 120
    return few and len(graph.find_modules_that_directly_import(name)) == 1


def test_small_modules_with_one_importer_become_fewer(graph: grimp.ImportGraph) -> None:
    found = [named(path) for path in MODULES if is_torn_out(path, graph)]
    assert len(found) == TORN_OUT, "\n".join(found)


def is_alias(source: str) -> bool:
    """Whether a module defines nothing: only a docstring, imports and ``__all__``."""
    return all(
        isinstance(node, (ast.Import, ast.ImportFrom))
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
        for node in ast.parse(source).body
    )


def test_no_module_is_only_another_name_for_others() -> None:
    found = [path for path in MODULES if is_alias(path.read_text(encoding="utf-8"))]
    assert [named(path) for path in found] == []


def test_an_alias_would_be_found() -> None:
    assert is_alias('"""Old name."""\nfrom .new import Thing\n__all__ = ["Thing"]\n')
    assert not is_alias("from .new import Thing\nOther = Thing\n")


SAME_NAMES = {
    "api": "functions of the public Python API",
    "errors": "the errors that a package raises",
    "report": "a result as text and as JSON",
}
"""Names that several modules have, with the one meaning that all of them share."""


def test_two_modules_have_one_name_only_where_it_means_the_same() -> None:
    # A command and a rule of lint are named by what they are about, which has a module of its own elsewhere.
    named_by_subject = (SOURCE / "cli", SOURCE / "linter" / "rules")
    found: dict[str, list[str]] = {}
    for path in MODULES:
        if path.parent not in named_by_subject and path.stem not in SAME_NAMES:
            found.setdefault(path.stem, []).append(named(path))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def imported_tests(source: str) -> list[str]:
    """The test modules that a module imports, by their dotted names."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return [name for name in found if any(part.startswith("test_") for part in name.split("."))]


def test_no_test_is_imported() -> None:
    # What several tests need is in a conftest.py or in a module named by what it holds. A test that is moved, split or
    # deleted then breaks no other one.
    folders = ("tests", "benchmarks", "testbed", "scripts")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    found = {named(path): imported_tests(path.read_text(encoding="utf-8")) for path in sorted(paths)}
    assert {path: names for path, names in found.items() if names} == {}


def test_an_import_of_a_test_would_be_found() -> None:
    assert imported_tests("from tests.pools.test_checks import job") == [
        "tests.pools.test_checks",
        "tests.pools.test_checks.job",
    ]
    assert imported_tests("from . import test_checks") == ["..test_checks"]
    assert imported_tests("import tests.pools.test_checks") == ["tests.pools.test_checks"]
    assert imported_tests("from tests.pools.checked_pools import job") == []
