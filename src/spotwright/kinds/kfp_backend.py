"""Workflows that a KFP backend makes of runs, which are placed in the cluster as the backend creates them.

The compiled pipeline is in the Workflow's parameters, so each executor is placed by the rules of compiled pipelines, unless
``compile`` or ``place`` has done it. The Workflow's templates get what a compiled pipeline cannot express: the endings that are
retried, with separate templates for each policy; no retries of whole DAGs; and drivers and importers on on-demand. Sources:
Workflows of KFP 2.16.1 and 2.17.0, whose parts have the same names; ``argocompiler`` of kubeflow/pipelines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spotwright.kfp.kfp_settings import runtime_field
from spotwright.kfp.placed_record import digest
from spotwright.kinds.job import REFUSED
from spotwright.kinds.kfp_tasks import (
    CompiledTask,
    PipelinePaths,
    identity_of,
    list_tasks,
    mapping_at,
    place_executor,
    read_work,
)
from spotwright.model.policy import Backoff, Layer, Policy, Spot, resolve
from spotwright.placing.affinity import attraction
from spotwright.placing.context import POLICY_ANNOTATION, Group, Level, PlaceContext, RoleReport, own_layer
from spotwright.placing.documents import Path
from spotwright.placing.patch import Editor, clone, data_document, value_at
from spotwright.placing.pod_change import PodChange, write
from spotwright.placing.pod_spec import TEXT, PodSpecError, check, pod_requests, read_constraints
from spotwright.placing.pods import Placed, no_pool_fits, tolerations_of
from spotwright.scheduling.budgets import MAX_MOVES
from spotwright.scheduling.ladder import PodRequirements, build

__all__ = [
    "RUN_LABEL",
    "bound_dags",
    "dag_retries",
    "is_backend_workflow",
    "place_own_pods",
    "place_workflow",
    "retry_strategy",
]


_INTERRUPTED = 'lastRetry.status == "Error" || lastRetry.exitCode in ["143","137","255"]'
_NOT_REFUSED = f'lastRetry.exitCode != "{REFUSED}"'
_DRIVERS = ("system-container-driver", "system-dag-driver")
_IMPORTERS = ("system-importer", "system-importer-workspace")
_ROLE = "pipelines.kubeflow.org/runtime-role"  # an annotation of templates since 2.17
_ON_DEMAND = Layer("KFP's own pods stay on on-demand: each holds up the rest of its pipeline", {"spot": Spot.NEVER})
_ANYWHERE = Layer("no on-demand pool admits KFP's own pods", {"spot": Spot.PREFER})


def retry_strategy(ctx: PlaceContext, placed: Placed) -> dict[str, Any]:
    """The ``retryStrategy`` of a task's pods: both budgets and the moves, and the endings that may be interruptions."""
    policy = placed.policy
    interruptions = policy.max_interruptions if placed.on_spot else 0
    strategy: dict[str, Any] = {
        "limit": str(interruptions + policy.retries + MAX_MOVES),
        "retryPolicy": "Always",
        "expression": _NOT_REFUSED if policy.retries else _INTERRUPTED,
    }
    wait = policy.interruption_backoff if placed.on_spot else policy.error_backoff
    if wait.first > 0:
        strategy["backoff"] = _backoff(ctx, wait)
    return strategy


def _backoff(ctx: PlaceContext, wait: Backoff) -> dict[str, str]:
    """Waits without a window over all attempts. Before Argo 3.7 growth is unlimited, so they are constant."""
    backoff = {"duration": f"{max(1, math.ceil(wait.first))}s"}
    if str(ctx.config.target.get("argo", "3.7")) >= "3.7":
        backoff |= {"factor": str(max(1, round(wait.factor))), "cap": f"{max(1, math.ceil(wait.max_backoff))}s"}
    return backoff


