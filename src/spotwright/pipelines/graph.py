"""The graph of a compiled pipeline: from KFP's intermediate representation to the values the engine works with.

:func:`build` checks everything that can be known before a run begins: every reference leads somewhere, no task waits for
itself, and nothing is used that this version cannot run.
"""

from __future__ import annotations

import dataclasses
import heapq
import re
from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.errors import PipelineError
from spotwright.model.kfp_settings import group_names, is_group
from spotwright.pipelines.compiled import Compiled
from spotwright.pipelines.fitting import misfits
from spotwright.pipelines.forgotten import called, forgotten, given_to
from spotwright.pipelines.placed import read_policies
from spotwright.pipelines.placeholders import inputs_read
from spotwright.pipelines.reading import Reading
from spotwright.pipelines.sources import read_output_sources, without_strays
from spotwright.pipelines.spec import (
    Constant,
    Dag,
    DagInput,
    FinalStatus,
    Importer,
    Loop,
    OneOf,
    ParameterSpec,
    Pipeline,
    Source,
    TaskOutput,
    TaskSpec,
)
from spotwright.pipelines.tasks import (
    component_of,
    read_input_specs,
    read_output_specs,
    read_policy,
    read_task,
)

__all__ = ["build"]

_ROOT = "root"
_GROUP = re.compile(r"comp-(condition|condition-branches|for-loop|exit-handler)-[\d-]+")
_DEADLINE = "activeDeadlineSeconds"
_UNDERSTOOD = ("workspace", _DEADLINE)  # what of a pipeline's configuration has a meaning on one machine


def build(compiled: Compiled) -> Pipeline:
    """Read the graph of a compiled pipeline.

    Raises :class:`~spotwright.errors.PipelineError` that names the file, the task and the fix when the document contradicts
    itself (a missing executor, a cycle, a reference that leads nowhere) or uses what is not supported yet.
    """
    reading = Reading(compiled.source, compiled.ir, compiled.platform)
    definition = compiled.ir.get(_ROOT) or {}
    if not (definition.get("dag") or {}).get("tasks"):
        raise reading.error(_ROOT, "a pipeline has tasks below root.dag")
    _check_mixed_up(reading)
    root = _read_dag(reading, _ROOT, definition, "")
    config = (compiled.platform.get("kubernetes") or {}).get("pipelineConfig") or {}
    if reading.refused:
        raise _refusal(reading)
    reading.ignored.update(dict.fromkeys(key for key in sorted(config) if key not in _UNDERSTOOD and config[key]))
    return Pipeline(
        name=compiled.pipeline,
        root=root,
        dags=reading.dags,
        policy=read_policy(reading, (compiled.platform.get("spotwright") or {}).get("config") or {}, "the pipeline"),
        ignored=tuple(reading.ignored),
        placed=read_policies(reading.file, compiled.platform),
        notes=tuple(_notes(reading, root)),
        active_deadline=float(config.get(_DEADLINE) or 0) or None,
    )


def _check_mixed_up(reading: Reading) -> None:
    """Raise where the SDK has filled another component in the place of a group's: two pipelines have groups of that name."""
    for name, component in (reading.ir.get("components") or {}).items():
        if _GROUP.fullmatch(name) and "dag" not in component and "executorLabel" not in component:
            raise reading.error(
                f"component {name}",
                "it is empty: this SDK mixes up the loops and conditions of a pipeline inside with those of the pipeline around "
                "it (kubeflow/pipelines#11484); run the .py file, which Spotwright compiles without that fault",
            )


def _notes(reading: Reading, root: Dag) -> Iterator[str]:
    """What the user should know, because KFP does not do the same."""
    names = sorted({called(name) for names in reading.forgotten.values() for name in names})
    if names:
        yield (
            f"KFP fails here: texts or settings of tasks in a loop, condition or exit handler read {', '.join(names)}, "
            "which the compiler does not pass into it; in this run they count. On a cluster, give it to a task in there as an "
            "input too"
        )
    artifacts = [name for name, spec in root.artifacts.items() if not spec.optional]
    if artifacts:
        yield (
            f"KFP cannot give a run artifacts, and this pipeline needs {', '.join(artifacts)}: on a cluster, import it "
            "(dsl.importer) from an address that is a parameter"
        )


