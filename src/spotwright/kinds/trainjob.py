"""Kubeflow Trainer: TrainJob, which patches the pods of a runtime, and the runtimes.

A patch of a TrainJob replaces the tolerations and the affinity terms of its runtime, so the patch repeats the runtime's values
beside the additions. Trainer 2.2 is the oldest release with the field of that patch. Only the runtime can set retries, so a
TrainJob that needs others gets a copy of the runtime, with a JobSet's retries. Source: kubeflow/trainer v2.2 and v2.3,
``pkg/runtime/core/trainingruntime.go`` (merge) and ``pkg/runtime/framework/plugins/jobset`` (what is refused).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from spotwright.kinds.jobset import (
    IN_PLACE,
    MECHANISMS,
    RUN_OF_SET,
    SET_FACTS,
    SetMember,
    note_rendezvous,
    order_of_set,
    pods_of_set,
    retries_of_set,
    write_failure_policy,
)
from spotwright.kinds.kind import Kind, Reads, number_at, pods_at
from spotwright.kube.object_fields import mapping
from spotwright.kube.pod import PREFERRED, REQUIRED
from spotwright.placing.context import RETRIES_STAY, Group, Level, OwnRetries, PlaceContext
from spotwright.placing.documents import Document, ManifestError, Path
from spotwright.placing.enforcement import Enforcer, Fact, Mechanism, nothing
from spotwright.placing.environment import SHARED_TEMPLATE, c10d_endpoint
from spotwright.placing.merging import place_merged, strategic, write
from spotwright.placing.patch import Editor, value_at
from spotwright.placing.pod_spec import (
    JOB_FIELDS,
    METADATA,
    POD_FIELDS,
    TEMPLATE,
    TEXT,
    check,
    check_value,
    refuse_in_job,
    refuse_misplaced,
)
from spotwright.placing.pods import Placed, Role, place_pod
from spotwright.placing.retries import deadline_seconds, own_retries_of_job, seconds_text, whole_number

__all__ = [
    "KINDS",
    "MANAGER",
    "without_own_entries",
]


_IN_RUNTIME = Fact(Enforcer.KIND, note="the runtime, as its own policy says")

_RUNTIME_DECIDES = Mechanism(
    "the runtime's own failure policy",
    {
        **SET_FACTS,
        "interruptions.max": nothing("the runtime decides", is_reported=True),
        "errors.retries": nothing("the runtime decides"),
        "timeout": nothing("the runtime decides"),
        "pending_timeout": nothing(),
    },
    is_of_another=True,
)

_RUNTIME_PLACED = Mechanism(
    "its runtime is placed in the same command",
    {
        **SET_FACTS,
        **dict.fromkeys(("interruptions.max", "errors.retries", "timeout"), _IN_RUNTIME),
        "pending_timeout": nothing(),
    },
    is_of_another=True,
)


MANAGER = "spotwright.dev/placement"
"""The manager of Spotwright's own entry."""

_KUEUE = "kueue.x-k8s.io/manager"
"""The manager of the entry in which Kueue writes the settings of its flavors."""

_OLD_FIELDS = ("podSpecOverrides", "podTemplateOverrides")
_OLDEST, _NEWEST = "2.2", "2.3"
_POD = ("template", "spec", "template")  # below a replicated job
_JOBS: Path = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
_GRACE = "terminationGracePeriodSeconds"
_JOB = {"name": TEXT, "template": {"spec": {"template": TEMPLATE}}}
_RUNTIMES_ALONE = frozenset(
    {"nodeName", "priorityClassName", "restartPolicy", "schedulerName", "topologySpreadConstraints"}
)
"""Fields of the pod spec that a TrainJob cannot set. On 2.2 it cannot set the grace period either."""


@dataclass(frozen=True, slots=True)
class _Patch:
    """The changes of one entry to a replicated job. ``template`` has its ``metadata`` and ``spec``; ``spec`` is its path."""

    entry: Path
    spec: Path
    manager: str
    job: str
    template: Mapping[str, Any]