def dag_retries(ctx: PlaceContext, spec: Path, templates: Iterable[Path]) -> dict[str, str]:
    """The ``retryStrategy`` that keeps a DAG from being retried; empty if no setting would retry it.

    The configuration of KFP 2.17 gives every template two retries, on four levels: 81 pods of one task were seen.
    """
    return {"limit": "0"} if _retries_by_default(ctx, spec, templates) else {}


def bound_dags(ctx: PlaceContext, templates: Iterable[Path], retries: Mapping[str, str]) -> None:
    """Give DAG templates without retries these ones: each retry of a DAG would restart all its tasks."""
    for path in templates if retries else ():
        if ctx.editor.get((*path, "dag")) is not None and ctx.editor.get((*path, "retryStrategy")) is None:
            ctx.editor.add((*path, "retryStrategy"), dict(retries))


def _retries_by_default(ctx: PlaceContext, spec: Path, templates: Iterable[Path]) -> bool:
    """Whether templates without retries may get some: by the Workflow's defaults, or the controller's from 2.17 on."""
    if ctx.editor.get((*spec, "templateDefaults", "retryStrategy")) is not None:
        return True
    return any(_ROLE in (ctx.editor.get((*path, "metadata", "annotations")) or {}) for path in templates)


def place_own_pods(ctx: PlaceContext, spec: Path, templates: Mapping[str, Path]) -> None:
    """Keep drivers and importers on on-demand, with its tolerations, and retry them when their pods are lost.

    Without an on-demand pool that admits them they may run anywhere.
    """
    retried = _IMPORTERS if _evaluates_retries(ctx, spec) else (*_DRIVERS, *_IMPORTERS)
    for name in (*_DRIVERS, *_IMPORTERS):
        if name in templates:
            _place_own_pod(ctx, templates[name])
            if name in retried and ctx.editor.get((*templates[name], "retryStrategy")) is None:
                strategy = {"limit": str(MAX_MOVES), "retryPolicy": "Always", "expression": _INTERRUPTED}
                ctx.editor.add((*templates[name], "retryStrategy"), strategy)


def _evaluates_retries(ctx: PlaceContext, spec: Path) -> bool:
    """Whether a parameter has an expression over ``retries`` that a driver with retries would replace by its own 0."""
    for parameter in ctx.editor.get((*spec, "arguments", "parameters")) or ():
        text = str(parameter.get("value"))
        if "{{=" in text and "retries in" in text and "retry-max-count" not in text:
            return True
    return False


def _place_own_pod(ctx: PlaceContext, path: Path) -> None:
    template = ctx.editor.get(path)
    try:
        requests = pod_requests({"containers": [template.get("container")]})
    except PodSpecError as error:
        raise ctx.problem((*path, "container"), str(error)) from error
    work = PodRequirements(requests, read_constraints(ctx, path))
    for layer in (_ON_DEMAND, _ANYWHERE):
        policy: Policy = resolve([layer])
        ladder = build(work, policy, ctx.config.pools)
        if ladder.rungs:
            break
    else:
        return
    used = [ctx.config.pools[name] for rung in ladder.rungs for name in rung.pools]
    wanted = attraction(policy, used, ctx.config.pools)
    write(ctx.editor, path, PodChange(tuple(tolerations_of(ladder)), wanted.required, wanted.any_of))


RUN_LABEL = "pipeline/runid"
"""The label with KFP's run id on a Workflow and on its pods."""

_PATHS = PipelinePaths((0,), (1, "platforms"))
_REFERENCE = ("{{workflow.parameters.", "}}")
_EXECUTOR = "system-container-executor"
_EXIT_HOOK = "exit-hook-{dag}-{task}"
"""The template of a task that always runs after others, in their hook (``argocompiler/dag.go``)."""

