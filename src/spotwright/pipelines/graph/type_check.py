"""Compare the declared types at both ends of each connection between tasks.

The SDK checks them while it compiles; other tools write pipelines too. Only ends whose types can be trusted are compared: outputs
of components and inputs of the whole pipeline. Values that pass through loops and groups have the types that the compiler gives
them, which is text for most items. Source of the rules: ``check_parameter_type_compatibility`` and
``check_artifact_type_compatibility`` in ``sdk/python/kfp/dsl/types/type_utils.py``, except for the conversions of the backend
(``backend/src/v2/driver/resolve.go``).
"""

from __future__ import annotations

from collections.abc import Iterator

from spotwright.graph import Dag, DagInput, Source, TaskOutput, TaskSpec

__all__ = ["KFP_1", "type_conflicts"]

KFP_1 = "kfp 2 reads types of kfp 1 such as URI and GCSPath as artifacts; declare it String, or pass an artifact (dsl.importer)"
"""The advice where a text is connected with an artifact."""

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
    """The declared type of a parameter; empty where none can be trusted."""
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
