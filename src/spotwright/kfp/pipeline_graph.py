"""Build the task graph of a compiled pipeline from KFP's intermediate representation.

:func:`build` makes every check that needs no run: references have targets, there are no cycles, and this version supports every
feature. It adds inputs that the SDK's compiler does not pass into a loop, condition or exit handler (a group). KFP's
conventions for values are the graph's dialect, behind the engine's port.
"""

from __future__ import annotations

import dataclasses
import heapq
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spotwright.errors import PipelineError
from spotwright.graph import (
    Constant,
    Dag,
    DagInput,
    Dialect,
    FinalStatus,
    Loop,
    OneOf,
    ParameterSpec,
    Source,
    TaskContext,
    TaskEnd,
    TaskGraph,
    TaskOutput,
    TaskSpec,
)
from spotwright.kfp.compiled import Compiled, IrError, group_names, is_group, require_size
from spotwright.kfp.executors import Importer
from spotwright.kfp.ir_pass import IrPass, type_conflicts
from spotwright.kfp.placed_record import read_placed_policies
from spotwright.kfp.task_reader import (
    component_of,
    drop_stray_inputs,
    read_input_specs,
    read_output_sources,
    read_output_specs,
    read_policy,
    read_task,
)
from spotwright.kfp.task_settings import read_deferred
from spotwright.kfp.values import coerce, fill, parameter_placeholders, parse_json

__all__ = ["KFP", "add_missing_inputs", "build", "find_missing_inputs", "input_text"]


_CHANNEL, _ITEM = "pipelinechannel--", "loop-item-param-"


def find_missing_inputs(
    tasks: Mapping[str, TaskSpec], parameters: Mapping[str, ParameterSpec]
) -> dict[str, ParameterSpec]:
    """The inputs that tasks of a group read and the group lacks, with their declarations. ``parameters`` are the group's."""
    names = {
        source.name
        for task in tasks.values()
        for source in task.parameters.values()
        if isinstance(source, DagInput) and source.name.startswith(_CHANNEL) and source.name not in parameters
    }
    return {name: ParameterSpec("STRING", optional=True) for name in sorted(names)}


def input_text(name: str) -> str:
    """A missing input as the user knows it, for messages."""
    bare = name.removeprefix(_CHANNEL)
    return "the item of an outer loop" if _ITEM in bare else bare


def add_missing_inputs(
    group: TaskSpec,
    missing: Mapping[str, ParameterSpec],
    parameters: Mapping[str, ParameterSpec],
    tasks: Mapping[str, TaskSpec],
) -> TaskSpec:
    """The group with its missing inputs. ``parameters`` and ``tasks`` belong to the DAG around it.

    An input that is neither a parameter nor an output there becomes a missing input of that DAG too.
    """
    sources = {name: _source(name, parameters, tasks) for name in missing if name not in group.parameters}
    upstream = {source.task for source in sources.values() if isinstance(source, TaskOutput)}
    return replace(
        group,
        parameters={**group.parameters, **sources},
        parameter_specs={**missing, **group.parameter_specs},
        after=tuple(sorted({*group.after, *upstream})),
    )


def _source(name: str, parameters: Mapping[str, ParameterSpec], tasks: Mapping[str, TaskSpec]) -> Source:
    """The source of an input: inside, a parameter is ``pipelinechannel--NAME``, an output ``pipelinechannel--TASK-OUTPUT``."""
    bare = name.removeprefix(_CHANNEL)
    if name not in parameters and bare in parameters:
        return DagInput(bare)
    outputs = [
        TaskOutput(task.name, output)
        for task in tasks.values()
        for output in task.outputs.parameters
        if f"{task.name}-{output}" == bare
    ]
    return outputs[0] if name not in parameters and len(outputs) == 1 else DagInput(name)


_STATES = {"succeeded": "COMPLETE", "failed": "FAILED", "skipped": "SKIPPED"}
_UNKNOWN_ERROR = 2  # google.rpc.Code.UNKNOWN: the code of an error of the user's code