_BYTES_A_STEP = 200  # of JSON, read in the time of one step
_ARGUMENTS = {"parameters": [{"name": TEXT, "value": TEXT}]}
_WORKFLOW = {
    "arguments": _ARGUMENTS,
    "templates": [
        {
            "name": TEXT,
            "container": {},
            "dag": {"tasks": [{"name": TEXT, "template": TEXT, "arguments": _ARGUMENTS}]},
            "metadata": {"annotations": {}, "labels": {}},
        }
    ],
}
"""The fields of a Workflow that are read; its schema in the cluster lets any type through."""

_COMPONENTS, _IMPLEMENTATIONS, _KUBERNETES = "components-", "implementations-", "kubernetes-"


def is_backend_workflow(data: Mapping[str, Any]) -> bool:
    """Whether a KFP backend made the Workflow: it has a run label and driver templates."""
    labels, templates = value_at(data, ("metadata", "labels")), value_at(data, ("spec", "templates"))
    if not isinstance(labels, dict) or RUN_LABEL not in labels or not isinstance(templates, list):
        return False
    return any(isinstance(template, dict) and template.get("name") == "system-dag-driver" for template in templates)


@dataclass(slots=True)
class _Step:
    """The DAG task of a Workflow that runs one task of the pipeline. ``at`` is its path, ``driver`` its driver's."""

    at: Path
    driver: Path
    executor: str  # the name of its template
    arguments: Mapping[str, Any]
    driver_arguments: Mapping[str, Any]


