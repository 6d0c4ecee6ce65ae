"""Reuse earlier results: look them up before a task runs, and keep the result of a task that succeeded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spotwright.engine.events import CacheAsked, CacheMissed, TaskCached
from spotwright.engine.io_resolution import inputs_of
from spotwright.engine.state import RunState, TaskState
from spotwright.kfp.executors import fingerprint
from spotwright.kfp.secrets import Secrets

__all__ = ["ResultCache", "Results"]


class Results(NamedTuple):
    """A store of results: functions that find one by its fingerprint, and keep one."""

    find: Callable[[str], Mapping[str, Any] | None]
    keep: Callable[[str, Mapping[str, Any]], None]


@dataclass(slots=True)
class ResultCache:
    """The results that one run may use and adds. ``results`` is ``None`` if caching is off."""

    results: Results | None
    run: str
    secrets: Secrets
    _fingerprints: dict[str, str] = field(default_factory=dict)

    def look_up(self, state: RunState, event: CacheAsked) -> TaskCached | CacheMissed:
        """The earlier result of the same code on the same inputs, or that it is missing."""
        result = self._find(state, state.tasks[event.task])
        if result is None:
            return CacheMissed(event.at, event.task)
        return TaskCached(
            event.at,
            event.task,
            run=result["run"],
            of_task=result["task"],
            parameters=result["parameters"],
            artifacts=result["artifacts"],
        )

    def keep(self, state: RunState, task: TaskState) -> None:
        """Keep the result of a task that succeeded, if the run and the task use the cache.

        This engine did not look up an attempt that a resume started, the next one of a task with attempts.
        """
        key = self._fingerprints.pop(task.path, None)
        if key is None and state.caching and task.plan.spec.caching:
            key = self._key(state, task)
        if key is not None and self.results is not None:
            result = {"parameters": task.parameters, "artifacts": task.artifacts, "run": self.run, "task": task.path}
            self.results.keep(key, result)

    def _find(self, state: RunState, task: TaskState) -> Mapping[str, Any] | None:
        key = self._key(state, task)
        if key is None or self.results is None:
            return None
        self._fingerprints[task.path] = key
        return self.results.find(key)

    def _key(self, state: RunState, task: TaskState) -> str | None:
        """The fingerprint of a task with its inputs; ``None`` if its result is not kept."""
        spec = task.plan.spec
        if self.results is None or spec.executor is None:
            return None
        inputs = inputs_of(state, task)
        if self.secrets.is_in(inputs.parameters):
            return None  # the value of a secret may change while its reference stays the same
        return fingerprint(spec, inputs.parameters, inputs.artifacts)