def _release(ctx: PlaceContext) -> str:
    """The TrainJob's release of Trainer. Raises :class:`ManifestError` if it has a field of another release."""
    for at, name in product((("spec",), ("spec", "trainer")), _OLD_FIELDS):
        if ctx.get(*at, name) is not None:
            text = "trainer 2.2 and later silently drop this field; write it as spec.runtimePatches"
            raise ctx.problem(ctx.at(*at, name), text)
    target = str(ctx.config.target.get("trainer", ""))
    if target:
        release = _OLDEST if [int(part) for part in target.split(".")[:2]] == [2, 2] else _NEWEST
    else:
        is_used = ctx.get("spec", "runtimePatches") is not None
        has_grace = any(_GRACE in _spec(patch) for patch in _patches(ctx))
        release = _OLDEST if is_used and not has_grace else _NEWEST
        reason = "it has runtimePatches" if is_used else "the newest known"
        text = f"treated as for trainer {release} ({reason}); state yours under target: {{trainer: ...}} in spotwright.yaml"
        ctx.add_finding(Level.NOTE, ctx.at("kind"), text)
    dropped = _RUNTIMES_ALONE | {_GRACE} if release == _OLDEST else _RUNTIMES_ALONE
    for patch in _patches(ctx):
        for name in _spec(patch):
            if name in dropped:
                text = f"trainer {release} drops this field here; set it in the pod template of the runtime"
                raise ctx.problem((*patch.spec, name), text)
    return release


def _spec(patch: _Patch) -> Mapping[str, Any]:
    return patch.template.get("spec") or {}


def _patches(ctx: PlaceContext) -> Iterator[_Patch]:
    """The changes of the document's own entries, in the order of their application."""
    at = ctx.at("spec", "runtimePatches")
    for index, entry in enumerate(ctx.editor.get(at) or ()):
        jobs = (*at, index, *_JOBS)
        for number, job in enumerate(ctx.editor.get(jobs) or ()):
            pod = (*jobs, number, *_POD)
            template = ctx.editor.get(pod)
            if template is not None:
                yield _Patch((*at, index), (*pod, "spec"), str(entry.get("manager")), str(job.get("name")), template)