def _refusal(reading: Reading) -> PipelineError:
    (place, why), *others = dict.fromkeys(reading.refused)
    said = [f"{place}: {why}" for place, why in others]
    more = f"\nand {len(said)} more: {'; '.join(said[:4])}{'; ...' if len(said) > 4 else ''}" if said else ""
    return PipelineError(f"{reading.where(place)}: {place}: {why}{more}")


def _read_dag(
    reading: Reading, component: str, definition: Mapping[str, Any], path: str, *, is_group: bool = False
) -> Dag:
    if component in reading.opened:
        raise reading.error(f"task {path}", f"the pipeline {component} contains itself")
    reading.opened.append(component)
    parameters, artifacts = read_input_specs(reading, definition, path)
    outputs = read_output_specs(reading, definition, path)
    raw = definition["dag"].get("tasks") or {}
    names = group_names(raw)
    tasks = {names[key]: _read_step(reading, names, key, raw[key], path) for key in sorted(raw, key=_natural)}
    known = {name: without_strays(task, parameters) for name, task in tasks.items() if task is not None}
    known = {name: _completed(reading, task, parameters, known) for name, task in known.items()}
    if is_group:
        reading.forgotten[component] = forgotten(known, parameters)
        parameters = {**parameters, **reading.forgotten[component]}
    place = f"task {path}" if path else _ROOT
    produced = read_output_sources(reading, names, definition["dag"].get("outputs") or {}, place)
    dag = Dag(
        component=component,
        parameters=parameters,
        artifacts=artifacts,
        tasks=known,
        parameter_outputs=produced[0],
        artifact_outputs=produced[1],
        outputs=outputs,
    )
    reading.opened.pop()
    if not reading.refused:
        _check_references(reading, dag, path)
        dag = dataclasses.replace(dag, tasks=_in_order(reading, known, path))
    reading.dags[component] = dag
    return dag


def _read_step(
    reading: Reading, names: Mapping[str, str], key: str, raw: Mapping[str, Any], path: str
) -> TaskSpec | None:
    """Read a task, and the DAG that it is where it is one. ``path`` is that of the DAG in which it stands."""
    name = names[key]
    here = f"{path}/{name}" if path else name
    if "/" in name or name in ("", ".", ".."):
        raise reading.error(f"task {here}", "a task's name can be neither empty nor . or .., and holds no slash")
    component = component_of(reading, raw, here)
    task = read_task(reading, names, key, raw, component, here)
    if task is not None and task.dag is not None and (task.dag not in reading.dags or task.dag in reading.opened):
        _read_dag(reading, *component, here, is_group=is_group(key, raw))
    return task


def _completed(
    reading: Reading, task: TaskSpec, parameters: Mapping[str, ParameterSpec], tasks: Mapping[str, TaskSpec]
) -> TaskSpec:
    """A group with what the compiler forgot to give it."""
    names = reading.forgotten.get(task.dag or "")
    return given_to(task, names, parameters, tasks) if names else task


