"""A compiled pipeline under lint: its tasks with their retries, and the pods of its executors.

Its two documents are read as one, as ``place`` reads them. What cannot be unfolded (a task without a component) is left to
``compile`` and ``run``, which refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from spotwright.kfp.compiled import IrError, unfold
from spotwright.kfp.kfp_settings import read_constraints
from spotwright.kfp.placed_record import RECORD
from spotwright.kinds.kind import Duty
from spotwright.lint.settings import Settings
from spotwright.lint.subjects.pods import Container, Pods
from spotwright.lint.subjects.reach import reach_of
from spotwright.lint.subjects.shapes import Shape, items_of, mapping_at, mapping_of
from spotwright.placing.document_pair import EXECUTORS, PIPELINE, PLATFORMS, PipelinePair
from spotwright.placing.documents import Path

__all__ = ["Pipeline", "Task", "pipeline_of", "pipeline_pods"]


class Task(NamedTuple):
    """One task that runs in a pod: where it stands, its path in a run, its executor, and its retries.

    ``inherits``: a pipeline around it sets its retries.
    """

    path: Path
    name: str
    label: str
    retry: Shape | None
    inherits: bool
    in_exit_handler: bool


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """A compiled pipeline: ``value`` is its first document, ``platforms`` the mapping in the second."""

    document: PipelinePair
    value: Shape
    platforms: Shape

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return str(mapping_at(self.value, "pipelineInfo").get("name") or "")

    @property
    def is_placed(self) -> bool:
        """Whether ``place`` or ``compile`` wrote into it, so that its findings were said there."""
        return self.document.get((1, *RECORD), None) is not None

    @property
    def executors(self) -> Shape:
        """The executors by their labels."""
        return mapping_at(self.value, "deploymentSpec", "executors")

    def settings_at(self, label: str) -> Path:
        """The path of the Kubernetes settings of an executor."""
        return (*PLATFORMS, *EXECUTORS, label)

    def tasks(self) -> Iterator[Task]:
        """The tasks that run in pods, each once; none if the document contradicts itself."""
        seen: set[Path] = set()
        try:
            uses = [use for use in unfold(self.value) if use.has_pod]
        except (IrError, AttributeError, TypeError, KeyError, ValueError):
            return
        for use in uses:
            at = (*PIPELINE, *use.keys)
            if at not in seen:
                seen.add(at)
                retry = use.task.get("retryPolicy")
                own = retry if isinstance(retry, dict) else None
                yield Task(at, use.path, use.label, own, use.enclosing_retry is not None, use.in_exit_handler)


def pipeline_of(pair: PipelinePair) -> Pipeline:
    """The pipeline of a pair of documents."""
    return Pipeline(pair, mapping_of(pair.get((0,), None)), mapping_of(pair.get(PLATFORMS, None)))


def pipeline_pods(pipeline: Pipeline, settings: Settings) -> Iterator[Pods]:
    """The pods of each executor, with its settings in the place of a pod spec."""
    for label, executor in pipeline.executors.items():
        container = mapping_at(executor, "container")
        if not container:
            continue
        value = mapping_at(pipeline.platforms, *EXECUTORS, label)
        try:
            constraints = read_constraints(value)
        except (ValueError, TypeError, AttributeError, KeyError):
            continue  # values that are known only when it runs, or another shape, which compile refuses
        path: Path = (0, "deploymentSpec", "executors", label, "container")
        yield Pods(
            pipeline.document,
            None,
            f"executor {label}",
            label,
            pipeline.settings_at(label),
            "K",
            Duty.WORKER,
            value,
            mapping_at(value, "podMetadata"),
            constraints,
            reach_of(constraints, settings),
            (Container(path, _words(container)),),
            is_placed=pipeline.is_placed,
        )


def _words(container: Shape) -> Shape:
    """An executor's container without the source of its component, which is code and no argument."""
    words: list[Any] = [word for word in items_of(container.get("command")) if "\n" not in str(word)]
    return {**container, "command": words}
