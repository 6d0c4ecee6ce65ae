"""One pass over a compiled pipeline: the parts read so far, the tasks that cannot run, and errors with their lines.

Declared types are compared at both ends of each connection between tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.errors import PipelineError
from spotwright.graph import Container, Dag, DagInput, ParameterSpec, Source, TaskOutput, TaskSpec
from spotwright.kfp.executors import PvcStep, PythonComponent
from spotwright.kfp.task_settings import TaskConfigPassthrough, TaskSettings

__all__ = ["KFP_1", "IrPass", "type_conflicts"]


@dataclass(slots=True)
class IrPass:
    """The state of one pass over a compiled pipeline.

    Equal parts of tasks are read once and shared: in ``ir`` they are one object
    (:func:`spotwright.kfp.compiled.read_shared_json`), which lives as long as the pass, so its identity is the key of
    ``executors`` and ``parameter_specs``. ``missing_inputs`` are inputs that a loop, condition or exit handler lacks, by its
    component. ``unsupported`` holds each task that cannot run with the reason, ``ignored`` the names of settings without a
    meaning on one machine.
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
    unsupported: list[tuple[str, str]] = field(default_factory=list)
    ignored: dict[str, None] = field(default_factory=dict)

    def refuse(self, path: str, why: str) -> None:
        """Record that the task at ``path`` cannot run; one error at the end names all such tasks."""
        self.unsupported.append((f"task {path}", why))

    def error(self, place: str, what: str) -> PipelineError:
        """The error at a place such as ``task a/b``, for a document that contradicts itself or is not supported."""
        return PipelineError(f"{self.file_line(place)}: {place}: {what}")

    def file_line(self, place: str) -> str:
        """The file, with the line of the task that a place names, if found."""
        task = place.removeprefix("task ").partition(":")[0] if place.startswith("task ") else ""
        from spotwright.kfp.compiled_files import line_of  # here: for errors alone

        line = line_of(self.file, self.ir, task) if task else None
        return self.file if line is None else f"{self.file}:{line}"

    def executor(self, label: str, path: str) -> Mapping[str, Any]:
        """The executor of a label. Raises :class:`PipelineError` without one."""
        executors = (self.ir.get("deploymentSpec") or {}).get("executors") or {}
        if label not in executors:
            raise self.error(f"task {path}", f"its executor {label!r} is not in deploymentSpec.executors")
        executor: Mapping[str, Any] = executors[label]
        return executor

    def setting(self, platform: str, label: str) -> Mapping[str, Any]:
        """The settings of a platform for the executor of a label; often empty."""
        deployment = (self.platform.get(platform) or {}).get("deploymentSpec") or {}
        return (deployment.get("executors") or {}).get(label) or {}


KFP_1 = "kfp 2 reads types of kfp 1 such as URI and GCSPath as artifacts; declare it String, or pass an artifact (dsl.importer)"
"""The advice where a string is connected to an artifact."""

_ANY = "system.Artifact"
_NUMBERS = ("NUMBER_INTEGER", "NUMBER_DOUBLE")


def type_conflicts(dag: Dag, task: TaskSpec, *, of_root: bool) -> Iterator[str]:
    """Yield a message with both ends for each input whose source has another type. ``of_root``: the DAG is the pipeline's own."""
    for name, source in task.parameters.items():
        given = _type(dag, source, of_root=of_root)
        if name in task.artifact_specs and name not in task.parameter_specs:
            artifact = _input(task, name, task.artifact_specs[name].schema)
            yield f"{_end(source, given or 'a parameter')} does not fit {artifact}: {KFP_1}"
        elif given and name in task.parameter_specs and not _converts(given, task.parameter_specs[name].type):
            yield f"{_end(source, given)} does not fit {_input(task, name, task.parameter_specs[name].type)}"
    for name, source in task.artifacts.items():
        given = _schema(dag, source)
        if name in task.parameter_specs and name not in task.artifact_specs:
            yield f"{_end(source, given or _ANY)} does not fit {_input(task, name, task.parameter_specs[name].type)}"
        elif given and name in task.artifact_specs and not _same(given, task.artifact_specs[name].schema):
            yield f"{_end(source, given)} does not fit {_input(task, name, task.artifact_specs[name].schema)}"


def _type(dag: Dag, source: Source, *, of_root: bool) -> str:
    """The declared type of a parameter; empty if unreliable."""
    if isinstance(source, TaskOutput):
        producer = dag.tasks.get(source.task)
        if producer is not None and producer.dag is None and source.output in producer.outputs.parameters:
            return producer.outputs.parameters[source.output].type
    elif isinstance(source, DagInput) and of_root and not source.item and source.name in dag.parameters:
        return dag.parameters[source.name].type
    return ""


def _schema(dag: Dag, source: Source) -> str:
    if isinstance(source, TaskOutput):
        producer = dag.tasks.get(source.task)
        if producer is not None and producer.dag is None and source.output in producer.outputs.artifacts:
            return producer.outputs.artifacts[source.output].schema
    return ""


def _converts(given: str, wanted: str) -> bool:
    """Whether a value of one type may become one of another: everything has a text, and a number may be whole."""
    return wanted in (given, "STRING") or (given in _NUMBERS and wanted in _NUMBERS)


def _same(given: str, wanted: str) -> bool:
    return given == wanted or _ANY in (given, wanted)


def _end(source: Source, kind: str) -> str:
    if isinstance(source, TaskOutput):
        return f"{source.task}.{source.output} ({kind})"
    name = getattr(source, "name", "")
    return f"the pipeline's input {name} ({kind})" if name else "a constant"


def _input(task: TaskSpec, name: str, kind: str) -> str:
    return f"{task.name}.{name} ({kind})"
