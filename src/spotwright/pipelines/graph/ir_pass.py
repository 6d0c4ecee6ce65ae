"""The state of one pass over a compiled pipeline: parts read so far, tasks that cannot run, and errors with their lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.errors import PipelineError
from spotwright.graph import Container, Dag, ParameterSpec
from spotwright.pipelines.graph.kfp_executors import PvcStep, PythonComponent
from spotwright.pipelines.graph.task_config import TaskConfigPassthrough
from spotwright.pipelines.graph.task_settings import TaskSettings

__all__ = ["IrPass"]


@dataclass(slots=True)
class IrPass:
    """The state of one pass over a compiled pipeline.

    Equal parts of tasks are read once and shared: in ``ir`` they are one object
    (:func:`spotwright.pipelines.ir.compiled.read_shared_json`), so the identity of that object, which lives as long as the
    pass, is the key of ``executors`` and ``parameter_specs``. ``open_dags`` are the DAGs being read, outermost first.
    ``missing_inputs`` are inputs that a loop, condition or exit handler lacks, by its component. ``unsupported`` holds each
    task that cannot run with the reason, ``ignored`` the names of settings without a meaning on one machine.
    """

    file: str
    ir: Mapping[str, Any]
    platform: Mapping[str, Any]
    executors: dict[
        tuple[int, int, TaskConfigPassthrough], tuple[PythonComponent | Container | PvcStep, TaskSettings]
    ] = field(default_factory=dict)
    parameter_specs: dict[int, dict[str, ParameterSpec]] = field(default_factory=dict)
    dags: dict[str, Dag] = field(default_factory=dict)
    missing_inputs: dict[str, dict[str, ParameterSpec]] = field(default_factory=dict)
    open_dags: list[str] = field(default_factory=list)
    unsupported: list[tuple[str, str]] = field(default_factory=list)
    ignored: dict[str, None] = field(default_factory=dict)

    def refuse(self, path: str, why: str) -> None:
        """Record that the task at ``path`` cannot run; the error comes at the end, for all such tasks together."""
        self.unsupported.append((f"task {path}", why))

    def error(self, place: str, what: str) -> PipelineError:
        """The error at a place such as ``task a/b``, for a document that contradicts itself or is not supported."""
        return PipelineError(f"{self.file_line(place)}: {place}: {what}")

    def file_line(self, place: str) -> str:
        """The file, with the line of the task that a place names, where it can be found."""
        task = place.removeprefix("task ").partition(":")[0] if place.startswith("task ") else ""
        from spotwright.pipelines.ir.source_lines import line_of  # here: for errors alone

        line = line_of(self.file, self.ir, task) if task else None
        return self.file if line is None else f"{self.file}:{line}"

    def executor(self, label: str, path: str) -> Mapping[str, Any]:
        """The executor of a label. Raises :class:`PipelineError` when there is none."""
        executors = (self.ir.get("deploymentSpec") or {}).get("executors") or {}
        if label not in executors:
            raise self.error(f"task {path}", f"its executor {label!r} is not in deploymentSpec.executors")
        executor: Mapping[str, Any] = executors[label]
        return executor

    def setting(self, platform: str, label: str) -> Mapping[str, Any]:
        """The settings of a platform for the executor of a label; often empty."""
        deployment = (self.platform.get(platform) or {}).get("deploymentSpec") or {}
        return (deployment.get("executors") or {}).get(label) or {}
