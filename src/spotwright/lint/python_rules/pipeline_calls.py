"""Rules on calls of the KFP SDK: arguments that do not exist, retries that end too soon, affinity that means something else.

Sources: kfp and kfp-kubernetes 2.17, ``dsl/pipeline_task.py``, ``kubernetes/toleration.py``, ``kubernetes/node_affinity.py``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from spotwright.kfp.dsl_compiler import KUBERNETES, unknown_arguments
from spotwright.lint.python_rules.scopes import asks_for_spot, calls_named, in_components, keyword, pipelines_in
from spotwright.lint.rule import Checks, Problem, Rename, Rule, Severity
from spotwright.lint.settings import Settings
from spotwright.lint.subjects.python_files import PythonFile
from spotwright.model.quantities import parse_duration

__all__ = ["RULES", "SHORTEST_WINDOW", "affinities_ored", "backoff_factor", "retry_window"]

SHORTEST_WINDOW = 24 * 3600
"""Seconds in which all attempts of a task should have room; the SDK's default is 3600."""

_HEAD = (
    "from kfp import dsl, kubernetes\n\n\n@dsl.component\ndef train(): ...\n\n\n"
    "@dsl.pipeline\ndef main():\n    task = train()\n"
)


def _unknown(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    if not file.uses_kfp and not pipelines_in(file):
        return
    for found in unknown_arguments(file.tree):
        rename = Rename(found.line, found.column, found.argument, found.close) if found.close else None
        fix = f"Write {found.close}=." if found.close else "Remove the argument."
        yield Problem((), found.message, fix, line=found.line, rename=rename)


def retry_window(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """Retries in a file about spot whose window ends an hour after the first start, as the SDK writes it."""
    if not asks_for_spot(file):
        return
    inside = in_components(file)
    for call in calls_named(file, "set_retry"):
        count = keyword(call, "num_retries", 0)
        if id(call) in inside or (isinstance(count, ast.Constant) and count.value == 0):
            continue
        given = keyword(call, "backoff_max_duration", 3)
        seconds = _seconds(given)
        if seconds is not None and seconds < SHORTEST_WINDOW:
            text = f"set_retry allows retries only until {seconds:g} s after the first start"
            yield Problem((), text, "Add backoff_max_duration='30d'.", line=call.end_lineno or call.lineno)


def _seconds(given: ast.expr | None) -> float | None:
    """The window in seconds; ``None`` where the file does not say it in one word."""
    if given is None:
        return 3600.0
    if not isinstance(given, ast.Constant) or not isinstance(given.value, str):
        return None
    try:
        return parse_duration(given.value)
    except ValueError:
        return None


def backoff_factor(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """A backoff factor that is no whole number."""
    for call in calls_named(file, "set_retry"):
        factor = keyword(call, "backoff_factor", 2)
        if isinstance(factor, ast.Constant) and isinstance(factor.value, float) and not factor.value.is_integer():
            yield Problem((), f"set_retry has the backoff factor {factor.value:g}", line=factor.lineno)


def affinities_ored(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """Several required affinities of one task in one function."""
    for function in pipelines_in(file).values():
        seen: dict[str, int] = {}
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            is_affinity = isinstance(call.func, ast.Attribute | ast.Name) and ast.unparse(call.func).endswith(
                "add_node_affinity"
            )
            task = keyword(call, "task", 0)
            weight = keyword(call, "weight", 3)
            if (
                not is_affinity
                or not isinstance(task, ast.Name)
                or (weight is not None and ast.unparse(weight) != "None")
            ):
                continue
            if task.id in seen:
                text = f"{task.id} has a required node affinity on line {seen[task.id]} and another here, of which one is enough"
                yield Problem((), text, line=call.lineno)
            seen.setdefault(task.id, call.lineno)


def _dropped_seconds(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    for call in calls_named(file, "add_toleration_json"):
        given = keyword(call, "toleration_json", 1)
        for node in ast.walk(given) if given is not None else ():
            if isinstance(node, ast.Constant) and node.value == "tolerationSeconds":
                text = "add_toleration_json drops tolerationSeconds in silence"
                yield Problem((), text, line=node.lineno)


def _settings_of_pipelines(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """Settings for Kubernetes on a task that is a pipeline itself."""
    pipelines = pipelines_in(file)
    for function in pipelines.values():
        inner = {
            target.id: node.value.func.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            for target in node.targets
            if isinstance(target, ast.Name) and node.value.func.id in pipelines
        }
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            task = keyword(call, "task", 0)
            if name.rpartition(".")[2] in KUBERNETES and isinstance(task, ast.Name) and task.id in inner:
                text = f"{name} is called on {task.id}, which is the pipeline {inner[task.id]} and no task with a pod"
                yield Problem((), text, line=call.lineno)


RULES = (
    Rule(
        id="unknown-argument",
        severity=Severity.ERROR,
        title="An argument that a function of the SDK does not have",
        why="The call fails when the file is loaded (TypeError). backoff_dureation of a known guide is one of these.",
        fix="Write the argument that was meant.",
        fails=_HEAD + '    task.set_retry(num_retries=5, backoff_dureation="5m", backoff_max_duration="30d")\n',
        passes=_HEAD + '    task.set_retry(num_retries=5, backoff_duration="5m", backoff_max_duration="30d")\n',
        checks=Checks(python=_unknown),
        mends=True,
    ),
    Rule(
        id="toleration-seconds-dropped",
        severity=Severity.WARNING,
        title="add_toleration_json with tolerationSeconds",
        why="The SDK reads toleration_seconds from a dictionary and drops the Kubernetes name in silence, so the pod "
        "stays for ever.",
        fix="Use add_toleration(task, ..., toleration_seconds=N).",
        fails=_HEAD
        + '    kubernetes.add_toleration_json(task, {"key": "a", "operator": "Exists", "tolerationSeconds": 30})\n',
        passes=_HEAD + '    kubernetes.add_toleration(task, key="a", operator="Exists", toleration_seconds=30)\n',
        checks=Checks(python=_dropped_seconds),
        source="kfp-kubernetes 2.17, toleration.py",
    ),
    Rule(
        id="settings-of-a-pipeline",
        severity=Severity.ERROR,
        title="Settings for Kubernetes on a task that is a pipeline",
        why="Only tasks with a pod have them; the SDK refuses the file (ValueError).",
        fix="Set them inside the inner pipeline, on its tasks.",
        fails=_HEAD.replace("def main", "def inner")
        + '\n\n@dsl.pipeline\ndef outer():\n    part = inner()\n    kubernetes.add_node_selector(part, "pool", '
        '"spot")\n',
        passes=_HEAD.replace("def main", "def inner")
        + '    kubernetes.add_node_selector(task, "pool", "spot")\n\n\n@dsl.pipeline\ndef outer():\n    inner()\n',
        checks=Checks(python=_settings_of_pipelines),
    ),
)
"""The rules of this module."""