def _own_entry(templates: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The entry that applies ``templates``, by replicated job, with ``metadata`` and ``spec``."""
    jobs = [{"name": job, "template": {"spec": {"template": dict(template)}}} for job, template in templates.items()]
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def without_own_entries(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A TrainJob without the entries of :data:`MANAGER`, so that it can be placed again; any other object unchanged."""
    spec = data.get("spec")
    own = spec.get("runtimePatches") if isinstance(spec, dict) and data.get("kind") == "TrainJob" else None
    if not isinstance(spec, dict) or not isinstance(own, list):
        return data
    kept = [entry for entry in own if not (isinstance(entry, dict) and entry.get("manager") == MANAGER)]
    rest = {name: value for name, value in spec.items() if name != "runtimePatches"}
    return {**data, "spec": {**rest, "runtimePatches": kept} if kept else rest}


_RUNTIME_JOBS: Path = ("spec", "template", "spec", "replicatedJobs")
"""The path of the jobs of a runtime."""

_FAILURES: Path = ("spec", "template", "spec", "failurePolicy")
_TRAINER_LABELS = "trainer.kubeflow.org/"
_LONGEST = 63  # characters of a name that every object may have


@dataclass(frozen=True, slots=True)
class _RuntimeCopy:
    """The copy of a runtime for one TrainJob. ``ctx`` edits its content."""

    ctx: PlaceContext
    name: str
    namespace: str

    def write_grace(self, job: str, before: Any, after: Any) -> None:
        """Change the grace period of a job's pods from ``before`` to ``after``, which a TrainJob of 2.2 cannot set."""
        names = [str(one.get("name")) for one in self.ctx.editor.get(_RUNTIME_JOBS)]
        write(self.ctx.editor, (*_spec_of(names.index(job)), "template", "spec", _GRACE), before, after)

    def add(self, ctx: PlaceContext) -> None:
        """Add the copy in front of the TrainJob, which then refers to it."""
        runtime = self.ctx.editor.document
        labels = runtime.get(("metadata", "labels"), None) or {}
        metadata: dict[str, Any] = {"name": self.name}
        if self.namespace:
            metadata["namespace"] = self.namespace
        kept = {key: value for key, value in labels.items() if str(key).startswith(_TRAINER_LABELS)}
        if kept:
            metadata["labels"] = kept
        value = {
            "apiVersion": runtime.get(("apiVersion",)),
            "kind": "TrainingRuntime",
            "metadata": metadata,
            "spec": self.ctx.editor.result()["spec"],
        }
        at = ctx.at("spec", "runtimeRef")
        if ctx.add is not None and not ctx.add(value):
            text = (
                f"another TrainJob of this name needs a different copy of its runtime ({self.name}): rename one of them"
            )
            raise ctx.problem(at, text)
        kind, name = runtime.get(("kind",)), runtime.get(("metadata", "name"))
        text = f"TrainingRuntime {self.name}, a copy of {kind} {name} with a failure policy, is added in front of this TrainJob"
        ctx.add_finding(Level.NOTE, at, f"{text}; later changes of {name} do not reach it")
        ctx.editor.replace((*at, "name"), self.name)
        if ctx.editor.get((*at, "kind")) is None:
            ctx.editor.add((*at, "kind"), "TrainingRuntime")
        else:
            ctx.editor.replace((*at, "kind"), "TrainingRuntime")


def _settle_retries(ctx: PlaceContext, runtime: Document, placed: Mapping[str, Placed]) -> _RuntimeCopy | None:
    """Report the effect of an interruption on each job on spot; returns the copy of the runtime if needed.

    ``placed`` has the decisions for each job of the runtime, by its name.
    """
    spot = {name: one for name, one in placed.items() if one.on_spot}
    if not spot:
        return None
    if not ctx.writes(Group.RETRIES):
        for one in spot.values():
            one.report.after_interruption = RETRIES_STAY
            one.report.mechanism = _RUNTIME_DECIDES
        return None
    kind, name = runtime.get(("kind",)), runtime.get(("metadata", "name"))
    failures = runtime.get(_FAILURES, None)
    mechanism = _RUNTIME_DECIDES
    replaces = ctx.options.replace_retries and not ctx.is_input(runtime)
    if isinstance(failures, dict) and not replaces:
        sentence = f"the failure policy of {kind} {name} decides"
        if failures.get("restartStrategy") == IN_PLACE:
            sentence += f" ({IN_PLACE}: the pods that are not lost stay, and start their containers again)"
        _bound(ctx, failures, list(spot.values()))
    elif ctx.is_input(runtime):
        sentence = f"the failure policy that is written into {kind} {name} ({runtime.file}) decides"
        mechanism = _RUNTIME_PLACED
    elif ctx.add is None:
        sentence = _alone(ctx, kind, name)
    else:
        return _copy(ctx, runtime, spot)
    for one in spot.values():
        one.report.after_interruption = sentence
        one.report.mechanism = mechanism
    return None


def _alone(ctx: PlaceContext, kind: str, name: str) -> str:
    hint = ""
    if kind == "ClusterTrainingRuntime":
        hint = "; if you may not change it, copy it as a TrainingRuntime and name that under spec.runtimeRef"
    text = f"{kind} {name} has no failure policy, and a TrainJob cannot have one: place the runtime too{hint}"
    if not ctx.options.has_webhook:  # a webhook places the JobSet that Trainer makes
        ctx.add_finding(Level.WARNING, ctx.at("spec", "runtimeRef"), text)
    return "its Job replaces the pod alone, errors counted too (backoffLimit), while the others wait or fail"


def _copy(ctx: PlaceContext, runtime: Document, spot: Mapping[str, Placed]) -> _RuntimeCopy | None:
    """A copy of the runtime with the failure policy; ``None`` if the runtime has it."""
    other = replace(ctx, editor=Editor(runtime, steps=ctx.editor.steps), base=(), outer=None)
    names = [str(job.get("name")) for job in other.editor.get(_RUNTIME_JOBS) or ()]
    members = [SetMember(_spec_of(index), name, spot[name]) for index, name in enumerate(names) if name in spot]
    write_failure_policy(other, _RUNTIME_JOBS[:-1], members, is_alone=len(names) == 1 and _has_one_node(ctx, runtime))
    if not other.editor.changes:
        return None
    copy = _RuntimeCopy(other, _name(ctx, runtime), _namespace(ctx))
    _refuse_taken(ctx, copy)
    for one in spot.values():
        one.report.after_interruption += f" (by the added TrainingRuntime {copy.name})"
    return copy


def _has_one_node(ctx: PlaceContext, runtime: Document) -> bool:
    """Whether Trainer makes one pod of the runtime's job: the TrainJob's number of nodes overrides the runtime's."""
    nodes = ctx.get("spec", "trainer", "numNodes")
    return whole_number(nodes if nodes is not None else runtime.get(("spec", "mlPolicy", "numNodes"), None), 1) == 1


def _spec_of(index: int) -> Path:
    return (*_RUNTIME_JOBS, index, "template", "spec")


def _name(ctx: PlaceContext, runtime: Document) -> str:
    return f"{ctx.name}-{runtime.get(('metadata', 'name'))}"[:_LONGEST].rstrip("-.")


def _namespace(ctx: PlaceContext) -> str:
    """The namespace of the TrainJob, or of the experiment around it."""
    own = ctx.get("metadata", "namespace")
    outer = ctx.outer.get("metadata", "namespace") if ctx.outer is not None else None
    return str(own or outer or "")


def _refuse_taken(ctx: PlaceContext, copy: _RuntimeCopy) -> None:
    existing = ctx.find("TrainingRuntime", copy.name, copy.namespace or None)
    if existing is None:
        return
    text = (
        f"the copy of its runtime would be TrainingRuntime {copy.name}, which exists already "
        f"({existing.file}:{existing.line(('metadata',))}): name that one here, or remove it"
    )
    raise ctx.problem(ctx.at("spec", "runtimeRef"), text)


def _bound(ctx: PlaceContext, failures: Mapping[str, Any], spot: Sequence[Placed]) -> None:
    """Bound restarts that the runtime does not count by a deadline over the whole TrainJob."""
    rules = failures.get("rules") or ()
    if not any(str(rule.get("action")).endswith("IgnoreMaxRestarts") for rule in rules):
        return
    path = ctx.at("spec", "activeDeadlineSeconds")
    deadlines = [deadline_seconds(placed.policy) for placed in spot]
    if None in deadlines:
        text = "the runtime restarts it without counting: give the policy a timeout"
        ctx.add_finding(Level.WARNING, ctx.at("spec", "runtimeRef"), text)
        return
    wanted = max(deadline for deadline in deadlines if deadline is not None)
    if ctx.editor.get(path) is None:
        ctx.editor.add(path, wanted)
    elif ctx.editor.get(path) != wanted:
        ctx.add_finding(Level.WARNING, path, f"activeDeadlineSeconds stays; the policy allows {seconds_text(wanted)}")


_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINJOB = {
    "runtimePatches": [
        {"manager": TEXT, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [_JOB]}}}},
    ],
    "runtimeRef": {"name": TEXT, "kind": TEXT},
    "trainer": {"env": [{"name": TEXT}], "resourcesPerNode": {"limits": {}, "requests": {}}},
}
_RUNTIME = {
    "mlPolicy": {"mpi": {}},
    "template": {
        "spec": {
            "failurePolicy": {"rules": [{"action": TEXT}]},
            "replicatedJobs": [{"name": TEXT, "template": {"metadata": METADATA, "spec": {"template": TEMPLATE}}}],
        }
    },
}
_TORCH = ("spec", "mlPolicy", "torch")
"""If set, Trainer sets torchrun's variables in the nodes (kubeflow/trainer, ``pkg/runtime/framework/plugins/torch``)."""
_LAUNCHER = "all nodes depend on the launcher"