def _natural(name: str) -> list[tuple[int, str]]:
    """A sort key by which ``train-10`` follows ``train-9``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _check_references(reading: Reading, dag: Dag, path: str) -> None:
    for name, task in dag.tasks.items():
        place = f"task {path}/{name}" if path else f"task {name}"
        for why in misfits(dag, task, of_root=not path):
            raise reading.error(place, why)
        _check_task(reading, dag, task, place)
    place = f"task {path}" if path else _ROOT
    for kind, outputs in (("parameters", dag.parameter_outputs), ("artifacts", dag.artifact_outputs)):
        for key, output in outputs.items():
            for source in output.outputs if isinstance(output, OneOf) else (output,):
                _check_source(reading, dag, source, {}, kind, f"{place}: its output {key}")


def _check_task(reading: Reading, dag: Dag, task: TaskSpec, place: str) -> None:
    for key, source in task.parameters.items():
        _check_source(reading, dag, source, dag.parameters, "parameters", f"{place}: its input {key}")
    for key, source in task.artifacts.items():
        _check_source(reading, dag, source, dag.artifacts, "artifacts", f"{place}: its input {key}")
    for missing in sorted(_read_in_texts(task) - {*task.parameters, *task.parameter_specs}):
        raise reading.error(place, f"a text of it reads its input {missing!r}, which it does not have")
    for missing in (other for other in task.after if other not in dag.tasks):
        raise reading.error(place, f"it comes after the task {missing!r}, which does not exist")
    if task.loop is not None:
        _check_loop(reading, task.loop, task, place)
    _check_needed(reading, task, place)


def _read_in_texts(task: TaskSpec) -> set[str]:
    """The inputs that the task's constants, and an importer's address and metadata, are made of."""
    written: list[Any] = [source.value for source in task.parameters.values() if isinstance(source, Constant)]
    if isinstance(task.executor, Importer):
        written += [task.executor.uri, task.executor.metadata]
    return inputs_read(written)


def _check_source(reading: Reading, dag: Dag, source: Source, of_dag: Mapping[str, Any], kind: str, place: str) -> None:
    if isinstance(source, DagInput) and source.name not in of_dag:
        raise reading.error(place, f"it reads the pipeline's input {source.name!r}, which does not exist")
    if isinstance(source, FinalStatus) and source.task not in dag.tasks:
        raise reading.error(place, f"it reads how the task {source.task!r} ended, which does not exist")
    if isinstance(source, TaskOutput):
        producer = dag.tasks.get(source.task)
        if producer is None:
            raise reading.error(place, f"it reads from the task {source.task!r}, which does not exist")
        if source.output not in getattr(producer.outputs, kind):
            raise reading.error(
                place, f"it reads {source.output!r} of the task {source.task!r}, which has no such output"
            )
        inside = reading.dags.get(producer.dag or "")
        if inside is not None and source.output not in getattr(inside, f"{kind.removesuffix('s')}_outputs"):
            raise reading.error(
                place, f"it reads {source.output!r} of the task {source.task!r}, in which no task makes it"
            )


def _check_loop(reading: Reading, loop: Loop, task: TaskSpec, place: str) -> None:
    given, specs = (
        (task.artifacts, task.artifact_specs) if loop.of_artifacts else (task.parameters, task.parameter_specs)
    )
    if loop.items and loop.items not in given:
        raise reading.error(place, f"it iterates over its input {loop.items!r}, which is given no value")
    if loop.item not in specs:
        raise reading.error(place, f"each item of its loop goes to the input {loop.item!r}, which does not exist")


def _check_needed(reading: Reading, task: TaskSpec, place: str) -> None:
    """Every input that has no default must be given, as the driver demands (``resolve.go``); an iteration has its item."""
    item = task.loop.item if task.loop is not None else ""
    for given, specs in ((task.parameters, task.parameter_specs), (task.artifacts, task.artifact_specs)):
        for name, spec in specs.items():
            if name not in given and name != item and not spec.optional and not getattr(spec, "has_default", False):
                raise reading.error(place, f"its input {name} is given no value{_hint(reading, task, name)}")


def _hint(reading: Reading, task: TaskSpec, name: str) -> str:
    inputs = reading.ir["components"][task.component].get("inputDefinitions") or {}
    if ((inputs.get("parameters") or {}).get(name) or {}).get("parameterType") != "TASK_FINAL_STATUS":
        return " and has no default"
    return (
        "; it says how another task ended (dsl.PipelineTaskFinalStatus), so it is for the exit task of a dsl.ExitHandler, or "
        "for a task with ignore_upstream_failure() after one other"
    )


def _in_order(reading: Reading, tasks: Mapping[str, TaskSpec], path: str) -> dict[str, TaskSpec]:
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
        stuck = sorted(set(tasks) - set(order), key=_natural)
        first, many = f"{path}/{stuck[0]}" if path else stuck[0], len(stuck) > 1
        what = f"these tasks wait for each other in a circle: {', '.join(stuck[:5])}" if many else "it waits for itself"
        raise reading.error(f"task {first}", what)
    return order
