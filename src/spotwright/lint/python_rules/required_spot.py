"""Tasks of a pipeline file that may run on spot nodes only, by the calls of kfp 1 and of today.

A known guide calls required affinity its way to survive an eviction: without spot capacity the task waits for ever.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from spotwright.kfp.kfp1 import assigned_calls
from spotwright.lint.python_rules.scopes import calls_named, keyword, names_spot_label
from spotwright.lint.rule import Problem
from spotwright.lint.settings import Settings
from spotwright.lint.subjects.python_files import PythonFile

__all__ = ["required_spot"]

_REQUIRED = "required_during_scheduling_ignored_during_execution"
_FIX = (
    "Write spot.prefer(task)  (import spotwright as spot), or give a weight; spot.require(task) where waiting is meant."
)


def required_spot(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """Calls after which no other node than a spot node will do. A file that uses Spotwright says by its policy what is meant."""
    if any(name.partition(".")[0] == "spotwright" for name in file.modules()):
        return
    assigned = assigned_calls(file.tree)
    for call in calls_named(file, "add_affinity", "add_node_affinity", "add_node_selector"):
        given = _required_part(call, assigned)
        if given is not None and names_spot_label(ast.walk(given)):
            text = f"{_task(call)} may run on spot nodes only, so it waits for ever while there are none"
            yield Problem((), text, _FIX, line=call.lineno)


def _required_part(call: ast.Call, assigned: dict[str, ast.Call]) -> ast.AST | None:
    """What the call requires of nodes; ``None`` where it only prefers, or where the file does not say it."""
    name = ast.unparse(call.func).rpartition(".")[2]
    if name == "add_node_affinity":
        weight = keyword(call, "weight", 3)
        return call if weight is None or ast.unparse(weight) == "None" else None
    if name == "add_node_selector":
        return call
    given = call.args[0] if call.args else None
    affinity = assigned.get(given.id) if isinstance(given, ast.Name) else given
    if affinity is None:
        return None
    return next(
        (one.value for one in ast.walk(affinity) if isinstance(one, ast.keyword) and one.arg == _REQUIRED), None
    )


def _task(call: ast.Call) -> str:
    """The task, by the name that it has in the file."""
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr == "add_affinity"
    node = call.func.value if isinstance(call.func, ast.Attribute) and is_method else keyword(call, "task", 0)
    return node.id if isinstance(node, ast.Name) else "a task"