def _leads(role: str) -> bool:
    return role == "launcher"


_ANY_NODE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}]}
"""Terms that every node meets: a patch can replace a runtime's terms but not remove them. The kubelet sets the label."""

_FROZEN = (
    "spec.trainer, spec.runtimeRef and spec.activeDeadlineSeconds cannot be changed; the entries that change pods can, while "
    "the TrainJob is suspended"
)


@dataclass(slots=True)
class _ReplicatedJob:
    """One replicated job of the runtime: its pod template with the TrainJob's changes, before and after it is placed."""

    name: str
    is_trainer: bool  # the one that spec.trainer configures
    runtime: Mapping[str, Any] | None  # its pod template in the placed runtime; None if that is not placed
    patches: Sequence[_Patch]
    before: dict[str, Any]
    after: dict[str, Any]
    placed: Placed


def _place_trainjob(ctx: PlaceContext) -> None:
    check(ctx, ctx.at("spec"), _TRAINJOB)
    release = _release(ctx)
    _refuse_misplaced(ctx)
    runtime = _runtime(ctx)
    if runtime is None:
        return
    given = runtime.get(_RUNTIME_JOBS, None) or ()
    _check_entries(ctx, [str(job.get("name")) for job in given])
    beside = _placed_runtime(ctx, runtime) if ctx.is_input(runtime) else None
    other = replace(ctx, editor=Editor(runtime, steps=ctx.editor.steps), base=(), outer=None)
    retries = [own_retries_of_job(other, _spec_of(index), (*_FAILURES, "maxRestarts")) for index in range(len(given))]
    jobs = [_placed(ctx, runtime, job, beside, own) for job, own in zip(given, retries, strict=True)]
    own = _settle_retries(ctx, runtime, {job.name: job.placed for job in jobs})
    templates = {job.name: template for job in jobs if (template := _template(ctx, release, job, own))}
    if templates:
        ctx.editor.extend(ctx.at("spec", "runtimePatches"), [_own_entry(templates)])
    for job in jobs:
        if job.is_trainer:
            old, new = (_node(pod.get("spec") or {}) for pod in (job.before, job.after))
            ctx.editor.extend(ctx.at("spec", "trainer", "env"), _new(old, new, "env"))
    if own is not None:
        own.add(ctx)
    _note_rendezvous(ctx, jobs)


