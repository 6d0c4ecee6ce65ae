"""Layer rules that import-linter cannot check: calls without an import, and names with two homes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PURE = ("errors.py", "model", "clouds", "scheduling", "deadlines", "supply", "engine")
CLOCKS = {"now", "today", "utcnow"}  # of datetime and date, whose types are welcome
OUTSIDE = {"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint"}


def impure_calls(source: str) -> list[str]:
    """Give the calls in a module that read a clock or touch the outside world."""
    called = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    clocks = [func.attr for func in called if isinstance(func, ast.Attribute) and func.attr in CLOCKS]
    return clocks + [func.id for func in called if isinstance(func, ast.Name) and func.id in OUTSIDE]


def modules() -> list[Path]:
    """Give the modules of the pure packages."""
    package = ROOT / "src" / "spotwright"
    return [
        path for name in PURE for path in ([package / name] if name.endswith(".py") else (package / name).rglob("*.py"))
    ]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_pure_module_reads_no_clock_and_touches_nothing(path: Path) -> None:
    assert impure_calls(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "call", ["datetime.now()", "date.today()", "datetime.datetime.utcnow()", "open('x')", "print(1)"]
)
def test_an_impure_call_would_be_found(call: str) -> None:
    assert impure_calls(f"def f():\n    return {call}\n")


def borrowed(source: str) -> set[str]:
    """Give the names that a module imports from another one, also for type checking alone, and offers as its own."""
    body = ast.parse(source).body
    body += [node for branch in body if isinstance(branch, ast.If) for node in branch.body]
    imported = {alias.asname or alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    offered = [
        node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return imported & {name for names in offered for name in ast.literal_eval(names)}


def test_a_name_is_offered_by_the_module_that_defines_it_and_else_by_packages_only() -> None:
    modules = [path for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py"]
    found = {str(path.relative_to(ROOT)): borrowed(path.read_text(encoding="utf-8")) for path in modules}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_borrowed_name_would_be_found() -> None:
    assert borrowed('from .a import b, c\n__all__ = ["b", "d"]\nd = c\n') == {"b"}
    assert borrowed('if TYPE_CHECKING:\n    from .a import b, c\n__all__ = ["b"]\n') == {"b"}
