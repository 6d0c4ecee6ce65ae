"""Where in the user's file a task stands, for messages about what is wrong with it.

Only a message needs this, so it may read the file once more: a compiled file for the line of the task itself, a Python file for
the call that makes it. The SDK keeps no lines, but it names a task after its component's function and numbers further calls
(``train``, ``train-2``), in the order in which they stand.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spotwright.model.kfp_settings import group_names

__all__ = ["line_at", "line_of"]

_NUMBERED = re.compile(r"(.+?)-(\d+)")


def line_of(file: str, ir: Mapping[str, Any], path: str) -> int | None:
    """The line of a task, by its path in the pipeline; ``None`` where it cannot be known."""
    keys = _keys(ir, path)
    if not keys:
        return None
    try:
        if file.endswith(".py"):
            return _called(Path(file), keys[-1])
        return _written(Path(file), ir, keys) if file.endswith((".yaml", ".yml")) else None
    except (OSError, ValueError, SyntaxError):
        return None


def line_at(file: Path, path: tuple[str | int, ...]) -> int | None:
    """The line of a YAML file at which a value stands, by its keys from the top; ``None`` where it cannot be known."""
    if file.suffix not in (".yaml", ".yml"):
        return None
    try:
        lines = (_line_at(document, path) for document in _composed(file))
        return next((line for line in lines if line is not None), None)
    except (OSError, ValueError):
        return None


def _keys(ir: Mapping[str, Any], path: str) -> list[str]:
    """The keys of the tasks on the way to one; a group may have another name than its key."""
    keys: list[str] = []
    definition = ir.get("root") or {}
    for name in path.split("/"):
        tasks = (definition.get("dag") or {}).get("tasks") or {}
        found = [key for key, shown in group_names(tasks).items() if shown == name]
        if not found:
            return []
        keys.append(found[0])
        component = (tasks[found[0]].get("componentRef") or {}).get("name")
        definition = (ir.get("components") or {}).get(component) or {}
    return keys


def _composed(file: Path) -> Iterator[Any]:
    import yaml

    with file.open(encoding="utf-8") as text:
        yield from yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _written(file: Path, ir: Mapping[str, Any], keys: list[str]) -> int | None:
    document = next(_composed(file), None)
    where: tuple[str, ...] = ("root",)
    definition = ir.get("root") or {}
    for key in keys[:-1]:
        component = definition["dag"]["tasks"][key]["componentRef"]["name"]
        where, definition = ("components", component), ir["components"][component]
    return _line_at(document, (*where, "dag", "tasks", keys[-1]))


def _line_at(node: Any, path: tuple[str | int, ...]) -> int | None:
    line = None
    for step in path:
        parts = node.value if isinstance(getattr(node, "value", None), list) else []
        if isinstance(step, int) and node.id == "sequence":
            found = [(part, part) for part in parts[step : step + 1]]
        else:
            found = [(key, value) for key, value in parts if key.value == str(step)] if node.id == "mapping" else []
        if not found:
            return None
        line, node = found[0][0].start_mark.line + 1, found[0][1]
    return line


def _called(file: Path, key: str) -> int | None:
    """The line of the call that makes a task: the second call of ``train`` makes ``train-2``."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    numbered = _NUMBERED.fullmatch(key)
    for name, number in ((key, 1), *([(numbered[1], int(numbered[2]))] if numbered else [])):
        calls = sorted(node.lineno for node in _outside_components(tree) if _name(node) == name)
        if len(calls) >= number:
            return calls[number - 1]
    return None


def _outside_components(node: ast.AST) -> Iterator[ast.Call]:
    """Every call that is not in the code of a component, where ``file.write`` is no task."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and any(
            "component" in ast.unparse(each) for each in child.decorator_list
        ):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _outside_components(child)


def _name(call: ast.Call) -> str:
    """The name of a called function as the SDK writes it."""
    function = call.func
    name = (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )
    return name.lower().replace("_", "-")