def _note_rendezvous(ctx: PlaceContext, jobs: Sequence[_ReplicatedJob]) -> None:
    """Report that the pods that ``spec.trainer`` starts have a c10d rendezvous at one of them, if they are on spot."""
    trainer, nodes = ctx.get("spec", "trainer") or {}, ctx.get("spec", "trainer", "numNodes")
    endpoint = c10d_endpoint(trainer)
    if endpoint and (whole_number(nodes, 1) or 1) > 1 and any(job.is_trainer and job.placed.on_spot for job in jobs):
        text = f"its pods meet at {endpoint}, {SHARED_TEMPLATE}; the runtime has the replicated jobs"
        ctx.add_finding(Level.NOTE, ctx.at("spec", "trainer"), text)


def _refuse_misplaced(ctx: PlaceContext) -> None:
    spec = ctx.at("spec")
    right = (*spec, "runtimePatches")
    refuse_misplaced(ctx, spec, right, POD_FIELDS)
    refuse_misplaced(ctx, (*spec, "trainer"), right, POD_FIELDS)
    refuse_misplaced(ctx, (*spec, "trainer"), spec, {"runtimePatches"})
    for name in ctx.editor.get(spec) or ():
        if name in JOB_FIELDS or name in ("failurePolicy", "successPolicy"):
            raise ctx.problem((*spec, name), "the API server would drop this field here; only the runtime can have it")


def _runtime(ctx: PlaceContext) -> Document | None:
    """The runtime of a TrainJob; ``None``, with a finding, if it was not given."""
    reference = ctx.get("spec", "runtimeRef")
    if not reference or not reference.get("name"):
        raise ctx.problem(ctx.at("spec", "runtimeRef"), "expected the name of a runtime")
    kind, name = str(reference.get("kind") or "ClusterTrainingRuntime"), str(reference["name"])
    namespace = ctx.get("metadata", "namespace") if kind == "TrainingRuntime" else None
    runtime = ctx.find(kind, name, namespace)
    if runtime is None:
        text = (
            f"not placed: a patch would replace values of {kind} {name}, which was not given; pass it with --with "
            f"(kubectl get {kind.lower()} {name} -o yaml)"
        )
        ctx.add_finding(Level.WARNING, ctx.at("spec", "runtimeRef"), text)
        return None
    check_value(runtime, ("spec",), runtime.get(("spec",), {}), _RUNTIME)
    return runtime


def _placed_runtime(ctx: PlaceContext, runtime: Document) -> Mapping[str, Any]:
    """The placed pod templates, by replicated job, of a runtime that the command places too. Its errors are reported there."""
    own = replace(
        ctx,
        editor=Editor(runtime, steps=ctx.editor.steps),
        base=(),
        owner="",
        outer=None,
        findings=[],
        reported=set(),
        roles=[],
    )
    try:
        _place_runtime(own)
    except ManifestError:
        return {}  # the command reports it at the unchanged runtime
    return {str(job.get("name")): _pod_template(job) for job in own.editor.get(_RUNTIME_JOBS) or ()}


def _pod_template(job: Mapping[str, Any]) -> dict[str, Any]:
    return ((job.get("template") or {}).get("spec") or {}).get("template") or {}


