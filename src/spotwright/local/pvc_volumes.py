"""Folders that stand for persistent volume claims, shared between runs or owned by the run that made the claim."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from spotwright.engine.io_resolution import context_of, filled_inputs
from spotwright.engine.state import RunState, TaskState
from spotwright.errors import StateError
from spotwright.kfp.executors import PvcStep, generated_pvc_name

__all__ = ["Volumes", "deleted_pvc"]


class Volumes(NamedTuple):
    """The folders of claims: below ``own`` for those that the run made under a generated name, from ``shared`` for others."""

    own: str
    shared: Callable[[str], Path]

    def folder(self, state: RunState, claim: str) -> Path:
        """The folder of a claim."""
        shared = self.shared(claim)
        return Path(self.own, shared.name) if _is_of_run(state, claim) else shared

    def delete(self, state: RunState, claim: str) -> None:
        """Delete the content of a claim. Raises :class:`StateError`."""
        import shutil

        folder = self.folder(state, claim)
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return  # the claim was never mounted
        except OSError as error:
            raise StateError(f"{folder}: cannot be deleted ({error.strerror})") from error


def deleted_pvc(state: RunState, task: TaskState) -> str:
    """The name of the claim that a completed task deletes; empty for every other task."""
    executor = task.plan.spec.executor
    if not isinstance(executor, PvcStep) or executor.creates:
        return ""
    return str(filled_inputs(state, task).parameters["pvc_name"])


def _is_of_run(state: RunState, name: str) -> bool:
    """Whether this run made the claim under a generated name, so that no other run can use it."""
    return any(
        isinstance(task.plan.spec.executor, PvcStep)
        and task.parameters.get("name") == name
        and name.startswith(generated_pvc_name(context_of(state, task)))
        for task in state.tasks.values()
    )
