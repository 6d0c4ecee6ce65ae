"""Rules on Python itself, as far as it decides about spot: names that are nowhere defined, and what a program does on SIGTERM."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator
from typing import TypeGuard

from spotwright.lint.python_rules.scopes import calls_named, keyword
from spotwright.lint.rule import Checks, Problem, Rule, Severity
from spotwright.lint.settings import Settings
from spotwright.lint.subjects.python_files import PythonFile

__all__ = ["RULES", "exit_on_sigterm", "preemptible_flag"]

_KNOWN = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__annotations__", "__builtins__", "__spec__"}
_EXITS = ("sys.exit", "exit", "quit", "os._exit")


def exit_on_sigterm(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """A handler of SIGTERM that ends the program with an exit code below 128."""
    functions = {node.name: node for node in file.nodes if isinstance(node, ast.FunctionDef)}
    for call in calls_named(file, "signal"):
        number, handler = keyword(call, "signalnum", 0), keyword(call, "handler", 1)
        if number is None or handler is None or not ast.unparse(number).endswith("SIGTERM"):
            continue
        body: ast.AST | None = functions.get(handler.id) if isinstance(handler, ast.Name) else handler
        for node in ast.walk(body) if body is not None else ():
            code = _exit_code(node)
            if code is not None and code < 128:
                what = "success" if code == 0 else "an error of the code"
                text = f"the handler of SIGTERM exits with {code}, so an interruption counts as {what}"
                yield Problem((), text, line=getattr(node, "lineno", call.lineno))


def _exit_code(node: ast.AST) -> int | None:
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in _EXITS:
        return None
    if not node.args:
        return 0
    given = node.args[0]
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, int) else None


def preemptible_flag(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """Programs that make preemptible nodes with gcloud."""
    for node in file.nodes:
        if isinstance(node, ast.List | ast.Tuple):
            words = [one.value for one in node.elts if isinstance(one, ast.Constant)]
            if "--preemptible" in words and "gcloud" in words:
                yield Problem(
                    (), "this makes nodes with gcloud --preemptible, which live a day at most", line=node.lineno
                )
        elif _is_command(node):
            yield Problem((), "this makes nodes with gcloud --preemptible, which live a day at most", line=node.lineno)


def _is_command(node: ast.AST) -> TypeGuard[ast.Constant]:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    return "gcloud " in node.value and " --preemptible" in node.value


def _undefined(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """Names that a function reads and the file defines nowhere."""
    if not file.uses_kfp or any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in file.nodes):
        return
    if any(isinstance(node, ast.Call) and ast.unparse(node.func) in ("exec", "globals", "vars") for node in file.nodes):
        return
    try:
        table = symtable.symtable(file.text, file.file, "exec")
    except (SyntaxError, ValueError, RecursionError):
        return  # what the parser takes and the compiler does not: a return outside of a function
    defined = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    defined |= (
        {one.get_name() for one in table.get_symbols() if one.is_namespace()} | _KNOWN | set(_declared_global(table))
    )
    missing = set(_read_globals(table)) - defined
    reported: set[str] = set()
    for node in file.nodes:
        if (
            isinstance(node, ast.Name)
            and node.id in missing
            and node.id not in reported
            and isinstance(node.ctx, ast.Load)
        ):
            reported.add(node.id)
            yield Problem((), f"{node.id} is defined nowhere in this file", line=node.lineno)


def _read_globals(table: symtable.SymbolTable) -> Iterator[str]:
    is_module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or is_module) and not (is_module and symbol.is_assigned()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _read_globals(child)


def _declared_global(table: symtable.SymbolTable) -> Iterator[str]:
    for child in table.get_children():
        yield from (one.get_name() for one in child.get_symbols() if one.is_declared_global() and one.is_assigned())
        yield from _declared_global(child)


_HEAD = (
    "from kfp import dsl\n\n{constant}\n@dsl.component\ndef train(action: str): ...\n\n\n"
    "@dsl.pipeline\ndef main():\n    train(action=TRAIN_ACTION)\n"
)

RULES = (
    Rule(
        id="undefined-name",
        severity=Severity.WARNING,
        title="A name that the file does not define",
        why="The file fails when it is loaded (NameError). Pipelines that are copied from a guide often lack the "
        "constants of the rest.",
        fix="Define or import the name.",
        fails=_HEAD.format(constant=""),
        passes=_HEAD.format(constant='TRAIN_ACTION = "train"\n\n'),
        checks=Checks(python=_undefined),
    ),
)
"""The rules of this module."""