def _placed(
    ctx: PlaceContext,
    runtime: Document,
    given: Mapping[str, Any],
    beside: Mapping[str, Any] | None,
    retries: OwnRetries | None,
) -> _ReplicatedJob:
    """Merge the pod template of a replicated job and place it. ``beside``: the runtime's templates, if it is placed too."""
    name = str(given.get("name"))
    is_trainer = _ancestor(given) == "trainer" or (name == "node" and not _has_ancestor(runtime))
    applied = [patch for patch in _patches(ctx) if patch.job == name]
    before = _pod_template(given)
    for patch in applied:
        before = strategic(before, patch.template)
    as_node = runtime.get(("spec", "mlPolicy", "mpi", "runLauncherAsNode"), None) is True
    if is_trainer or (as_node and name == "node"):
        before = _with_resources(ctx, before)
    template = _scheduling_path(applied) or ctx.at("spec", "runtimePatches", name, "template")
    on_demand_reason = _LAUNCHER if _leads(name) else ""
    path, elastic = f"{ctx.name}/{name.lower()}", is_trainer and runtime.get(_TORCH, None) is not None
    spec = (*template, "spec")
    role = Role(
        name, path, spec, template, on_demand_reason, work=ctx.name, run=RUN_OF_SET, is_elastic=elastic, retries=retries
    )
    placed, after = place_merged(ctx, role, {"spec": {}, **before})
    placed.report.frozen = _FROZEN
    ours = [patch for patch in applied if patch.manager != _KUEUE]
    inherited = None if beside is None else beside.get(name, {})
    return _ReplicatedJob(name, is_trainer, inherited, ours, before, after, placed)


def _scheduling_path(applied: Sequence[_Patch]) -> Path | None:
    """The path at which the TrainJob itself selects nodes, for messages about it; ``None`` if it does not."""
    for patch in reversed(applied):
        if {"affinity", "nodeSelector"} & _spec(patch).keys():
            return patch.spec[:-1]
    return None


def _ancestor(job: Mapping[str, Any]) -> str:
    labels = ((job.get("template") or {}).get("metadata") or {}).get("labels") or {}
    return str(labels.get(_ANCESTOR, ""))


def _has_ancestor(runtime: Document) -> bool:
    return any(_ancestor(job) == "trainer" for job in runtime.get(_RUNTIME_JOBS))


def _with_resources(ctx: PlaceContext, template: Mapping[str, Any]) -> dict[str, Any]:
    """The template with the resources and the environment that ``spec.trainer`` gives its container ``node``."""
    trainer, pod = ctx.get("spec", "trainer") or {}, template.get("spec") or {}
    given = {"resources": trainer.get("resourcesPerNode") or {}, "env": trainer.get("env") or []}
    containers = [
        {**container, **strategic({key: container[key] for key in given if container.get(key)}, given)}
        if container.get("name") == "node"
        else container
        for container in pod.get("containers") or ()
    ]
    return {**template, "spec": {**pod, "containers": containers}} if containers else dict(template)


def _check_entries(ctx: PlaceContext, names: Sequence[str]) -> None:
    """Refuse a second entry of ours, and entries for jobs that the runtime lacks; other managers' entries stay."""
    for index, entry in enumerate(ctx.get("spec", "runtimePatches") or ()):
        path = ctx.at("spec", "runtimePatches", index)
        if entry.get("manager") == MANAGER:
            raise ctx.problem(path, f"an entry of {MANAGER} without a placement record; remove it")
        if entry.get("manager") == _KUEUE:
            text = "Kueue's own entry stays; if it sets tolerations, they replace those that are placed"
            ctx.add_finding(Level.WARNING, path, text)
    for patch in _patches(ctx):
        if patch.job not in names:
            text = f"the runtime has no replicated job {patch.job}, only {', '.join(names)}: the API server would refuse this"
            raise ctx.problem(patch.entry, text)


def _template(ctx: PlaceContext, release: str, job: _ReplicatedJob, own: _RuntimeCopy | None) -> dict[str, Any]:
    """The changes of our entry to a job; a field in an entry of the user's is extended there instead."""
    spec: dict[str, Any] = {}
    before, after = job.before.get("spec") or {}, job.after["spec"]
    for name in ("tolerations", "affinity"):
        if after.get(name) == before.get(name):
            continue
        holder = next((patch for patch in reversed(job.patches) if name in _spec(patch)), None)
        if holder is not None:
            write(ctx.editor, (*holder.spec, name), before.get(name), after[name])  # because entries replace the field
        else:
            spec[name] = after[name] if name == "tolerations" else _affinity(job)
    _replace_inherited_terms(spec, job)
    if after.get(_GRACE) != before.get(_GRACE):
        spec |= _grace_if_settable(ctx, release, job, own)
    if after.get("imagePullSecrets") != before.get("imagePullSecrets"):
        spec["imagePullSecrets"] = _new(before, after, "imagePullSecrets")
    if job.is_trainer:
        spec |= _checkpoint(before, after)
    return {key: value for key, value in (("metadata", _new_metadata(job)), ("spec", spec)) if value}


