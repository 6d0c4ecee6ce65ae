"""Dialects: how the source of a graph writes values. KFP's conventions reach the engine through this port.

The engine resolves sources, opens loops and evaluates conditions. A dialect defines the meaning of strings in the graph and the
form of values. Pod templates contain literal values only, so :data:`PLAIN` is enough for them; KFP's dialect is in
:mod:`spotwright.pipelines.graph.kfp_dialect`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from spotwright.graph.declarations import ParameterSpec
    from spotwright.graph.tasks import TaskSpec

__all__ = ["PLAIN", "Dialect", "PlainDialect", "TaskContext", "TaskEnd"]


class TaskContext(NamedTuple):
    """The task and the run to which placeholders of a graph may refer.

    ``run`` is the run's name, ``task`` the task's path, ``name`` its name in its DAG, ``created_at`` the run's start as Unix
    time, ``workspace`` the folder that all tasks of the run share.
    """

    run: str
    task: str
    created_at: float
    name: str = ""
    workspace: str = ""


class TaskEnd(NamedTuple):
    """How a task ended: ``status`` is ``succeeded``, ``failed``, ``skipped`` or ``cancelled``; ``error`` is why it failed."""

    run: str
    name: str
    status: str
    cached: bool = False
    error: str = ""


class Dialect(Protocol):
    """The meaning of strings and values in the graphs of one source."""

    def fill(
        self, value: Any, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: TaskContext
    ) -> Any:
        """The JSON value with its placeholders filled in."""

    def parse(self, text: str) -> Any:
        """The list or mapping that a string contains. Raises ``ValueError``."""

    def condition_inputs(self, specs: Mapping[str, ParameterSpec], values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs of a task in the form that its condition reads."""

    def final_status(self, end: TaskEnd) -> Any:
        """The value that an input for the final status of another task gets."""

    def read_deferred(self, task: TaskSpec, values: Mapping[str, Any]) -> TaskSpec:
        """The task with its ``deferred`` settings read from the values of its inputs. Raises :class:`PipelineError`."""

    def shown(self, name: str) -> str:
        """An input's name as the user wrote it, for messages."""


@dataclass(frozen=True, slots=True)
class PlainDialect:
    """Literal values: no placeholders, no deferred settings."""

    def fill(
        self,
        value: Any,
        parameters: Mapping[str, Any],  # noqa: ARG002 - the port defines the parameters
        artifacts: Mapping[str, Any],  # noqa: ARG002
        context: TaskContext,  # noqa: ARG002
    ) -> Any:
        """The value itself."""
        return value

    def parse(self, text: str) -> Any:
        """Refuse: a string is just a string."""
        raise ValueError(f"the string {text[:60]!r} contains neither a list nor a mapping")

    def condition_inputs(
        self,
        specs: Mapping[str, ParameterSpec],  # noqa: ARG002
        values: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """The values themselves."""
        return values

    def final_status(self, end: TaskEnd) -> Any:
        """The status in one word."""
        return end.status

    def read_deferred(self, task: TaskSpec, values: Mapping[str, Any]) -> TaskSpec:  # noqa: ARG002
        """The task itself."""
        return task

    def shown(self, name: str) -> str:
        """The name itself."""
        return name


PLAIN: Dialect = PlainDialect()
"""The dialect of graphs without placeholders."""