@dataclass(frozen=True, slots=True)
class KfpDialect:
    """The dialect of graphs that were read from a compiled pipeline."""

    def fill(
        self, value: Any, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: TaskContext
    ) -> Any:
        """The value with placeholders such as ``{{$.inputs.parameters['x']}}`` filled in."""
        return fill(value, parameters, artifacts, context)

    def parse(self, text: str) -> Any:
        """The JSON value in a text, as the driver reads it. Raises ``ValueError``."""
        return parse_json(text)

    def condition_inputs(self, specs: Mapping[str, ParameterSpec], values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values, with ``STRING`` parameters converted to text: conditions are strict about types."""
        return {
            name: coerce(value, "STRING")
            if value is not None and name in specs and specs[name].type == "STRING"
            else value
            for name, value in values.items()
        }

    def final_status(self, end: TaskEnd) -> dict[str, Any]:
        """The value of a ``dsl.PipelineTaskFinalStatus``; its states are the backend's metadata store's."""
        error = {"code": _UNKNOWN_ERROR, "message": end.error} if end.status == "failed" else {}
        return {
            "state": "CACHED" if end.cached else _STATES.get(end.status, "CANCELED"),
            "pipelineJobResourceName": end.run,
            "pipelineTaskName": end.name,
            "error": error,
        }

    def read_deferred(self, task: TaskSpec, values: Mapping[str, Any]) -> TaskSpec:
        """The task with its resources and placement read from the values. Raises :class:`PipelineError`."""
        return read_deferred(task, values)

    def shown(self, name: str) -> str:
        """The name without the compiler's prefix."""
        return name.removeprefix("pipelinechannel--")


KFP: Dialect = KfpDialect()
"""The shared instance, which has no state."""


_ROOT = "root"
_GROUP = re.compile(r"comp-(condition|condition-branches|for-loop|exit-handler)-[\d-]+")
_DEADLINE = "activeDeadlineSeconds"
_SUPPORTED = ("workspace", _DEADLINE)  # settings of a pipeline that have a meaning on one machine


def build(compiled: Compiled) -> TaskGraph:
    """Build the task graph of a compiled pipeline.

    Raises :class:`~spotwright.errors.PipelineError` that names the file, the task and the fix when the document contradicts
    itself (a missing executor, a cycle, a reference that leads nowhere) or uses what is not supported yet.
    """
    ir_pass = IrPass(compiled.source, compiled.ir, compiled.platform)
    definition = compiled.ir.get(_ROOT) or {}
    if not (definition.get("dag") or {}).get("tasks"):
        raise ir_pass.error(_ROOT, "a pipeline has tasks below root.dag")
    _check_empty_groups(ir_pass)
    try:
        require_size(compiled.ir)
    except IrError as error:
        raise ir_pass.error(".".join(error.keys), str(error)) from error
    root = _read_dag(ir_pass, _ROOT, definition, "")
    config = (compiled.platform.get("kubernetes") or {}).get("pipelineConfig") or {}
    if ir_pass.unsupported:
        raise _unsupported_error(ir_pass)
    ir_pass.ignored.update(dict.fromkeys(key for key in sorted(config) if key not in _SUPPORTED and config[key]))
    return TaskGraph(
        name=compiled.pipeline,
        root=root,
        dags=ir_pass.dags,
        policy=read_policy(ir_pass, (compiled.platform.get("spotwright") or {}).get("config") or {}, "the pipeline"),
        ignored=tuple(ir_pass.ignored),
        placed=read_placed_policies(ir_pass.file, compiled.platform),
        notes=tuple(_notes(ir_pass, root)),
        active_deadline=float(config.get(_DEADLINE) or 0) or None,
        dialect=KFP,
    )


def _check_empty_groups(ir_pass: IrPass) -> None:
    """Raise if the SDK left a group's component empty, as it does if two pipelines have groups of one name."""
    for name, component in (ir_pass.ir.get("components") or {}).items():
        if _GROUP.fullmatch(name) and "dag" not in component and "executorLabel" not in component:
            raise ir_pass.error(
                f"component {name}",
                "it is empty: this SDK mixes up the loops and conditions of an inner pipeline with those of the pipeline around "
                "it (kubeflow/pipelines#11484); run the .py file, which Spotwright compiles correctly",
            )


def _notes(ir_pass: IrPass, root: Dag) -> Iterator[str]:
    """Yield a note for each difference between KFP and this run."""
    missing = {name for names in ir_pass.missing_inputs.values() for name in names}
    if missing:
        names = sorted(map(input_text, missing))
        yield (
            f"KFP fails here: texts or settings of tasks in a loop, condition or exit handler read {', '.join(names)}, "
            "which the compiler does not pass into it (this run does). For a cluster, pass it to a task in there as an input too"
        )
    artifacts = [name for name, spec in root.artifacts.items() if not spec.optional]
    if artifacts:
        yield (
            f"KFP cannot start a run with artifacts, and this pipeline needs {', '.join(artifacts)}: on a cluster, import it"
            " (dsl.importer) from an address given as a parameter"
        )


def _unsupported_error(ir_pass: IrPass) -> PipelineError:
    (place, why), *others = dict.fromkeys(ir_pass.unsupported)
    texts = [f"{place}: {why}" for place, why in others]
    more = f"\nand {len(texts)} more: {'; '.join(texts[:4])}{'; ...' if len(texts) > 4 else ''}" if texts else ""
    return PipelineError(f"{ir_pass.file_line(place)}: {place}: {why}{more}")


def _read_dag(
    ir_pass: IrPass, component: str, definition: Mapping[str, Any], path: str, *, is_group: bool = False
) -> Dag:
    parameters, artifacts = read_input_specs(ir_pass, definition, path)
    outputs = read_output_specs(ir_pass, definition, path)
    raw = definition["dag"].get("tasks") or {}
    names = group_names(raw)
    tasks = {names[key]: _read_step(ir_pass, names, key, raw[key], path) for key in sorted(raw, key=_natural)}
    specs = {name: drop_stray_inputs(task, parameters) for name, task in tasks.items() if task is not None}
    specs = {name: _completed(ir_pass, task, parameters, specs) for name, task in specs.items()}
    if is_group:
        ir_pass.missing_inputs[component] = find_missing_inputs(specs, parameters)
        parameters = {**parameters, **ir_pass.missing_inputs[component]}
    place = f"task {path}" if path else _ROOT
    sources = read_output_sources(ir_pass, names, definition["dag"].get("outputs") or {}, place)
    dag = Dag(
        component=component,
        parameters=parameters,
        artifacts=artifacts,
        tasks=specs,
        parameter_outputs=sources[0],
        artifact_outputs=sources[1],
        outputs=outputs,
    )
    if not ir_pass.unsupported:
        _check_references(ir_pass, dag, path)
        dag = dataclasses.replace(dag, tasks=_in_order(ir_pass, specs, path))
    ir_pass.dags[component] = dag
    return dag


def _read_step(
    ir_pass: IrPass, names: Mapping[str, str], key: str, raw: Mapping[str, Any], path: str
) -> TaskSpec | None:
    """Read a task, and its DAG if it is a pipeline. ``path`` is the path of the DAG around it."""
    name = names[key]
    here = f"{path}/{name}" if path else name
    if "/" in name or name in ("", ".", ".."):
        raise ir_pass.error(f"task {here}", "a task's name can be neither empty nor . or .., and holds no slash")
    component = component_of(ir_pass, raw, here)
    task = read_task(ir_pass, names, key, raw, component, here)
    if task is not None and task.dag is not None and task.dag not in ir_pass.dags:
        _read_dag(ir_pass, *component, here, is_group=is_group(key, raw))
    return task


def _completed(
    ir_pass: IrPass, task: TaskSpec, parameters: Mapping[str, ParameterSpec], tasks: Mapping[str, TaskSpec]
) -> TaskSpec:
    """The task; a group gets the inputs that the compiler did not pass into it."""
    missing = ir_pass.missing_inputs.get(task.dag or "")
    if not missing:
        return task

    return add_missing_inputs(task, missing, parameters, tasks)


def _natural(name: str) -> list[tuple[int, str]]:
    """A sort key by which ``train-10`` follows ``train-9``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _check_references(ir_pass: IrPass, dag: Dag, path: str) -> None:
    for name, task in dag.tasks.items():
        place = f"task {path}/{name}" if path else f"task {name}"
        for why in type_conflicts(dag, task, of_root=not path):
            raise ir_pass.error(place, why)
        _check_task(ir_pass, dag, task, place)
    place = f"task {path}" if path else _ROOT
    for kind, outputs in (("parameters", dag.parameter_outputs), ("artifacts", dag.artifact_outputs)):
        for key, output in outputs.items():
            for source in output.outputs if isinstance(output, OneOf) else (output,):
                _check_source(ir_pass, dag, source, {}, kind, f"{place}: its output {key}")


def _check_task(ir_pass: IrPass, dag: Dag, task: TaskSpec, place: str) -> None:
    for key, source in task.parameters.items():
        _check_source(ir_pass, dag, source, dag.parameters, "parameters", f"{place}: its input {key}")
    for key, source in task.artifacts.items():
        _check_source(ir_pass, dag, source, dag.artifacts, "artifacts", f"{place}: its input {key}")
    for missing in sorted(_inputs_in_texts(task) - {*task.parameters, *task.parameter_specs}):
        raise ir_pass.error(place, f"one of its strings reads the input {missing!r}, which it does not have")
    for missing in (other for other in task.after if other not in dag.tasks):
        raise ir_pass.error(place, f"it waits for the task {missing!r}, which does not exist")
    if task.loop is not None:
        _check_loop(ir_pass, task.loop, task, place)
    _check_needed(ir_pass, task, place)


def _inputs_in_texts(task: TaskSpec) -> set[str]:
    """The inputs with placeholders in the task's constants, or in an importer's address and metadata."""
    texts: list[Any] = [source.value for source in task.parameters.values() if isinstance(source, Constant)]
    if isinstance(task.executor, Importer):
        texts += [task.executor.uri, task.executor.metadata]
    return parameter_placeholders(texts)


def _remedy(name: str) -> str:
    """The fix for a task that reads the item of a loop that is not around it in the compiled file."""
    if "loop-item-param" not in name:
        return ""
    return (
        ": it is the item of a loop that is not around the task: use the item inside its own dsl.ParallelFor, or compile with "
        "the newest kfp 2"
    )


def _check_source(ir_pass: IrPass, dag: Dag, source: Source, of_dag: Mapping[str, Any], kind: str, place: str) -> None:
    if isinstance(source, DagInput) and source.name not in of_dag:
        raise ir_pass.error(
            place, f"it reads the pipeline's input {source.name!r}, which does not exist{_remedy(source.name)}"
        )
    if isinstance(source, FinalStatus) and source.task not in dag.tasks:
        raise ir_pass.error(place, f"it reads the final status of the task {source.task!r}, which does not exist")
    if isinstance(source, TaskOutput):
        producer = dag.tasks.get(source.task)
        if producer is None:
            raise ir_pass.error(place, f"it reads from the task {source.task!r}, which does not exist")
        if source.output not in getattr(producer.outputs, kind):
            raise ir_pass.error(
                place, f"it reads {source.output!r} of the task {source.task!r}, which has no such output"
            )
        inside = ir_pass.dags.get(producer.dag or "")
        if inside is not None and source.output not in getattr(inside, f"{kind.removesuffix('s')}_outputs"):
            raise ir_pass.error(
                place, f"it reads {source.output!r} of the task {source.task!r}, in which no task produces it"
            )


def _check_loop(ir_pass: IrPass, loop: Loop, task: TaskSpec, place: str) -> None:
    given, specs = (
        (task.artifacts, task.artifact_specs) if loop.of_artifacts else (task.parameters, task.parameter_specs)
    )
    if loop.items and loop.items not in given:
        raise ir_pass.error(place, f"it iterates over its input {loop.items!r}, which is given no value")
    if loop.item not in specs:
        raise ir_pass.error(place, f"each item of its loop goes to the input {loop.item!r}, which does not exist")


def _check_needed(ir_pass: IrPass, task: TaskSpec, place: str) -> None:
    """Require every input without a default, as the driver does (``resolve.go``); an iteration has its item."""
    item = task.loop.item if task.loop is not None else ""
    for given, specs in ((task.parameters, task.parameter_specs), (task.artifacts, task.artifact_specs)):
        for name, spec in specs.items():
            if name not in given and name != item and not spec.optional and not getattr(spec, "has_default", False):
                raise ir_pass.error(place, f"its input {name} is given no value{_hint(ir_pass, task, name)}")


def _hint(ir_pass: IrPass, task: TaskSpec, name: str) -> str:
    inputs = ir_pass.ir["components"][task.component].get("inputDefinitions") or {}
    if ((inputs.get("parameters") or {}).get(name) or {}).get("parameterType") != "TASK_FINAL_STATUS":
        return " and has no default"
    return (
        "; it holds the final status of another task (dsl.PipelineTaskFinalStatus), so only the exit task of a dsl.ExitHandler "
        "can have it, or a task with ignore_upstream_failure() after exactly one other"
    )


def _in_order(ir_pass: IrPass, tasks: Mapping[str, TaskSpec], path: str) -> dict[str, TaskSpec]:
    """A topological order that depends on the names alone."""
    followers: dict[str, list[str]] = {name: [] for name in tasks}
    waits = {name: len(task.after) for name, task in tasks.items()}
    for name, task in tasks.items():
        for before in task.after:
            followers[before].append(name)
    ready = [(_natural(name), name) for name, count in waits.items() if not count]
    heapq.heapify(ready)
    order: dict[str, TaskSpec] = {}
    while ready:
        name = heapq.heappop(ready)[1]
        order[name] = tasks[name]
        for follower in followers[name]:
            waits[follower] -= 1
            if not waits[follower]:
                heapq.heappush(ready, (_natural(follower), follower))
    if len(order) < len(tasks):
        cycle = sorted(set(tasks) - set(order), key=_natural)
        first = f"{path}/{cycle[0]}" if path else cycle[0]
        what = f"these tasks wait for each other: {', '.join(cycle[:5])}" if len(cycle) > 1 else "it waits for itself"
        raise ir_pass.error(f"task {first}", what)
    return order
