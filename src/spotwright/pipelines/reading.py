"""What one pass over a compiled pipeline collects: what was read, what cannot run, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.errors import PipelineError
from spotwright.pipelines.places import line_of
from spotwright.pipelines.settings import Settings
from spotwright.pipelines.spec import ClaimStep, Container, Dag, Executor, ParameterSpec
from spotwright.pipelines.task_config import Passed

__all__ = ["Reading"]


@dataclass(slots=True)
class Reading:
    """What one pass over a compiled pipeline collects.

    What equal tasks have in common is read once and shared: their parts of ``ir`` are one object
    (:func:`spotwright.pipelines.compiled.read_json`), so that object's identity, alive all the time, is the key.
    """

    file: str
    ir: Mapping[str, Any]
    platform: Mapping[str, Any]
    known_executors: dict[tuple[int, int, Passed], tuple[Executor | Container | ClaimStep, Settings]] = field(
        default_factory=dict
    )
    known_parameters: dict[int, dict[str, ParameterSpec]] = field(default_factory=dict)
    dags: dict[str, Dag] = field(default_factory=dict)
    forgotten: dict[str, dict[str, ParameterSpec]] = field(
        default_factory=dict
    )  # by group: inputs that it was not given
    opened: list[str] = field(default_factory=list)  # DAGs being read, outermost first
    refused: list[tuple[str, str]] = field(default_factory=list)  # tasks that cannot run, and why
    ignored: dict[str, None] = field(default_factory=dict)

    def refuse(self, path: str, why: str) -> None:
        """Note that the task at ``path`` cannot run."""
        self.refused.append((f"task {path}", why))

    def error(self, place: str, what: str) -> PipelineError:
        """The error for a document that contradicts itself, or uses what is not supported; ``place`` as in ``task a/b``."""
        return PipelineError(f"{self.where(place)}: {place}: {what}")

    def where(self, place: str) -> str:
        """The file, with the line of the task that a place begins with, where it can be known."""
        task = place.removeprefix("task ").partition(":")[0] if place.startswith("task ") else ""
        line = line_of(self.file, self.ir, task) if task else None
        return self.file if line is None else f"{self.file}:{line}"

    def executor(self, label: str, path: str) -> Mapping[str, Any]:
        """The executor of a label. Raises :class:`PipelineError` when there is none."""
        executors = (self.ir.get("deploymentSpec") or {}).get("executors") or {}
        if label not in executors:
            raise self.error(f"task {path}", f"its executor {label!r} is not in deploymentSpec.executors")
        found: Mapping[str, Any] = executors[label]
        return found

    def setting(self, platform: str, label: str) -> Mapping[str, Any]:
        """What a platform says about the executor of a label; often nothing."""
        deployment = (self.platform.get(platform) or {}).get("deploymentSpec") or {}
        return (deployment.get("executors") or {}).get(label) or {}
