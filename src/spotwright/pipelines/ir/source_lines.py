"""Find the line of a task in the user's file, for error messages.

Only an error message needs the line, so the file is read again: a compiled file for the task itself, a Python file for the call
that makes the task. The SDK keeps no lines, but it names a task after its component's function and numbers further calls
(``train``, ``train-2``) in the order of the file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spotwright.pipelines.ir.compiled import Compiled
from spotwright.pipelines.ir.task_names import group_names

__all__ = ["line_at", "line_of", "place_of"]

_NUMBERED = re.compile(r"(.+?)-(\d+)")


def line_of(file: str, ir: Mapping[str, Any], path: str) -> int | None:
    """The line of a task, by its path in the pipeline; ``None`` where it cannot be found."""
    keys = _keys(ir, path)
    if not keys:
        return None
    try:
        if file.endswith(".py"):
            return _line_of_call(Path(file), keys[-1])
        return _line_in_yaml(Path(file), ir, keys) if file.endswith((".yaml", ".yml")) else None
    except (OSError, ValueError, SyntaxError):
        return None


def line_at(file: Path, path: tuple[str | int, ...]) -> int | None:
    """The line of a YAML file at which a value stands, by its keys from the top; ``None`` where it cannot be found."""
    if file.suffix not in (".yaml", ".yml"):
        return None
    try:
        lines = (_line_of_node(document, path) for document in _compose(file))
        return next((line for line in lines if line is not None), None)
    except (OSError, ValueError):
        return None


def _keys(ir: Mapping[str, Any], path: str) -> list[str]:
    """The keys of the tasks on the way to a task, outermost first; a group may have another name than its key."""
    keys: list[str] = []
    definition = ir.get("root") or {}
    for name in path.split("/"):
        tasks = (definition.get("dag") or {}).get("tasks") or {}
        key = next((key for key, shown in group_names(tasks).items() if shown == name), None)
        if key is None:
            return []
        keys.append(key)
        component = (tasks[key].get("componentRef") or {}).get("name")
        definition = (ir.get("components") or {}).get(component) or {}
    return keys


def _compose(file: Path) -> Iterator[Any]:
    import yaml

    with file.open(encoding="utf-8") as text:
        yield from yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _line_in_yaml(file: Path, ir: Mapping[str, Any], keys: list[str]) -> int | None:
    document = next(_compose(file), None)
    place: tuple[str, ...] = ("root",)
    definition = ir.get("root") or {}
    for key in keys[:-1]:
        component = definition["dag"]["tasks"][key]["componentRef"]["name"]
        place, definition = ("components", component), ir["components"][component]
    return _line_of_node(document, (*place, "dag", "tasks", keys[-1]))


def _line_of_node(node: Any, path: tuple[str | int, ...]) -> int | None:
    line = None
    for step in path:
        parts = node.value if isinstance(getattr(node, "value", None), list) else []
        if isinstance(step, int) and node.id == "sequence":
            matches = [(part, part) for part in parts[step : step + 1]]
        else:
            matches = [(key, value) for key, value in parts if key.value == str(step)] if node.id == "mapping" else []
        if not matches:
            return None
        line, node = matches[0][0].start_mark.line + 1, matches[0][1]
    return line


def _line_of_call(file: Path, key: str) -> int | None:
    """The line of the call that makes a task: the second call of ``train`` makes ``train-2``."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    numbered = _NUMBERED.fullmatch(key)
    for name, number in ((key, 1), *([(numbered[1], int(numbered[2]))] if numbered else [])):
        calls = sorted(call.lineno for call in _calls_outside_components(tree) if _sdk_name(call) == name)
        if len(calls) >= number:
            return calls[number - 1]
    return None


def _calls_outside_components(node: ast.AST) -> Iterator[ast.Call]:
    """Every call outside the code of components, in which a call such as ``file.write`` makes no task."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and any(
            "component" in ast.unparse(each) for each in child.decorator_list
        ):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _calls_outside_components(child)


def _sdk_name(call: ast.Call) -> str:
    """The name that the SDK gives to a task of the called function."""
    function = call.func
    name = (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )
    return name.lower().replace("_", "-")


def place_of(compiled: Compiled, path: str) -> str:
    """The file and, where it is known, the line of a task in the user's source."""
    line = line_of(compiled.source, compiled.ir, path)
    return compiled.source if line is None else f"{compiled.source}:{line}"
