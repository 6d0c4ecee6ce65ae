"""Persistent volume claims that a pipeline makes and deletes: their names, which is all that a claim is until it is mounted.

Sources: ``createPVC`` and ``deletePVC`` in ``backend/src/v2/driver/k8s.go`` of kubeflow/pipelines. There a name that nobody
gave is drawn; here it follows from the run and the task, so that it is the same whoever asks.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

from spotwright.engine.values import context_of, inputs_of
from spotwright.pipelines.placeholders import fill
from spotwright.pipelines.spec import ClaimStep

if TYPE_CHECKING:
    from spotwright.engine.state import RunState, TaskState

__all__ = ["claimed", "deleted", "is_of_run"]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def claimed(state: RunState, task: TaskState) -> dict[str, Any]:
    """The outputs of a task that makes or deletes a claim. Raises ``ValueError`` for a name that can be none."""
    values = _values(state, task)
    executor = task.plan.spec.executor
    if not (isinstance(executor, ClaimStep) and executor.creates):
        _checked(str(values.get("pvc_name") or ""))
        return {"parameters": {}, "artifacts": {}}
    name, suffix = str(values.get("pvc_name") or ""), str(values.get("pvc_name_suffix") or "")
    if name and suffix:
        raise ValueError("only one of pvc_name and pvc_name_suffix can be given")
    return {"parameters": {"name": _checked(name or _drawn(state, task) + suffix)}, "artifacts": {}}


def deleted(state: RunState, task: TaskState) -> str:
    """The claim that a task has deleted; empty where it is no such task."""
    executor = task.plan.spec.executor
    if not isinstance(executor, ClaimStep) or executor.creates:
        return ""
    return str(_values(state, task)["pvc_name"])


def is_of_run(state: RunState, name: str) -> bool:
    """Whether a claim was made in this run under a name that nobody gave: no other run can mean it."""
    return any(
        isinstance(task.plan.spec.executor, ClaimStep)
        and task.parameters.get("name") == name
        and name.startswith(_drawn(state, task))
        for task in state.tasks.values()
    )


def _values(state: RunState, task: TaskState) -> dict[str, Any]:
    given = inputs_of(state, task)
    filled: dict[str, Any] = fill(given.parameters, given.parameters, given.artifacts, context_of(state, task))
    return filled


def _drawn(state: RunState, task: TaskState) -> str:
    text = hashlib.sha256(f"{state.meta.get('run', '')}\0{task.path}".encode()).hexdigest()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"a claim cannot be called {name!r}: expected lower-case letters, digits, - and .")
    return name