def _replace_inherited_terms(spec: dict[str, Any], job: _ReplicatedJob) -> None:
    """Write the job's required terms if it would inherit others from its placed runtime."""
    inherited, own = (value_at(pod, ("spec", *REQUIRED)) for pod in (job.runtime or {}, job.after))
    is_stated = any(REQUIRED[-1] in mapping(value_at(_spec(patch), REQUIRED[:-1])) for patch in job.patches)
    if not job.placed.policy.spot or inherited is None or inherited == own or is_stated:
        return
    affinity = spec.setdefault("affinity", {"nodeAffinity": {}})["nodeAffinity"]
    affinity.setdefault(REQUIRED[-1], own or _ANY_NODE)


def _affinity(job: _ReplicatedJob) -> dict[str, Any]:
    """The changed lists of terms as a whole, because a patch replaces them."""
    lists = {
        path: [value_at(pod, ("spec", *path)) for pod in (job.before, job.after)] for path in (REQUIRED, PREFERRED)
    }
    return {"nodeAffinity": {path[-1]: new for path, (old, new) in lists.items() if new != old}}


def _grace_if_settable(
    ctx: PlaceContext, release: str, job: _ReplicatedJob, own: _RuntimeCopy | None
) -> dict[str, Any]:
    """The grace period for our entry; before 2.3 the copy of the TrainJob's runtime gets it, if there is one."""
    before, after = (job.before.get("spec") or {}).get(_GRACE), job.after["spec"][_GRACE]
    if release == _NEWEST:
        return {_GRACE: after}
    if own is not None:
        own.write_grace(job.name, before, after)
        return {}
    text = f"{job.name}: a TrainJob of trainer {release} cannot set {_GRACE}"
    if ctx.options.has_webhook:
        return {}  # Trainer's JobSet gets the field
    if job.runtime is not None:
        ctx.add_finding(Level.NOTE, ctx.at("spec"), f"{text}: that of its runtime holds, which is placed too")
    else:
        ctx.add_finding(Level.WARNING, ctx.at("spec"), f"{text}: place the runtime instead")
    return {}