@dataclass(slots=True)
class _Run:
    """A Workflow read as the pipeline that it runs. ``steps`` have the component (``root`` for the outermost) and the task."""

    ctx: PlaceContext
    spec: Path
    parameters: dict[str, tuple[Path, Any]] = field(
        default_factory=dict
    )  # by name: the path of the value, and the value
    templates: dict[str, Path] = field(default_factory=dict)
    steps: dict[tuple[str, str], _Step] = field(default_factory=dict)

    def parameter(self, name: str) -> Any:
        """The JSON in a parameter, ``None`` if it is missing. Raises :class:`ManifestError` for any other text."""
        if name not in self.parameters:
            return None
        path, text = self.parameters[name]
        self.ctx.editor.steps.charge(len(str(text)) // _BYTES_A_STEP)
        try:
            return json.loads(text)
        except (TypeError, ValueError) as error:
            raise self.ctx.problem(path, f"parameter {name}: expected JSON: {error}") from error


def place_workflow(ctx: PlaceContext, reports: list[RoleReport] | None = None) -> None:
    """Place a Workflow of a KFP backend. Raises :class:`ManifestError` for an unknown shape.

    The report of each executor's tasks is appended to ``reports``.
    """
    run = _read(ctx)
    inner = _as_pipeline(run)
    steps: list[tuple[_Step, Placed, dict[str, Any]]] = []
    for tasks in _by_executor(list_tasks(inner, _PATHS)):
        placed, metadata = _place_executor(inner, run, tasks)
        if reports is not None:
            reports.append(placed.report)
        if placed.policy.spot is not None:
            steps += [(step, placed, metadata) for step in _steps_of(run, tasks)]
    for finding in inner.findings:
        ctx.add_finding(finding.level, (), finding.text)  # their paths are the pipeline's
    _write_parameters(run, inner, [step for step, _, _ in steps])
    if steps and ctx.writes(Group.RETRIES):
        of_dags = dag_retries(ctx, run.spec, run.templates.values())
        _write_templates(run, steps, of_dags)
        bound_dags(ctx, run.templates.values(), of_dags)
    if steps and ctx.writes(Group.PLACEMENT):
        place_own_pods(ctx, run.spec, run.templates)


def _read(ctx: PlaceContext) -> _Run:
    """Index the parameters, the templates and the steps of a Workflow."""
    run = _Run(ctx, ctx.at("spec"))
    check(ctx, run.spec, _WORKFLOW)
    for index, parameter in enumerate(ctx.get("spec", "arguments", "parameters") or ()):
        path = (*run.spec, "arguments", "parameters", index, "value")
        run.parameters[str(parameter.get("name"))] = path, parameter.get("value")
    for index, template in enumerate(ctx.get("spec", "templates") or ()):
        run.templates[str(template.get("name"))] = (*run.spec, "templates", index)
    for name, path in run.templates.items():
        for task, step in _steps(ctx, path):
            run.steps[name, task] = step
    return run


def _steps(ctx: PlaceContext, template: Path) -> Iterator[tuple[str, _Step]]:
    """The tasks of a DAG that run a task of the pipeline in a pod, each with its driver."""
    tasks = {
        str(task.get("name")): ((*template, "dag", "tasks", index), task)
        for index, task in enumerate(ctx.editor.get((*template, "dag", "tasks")) or ())
    }
    for name, (path, task) in tasks.items():
        driver = tasks.get(f"{name}-driver")
        if str(task.get("template", "")).endswith(_EXECUTOR) and driver is not None:
            step = _Step(path, driver[0], task["template"], _arguments(task), _arguments(driver[1]))
            yield name, step


def _arguments(task: Mapping[str, Any]) -> dict[str, Any]:
    given = (task.get("arguments") or {}).get("parameters") or ()
    return {str(one.get("name")): one.get("value") for one in given}


def _as_pipeline(run: _Run) -> PlaceContext:
    """The context of the compiled pipeline that the parameters hold: components, executors and their Kubernetes settings."""
    pipeline: dict[str, Any] = {"components": {}, "deploymentSpec": {"executors": {}}}
    pipeline["root"] = run.parameter(f"{_COMPONENTS}root") or {}
    settings: dict[str, Any] = {}
    for name in run.parameters:
        component = name.removeprefix(_COMPONENTS)
        if component not in (name, "root"):
            pipeline["components"][component] = run.parameter(name)
    for step in run.steps.values():
        component = _component_of(step)
        definition = run.parameter(_referenced(step.driver_arguments.get("component")))
        container = run.parameter(_referenced(step.driver_arguments.get("container")))
        if component and isinstance(definition, dict):
            label = str(definition.get("executorLabel"))
            pipeline["components"][component] = definition
            pipeline["deploymentSpec"]["executors"][label] = {"container": container or {}}
            settings[label] = run.parameter(f"{_KUBERNETES}{component}") or {}
    _add_missing_executors(pipeline)
    pair = [pipeline, {"platforms": {"kubernetes": {"deploymentSpec": {"executors": settings}}}}]
    editor = Editor(data_document(pair, run.ctx.editor.document.file), steps=run.ctx.editor.steps)  # type: ignore[arg-type]
    return replace(run.ctx.embedded(editor), findings=[])


def _add_missing_executors(pipeline: dict[str, Any]) -> None:
    """Add an empty executor for every component without a step: importers, whose pods have no settings in a pipeline."""
    for definition in pipeline["components"].values():
        if isinstance(definition, dict) and "dag" not in definition:
            pipeline["deploymentSpec"]["executors"].setdefault(str(definition.get("executorLabel")), {"importer": {}})
    tasks = [task for one in (pipeline["root"], *pipeline["components"].values()) for task in _tasks_of(one)]
    for task in tasks:
        name = str((task.get("componentRef") or {}).get("name"))
        pipeline["components"].setdefault(name, {"executorLabel": f"absent-{name}"})
        pipeline["deploymentSpec"]["executors"].setdefault(f"absent-{name}", {"importer": {}})


def _tasks_of(definition: Any) -> Iterator[Mapping[str, Any]]:
    dag = definition.get("dag") if isinstance(definition, dict) else None
    yield from (task for task in ((dag or {}).get("tasks") or {}).values() if isinstance(task, dict))


def _component_of(step: _Step) -> str:
    """The name of a step's component, from the task that its driver gets as JSON."""
    text = step.driver_arguments.get("task") or ""
    try:
        task = json.loads(text)
        return str(task["componentRef"]["name"])
    except (ValueError, TypeError, KeyError):  # unknown shape of driver: without a component the step is not placed
        return ""


def _referenced(value: Any) -> str:
    """The name of the workflow parameter that an argument refers to."""
    text = str(value or "")
    before, after = _REFERENCE
    return text[len(before) : -len(after)] if text.startswith(before) and text.endswith(after) else ""


def _by_executor(tasks: Sequence[CompiledTask]) -> list[list[CompiledTask]]:
    groups: dict[str, list[CompiledTask]] = {}
    for task in tasks:
        groups.setdefault(task.label, []).append(task)
    return list(groups.values())


def _steps_of(run: _Run, tasks: Sequence[CompiledTask]) -> Iterator[_Step]:
    """The steps that run these tasks; tasks of a pipeline used twice share theirs."""
    for at in dict.fromkeys(task.at for task in tasks):
        keys = at[len(_PATHS.pipeline) :]  # root, dag, tasks, KEY; or components, NAME, dag, tasks, KEY
        template = "root" if keys[0] == "root" else str(keys[1])
        task = str(keys[-1])
        step = run.steps.get((template, task)) or run.steps.get((_EXIT_HOOK.format(dag=template, task=task), task))
        if step is not None:
            yield step


def _place_executor(inner: PlaceContext, run: _Run, tasks: Sequence[CompiledTask]) -> tuple[Placed, dict[str, Any]]:
    """Place one executor, unless the pipeline carries its placement; returns the decisions, and metadata for its pods.

    A pipeline's metadata reach the pods through the Workflow's templates, so additions here must be repeated there.
    """
    settings = _PATHS.settings(tasks[0].label)
    carried = mapping_at(inner, (*settings, "podMetadata", "annotations")).get(POLICY_ANNOTATION)
    policy = _policy(inner, run, tasks, carried)
    work = read_work(inner, _PATHS, tasks[0].label)
    ladder = build(work, policy, inner.config.pools)
    pools = tuple(name for rung in ladder.rungs for name in rung.pools)
    report = RoleReport("task", tasks[0].path, 0, policy, pools, ladder.refusals)
    report.tasks, report.identity = tuple(task.path for task in tasks), identity_of(tasks)
    report.on_demand_reason = (
        tasks[0].on_demand_reason if policy.sources.get("spot") == tasks[0].on_demand_reason else ""
    )
    placed = Placed(policy, ladder, report)
    if policy.spot is None or carried is not None:
        return placed, {}
    parameter = runtime_field(mapping_at(inner, settings))
    if parameter:
        text = f"{tasks[0].path}: a parameter decides at run time where it runs ({parameter}), so it is not placed"
        run.ctx.add_finding(Level.WARNING, (), text)
        return placed, {}
    if not ladder.rungs:
        raise no_pool_fits(run.ctx, (), tasks[0].path, tasks[0].path, policy, ladder)
    before = mapping_at(inner, (*settings, "podMetadata"))
    place_executor(inner, _PATHS, tasks, placed)
    return placed, _added(before, mapping_at(inner, (*settings, "podMetadata")))


def _policy(inner: PlaceContext, run: _Run, tasks: Sequence[CompiledTask], carried: str | None) -> Policy:
    """The policy of an executor's tasks: what the pipeline carries, under the namespace's ``policy.tasks``.

    A placed pipeline has the sum of both budgets as ``set_retry``, which is then not the user's.
    """
    own = None if carried is None else _layers(run, carried)
    kfp = tasks[0].retry if carried is None else None
    return inner.policy(tasks[0].path, on_demand_reason=tasks[0].on_demand_reason, own=own or [], kfp=kfp)


def _layers(run: _Run, text: str) -> list[Layer]:
    try:
        layer = own_layer({}, {POLICY_ANNOTATION: text}, f"annotation {POLICY_ANNOTATION}")
    except ValueError as error:
        raise run.ctx.problem((), str(error)) from error
    return [] if layer is None else [layer]


def _added(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    added = {}
    for kind in ("labels", "annotations"):
        old = before.get(kind) or {}
        added[kind] = {key: value for key, value in (after.get(kind) or {}).items() if key not in old}
    return {kind: values for kind, values in added.items() if values}


def _write_parameters(run: _Run, inner: PlaceContext, steps: Sequence[_Step]) -> None:
    """Write changed settings and containers back into the Workflow's parameters; a missing parameter is added."""
    before, after = inner.editor.document.get(()), inner.editor.result()
    new: dict[str, str] = {}
    for step in steps:
        component = _component_of(step)
        label = str((after[0]["components"].get(component) or {}).get("executorLabel"))
        container = _referenced(step.driver_arguments.get("container"))
        pairs = [
            (one[0]["deploymentSpec"]["executors"][label]["container"], _settings(one, label))
            for one in (before, after)
        ]
        for name, old, value in (
            (container, pairs[0][0], pairs[1][0]),
            (f"{_KUBERNETES}{component}", pairs[0][1], pairs[1][1]),
        ):
            if value == old:
                continue
            text = json.dumps(value, separators=(",", ":"), sort_keys=True)
            if name in run.parameters:
                run.ctx.editor.replace(run.parameters[name][0], text)
            else:
                new[name] = text
                argument = {"name": "kubernetes-config", "value": f"{_REFERENCE[0]}{name}{_REFERENCE[1]}"}
                run.ctx.editor.extend((*step.driver, "arguments", "parameters"), [argument])
    added = [{"name": name, "value": text} for name, text in new.items()]
    run.ctx.editor.extend((*run.spec, "arguments", "parameters"), added)


def _settings(pair: Sequence[Any], label: str) -> Any:
    return pair[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"][label]


def _write_templates(
    run: _Run, steps: Sequence[tuple[_Step, Placed, dict[str, Any]]], of_dags: Mapping[str, str]
) -> None:
    """Give every step templates with the retries of its policy; steps with equal retries share them.

    ``of_dags`` are the retries of the DAG around the pod, none if it is empty.
    """
    clones: dict[str, list[dict[str, Any]]] = {}
    for step, placed, metadata in steps:
        strategy = retry_strategy(run.ctx, placed)
        key = digest(json.dumps([step.executor, strategy, metadata], sort_keys=True))[:8]
        name = f"spotwright-{key}-{_EXECUTOR}"
        if name not in clones:
            clones[name] = _clones(run, step.executor, name, strategy, metadata)
            if of_dags and clones[name]:
                clones[name][0].setdefault("retryStrategy", dict(of_dags))
        if clones[name]:
            run.ctx.editor.replace((*step.at, "template"), name)
    run.ctx.editor.extend((*run.spec, "templates"), [template for pair in clones.values() for template in pair])


def _clones(
    run: _Run, executor: str, name: str, strategy: Mapping[str, Any], metadata: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Copies of an executor's two templates: the DAG, and the pod with its own retries; empty for an unknown shape."""
    outer = clone(run.ctx.editor.get(run.templates.get(executor, ()), {}))
    inner_task: dict[str, Any] = next(iter((outer.get("dag") or {}).get("tasks") or ()), {})
    pod = clone(run.ctx.editor.get(run.templates.get(str(inner_task.get("template")), ()), {}))
    if "container" not in pod:
        return []
    outer["name"], pod["name"] = name, name.replace(_EXECUTOR, "system-container-impl")
    inner_task["template"] = pod["name"]
    pod["retryStrategy"] = dict(strategy)
    for kind, values in metadata.items():
        pod["metadata"] = pod.get("metadata") or {}
        own = pod["metadata"].get(kind) or {}
        pod["metadata"][kind] = {**own, **values}
    return [outer, pod]