def _checkpoint(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The volume of the checkpoint, and its mount in the container ``node``."""
    fields: dict[str, Any] = {}
    volumes, mounts = _new(before, after, "volumes"), _new(_node(before), _node(after), "volumeMounts")
    if volumes and mounts:
        fields["volumes"] = volumes
        fields["containers"] = [{"name": "node", "volumeMounts": mounts}]
    return fields


def _node(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    containers: Sequence[Mapping[str, Any]] = spec.get("containers") or ()
    return next((container for container in containers if container.get("name") == "node"), {})


def _new(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> list[Any]:
    return list((after.get(name) or [])[len(before.get(name) or []) :])


def _new_metadata(job: _ReplicatedJob) -> dict[str, Any]:
    """The labels and annotations added to a job's pods."""
    metadata: dict[str, Any] = {}
    for kind in ("labels", "annotations"):
        old = (job.before.get("metadata") or {}).get(kind) or {}
        new = (job.after.get("metadata") or {}).get(kind) or {}
        added = {key: value for key, value in new.items() if key not in old}
        if added:
            metadata[kind] = added
    return metadata


def _place_runtime(ctx: PlaceContext) -> None:
    check(ctx, ctx.at("spec"), _RUNTIME)
    at = ctx.at("spec", "template", "spec")
    members = []
    jobs = ctx.editor.get((*at, "replicatedJobs")) or ()
    refuse_misplaced(
        ctx, ctx.at("spec"), (*at, "replicatedJobs", 0, "template", "spec", "template", "spec"), POD_FIELDS
    )
    for index, job in enumerate(jobs):
        name = str(job.get("name"))
        spec = (*at, "replicatedJobs", index, "template", "spec")
        refuse_in_job(ctx, spec)
        template = (*spec, "template")
        on_demand_reason = _LAUNCHER if _leads(name) else ""
        path, elastic = f"{ctx.name}/{name.lower()}", name == "node" and ctx.get(*_TORCH) is not None
        pods = (*template, "spec")
        retries = own_retries_of_job(ctx, spec, (*at, "failurePolicy", "maxRestarts"))
        role = Role(
            name,
            path,
            pods,
            template,
            on_demand_reason,
            work=ctx.name,
            run=RUN_OF_SET,
            is_elastic=elastic,
            is_inherited=True,
            retries=retries,
        )
        placed = place_pod(ctx, role)
        placed.report.frozen = "TrainJobs that have started keep the old runtime"
        members.append(SetMember(spec, name, placed))
    write_failure_policy(ctx, at, members)
    note_rendezvous(ctx, jobs, members)


def _runtime_of(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The runtime of a TrainJob."""
    runtime = spec.get("runtimeRef")
    runtime = runtime if isinstance(runtime, dict) else {}
    yield str(runtime.get("kind") or "ClusterTrainingRuntime"), runtime.get("name")


def _pods_of_runtime(data: Mapping[str, Any], path: Path) -> int | None:
    """The pods of a replicated job of a runtime; the trainer has one for each node. Source: kubeflow/trainer, ``pkg/runtime``."""
    labels = mapping(value_at(data, (*path[:-2], "metadata", "labels")))
    if labels.get(_ANCESTOR) == "trainer":
        return number_at(data, ("spec", "mlPolicy", "numNodes"))
    return pods_of_set(data, path)


def _nodes(data: Mapping[str, Any], _path: Path) -> int | None:
    """The nodes of a TrainJob; ``None`` for the default, which its runtime has."""
    return whole_number(value_at(data, ("spec", "trainer", "numNodes")))


_SET = "template.spec.replicatedJobs.*.template.spec.template"
_kind = partial(
    Kind, group="trainer.kubeflow.org", version="v1alpha1", is_partial=True, leads=_leads, default_policy="OnFailure"
)
_of_runtime = partial(
    _kind,
    place=_place_runtime,
    places=(pods_at(f"spec.{_SET}", job=1, at_once=_pods_of_runtime),),
    order=partial(order_of_set, top="spec.template.spec", count=_pods_of_runtime),
    is_gang=True,
    mechanisms=MECHANISMS,
    reads=Reads.OBJECTS,
    page_of_retries="jobset",
    top=("spec", "template", "spec"),
    retries=retries_of_set("spec.template.spec"),
)

KINDS = (
    _kind(
        name="TrainJob",
        place=_place_trainjob,
        places=(pods_at(f"spec.runtimePatches.*.trainingRuntimeSpec.{_SET}.spec", "H", at_once=_nodes),),
        is_gang=True,
        mechanisms=(*MECHANISMS, _RUNTIME_DECIDES, _RUNTIME_PLACED),
        reads=Reads.RUNS,
        hands_down=True,
        suspended_by=("spec", "suspend"),
        old_fields=_OLD_FIELDS,
        page="trainjob",
        notes=(
            "Give the runtime in the same call or with `--with`: a patch replaces the runtime's tolerations and "
            "affinity terms, so they are repeated in it. Without the runtime it stays unchanged.\n"
            "Only a runtime can define retries. A runtime in the input is placed like a JobSet. For one in "
            "`--with` a copy with a failure policy is added in front of the TrainJob, which then names it; "
            "`unplace` removes it. Apply the copy first.\n"
            "Trainer 2.2 is the oldest supported release, and drops the grace period in patches; set `target: "
            "{trainer: ...}`. `podSpecOverrides` and `podTemplateOverrides` of older releases are refused.\n"
            "The `launcher` stays on on-demand. Environment variables reach the container `node` of the trainer "
            "job.\n"
            "With the Kubeflow SDK, pass `spot.TrainJobOption` to `TrainerClient.train`."
        ),
        tried=(
            "Seen on Trainer 2.1.0, JobSet 0.10.1 and Kubernetes 1.35.4. Trainer's own code of 2.2.0 and 2.3.0 "
            "validated and merged placed TrainJobs."
        ),
        references=_runtime_of,
        is_queued=True,
    ),
    _of_runtime(
        name="TrainingRuntime",
        may_change=True,
        page="trainingruntime",
        notes=(
            "A TrainingRuntime defines the pods of its TrainJobs and what a lost pod causes. It is placed like a "
            "JobSet. An existing failure policy stays; `--replace-retries` replaces it."
        ),
    ),
    _of_runtime(
        name="ClusterTrainingRuntime",
        is_cluster_wide=True,
        page="clustertrainingruntime",
        notes=(
            "A change applies to every TrainJob that names the runtime. If it belongs to the platform team, give "
            "it with `--with`: the TrainJob then gets a copy of it."
        ),
    ),
)
