"""The tasks of a compiled pipeline by their path in a run, and the placement of their executors and retries in the IR.

An executor's settings apply to every task that uses it, through its component and each use of the pipeline around it. So
several tasks may share one executor.

KFP has one count of retries for all endings, one growing backoff, and one window for all attempts. A task falls back to
on-demand after some retries by a node affinity with an expression that Argo evaluates for each attempt. The backend's reaction
to each kind of ending depends on its version and on an admin's settings: :class:`Backend`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spotwright.clouds import providers
from spotwright.clouds.provider import NVIDIA_GPU
from spotwright.kfp.compiled import IrError, UnfoldedTask, merged_executors, unfold
from spotwright.kfp.kfp_settings import (
    accelerator_loss,
    pod_fields,
    read_policy_text,
    read_resources,
    read_retry,
    with_constants,
)
from spotwright.kube.devices import devices_asked
from spotwright.kube.object_fields import mappings
from spotwright.kube.pod import TERMS, scheduling_of
from spotwright.model.policy import EXIT_HANDLER, Backoff, Layer, Policy, Spot, inherit_retry
from spotwright.model.pools import Pool
from spotwright.model.quantities import format_duration, parse_duration
from spotwright.model.scheduling_terms import Taint
from spotwright.placing.affinity import Expression, capacity_expressions, conditions_from_attempt
from spotwright.placing.context import QUEUE_LABEL, Group, Level, PlaceContext
from spotwright.placing.document_pair import EXECUTORS
from spotwright.placing.documents import Path
from spotwright.placing.environment import CHECKPOINT_PATH
from spotwright.placing.patch import Editor, RemarkedNumber, RemarkedText, value_at
from spotwright.placing.pod_change import ContainerChange, PodChange, write_metadata
from spotwright.placing.pod_spec import TEXT, check, tell_assumptions
from spotwright.placing.pods import Placed, change_of, metadata_change, own_conditions, warn_of_preference
from spotwright.placing.retries import write_unless_set
from spotwright.scheduling.ladder import PodRequirements

__all__ = [
    "LONGEST_WAIT",
    "Backend",
    "CompiledTask",
    "PipelinePaths",
    "admin_notes",
    "after_interruption",
    "backend_of",
    "claim_of",
    "identity_of",
    "later_conditions",
    "list_tasks",
    "lost_nodes_note",
    "mapping_at",
    "merge_warnings",
    "named_constant",
    "on_demand_from",
    "on_demand_text",
    "place_executor",
    "policy_of",
    "queue_of",
    "read_work",
    "stock_warning",
    "write_retries",
]


@dataclass(frozen=True, slots=True)
class PipelinePaths:
    """The paths of the two halves of a compiled pipeline: the pipeline, and the mapping of its platforms."""

    pipeline: Path
    platforms: Path

    @property
    def pipeline_policy(self) -> Path:
        """The path of the policy that the pipeline sets for all its tasks."""
        return (*self.platforms, "spotwright", "config", "policy")

    def executor(self, label: str) -> Path:
        """The path of an executor."""
        return (*self.pipeline, "deploymentSpec", "executors", label)

    def settings(self, label: str) -> Path:
        """The path of the Kubernetes settings of an executor."""
        return (*self.platforms, *EXECUTORS, label)

    def policy(self, label: str) -> Path:
        """The path of the policy that the pipeline sets for an executor."""
        return (*self.platforms, "spotwright", *EXECUTORS[1:], label, "policy")


@dataclass(frozen=True, slots=True)
class CompiledTask:
    """One task that runs in a pod. ``at`` is its path in the document; tasks of a pipeline used twice share it.

    ``retry`` has its ``set_retry`` and ``set_timeout``, or those of the pipeline around it. ``loops``: a loop runs it.
    """

    path: str
    at: Path
    component: str
    label: str
    retry: Layer | None = None
    loops: bool = False
    on_demand_reason: str = ""


_CONTAINER = {"image": TEXT, "command": [TEXT], "args": [TEXT], "env": [{"name": TEXT}]}


def list_tasks(ctx: PlaceContext, paths: PipelinePaths) -> list[CompiledTask]:
    """Every task that runs in a pod, with its path. Raises :class:`ManifestError` where the document contradicts itself."""
    try:
        uses = list(unfold(mapping_at(ctx, paths.pipeline)))
    except IrError as error:
        raise ctx.problem((*paths.pipeline, *error.keys), str(error)) from error
    for label in {use.label for use in uses}:
        check(ctx, (*paths.executor(label), "container"), _CONTAINER)
    return [_task(ctx, paths, use) for use in uses if use.has_pod]


def _task(ctx: PlaceContext, paths: PipelinePaths, use: UnfoldedTask) -> CompiledTask:
    at = (*paths.pipeline, *use.keys)
    timeout = mapping_at(ctx, paths.settings(use.label)).get("activeDeadlineSeconds")
    try:
        own = read_retry(use.task.get("retryPolicy"), float(timeout) if timeout else None)
    except (ValueError, TypeError, AttributeError) as error:
        raise ctx.problem((*at, "retryPolicy"), f"cannot be read: {error}") from error
    retry = inherit_retry(own, use.enclosing_retry)
    return CompiledTask(
        use.path,
        at,
        use.component,
        use.label,
        retry,
        use.in_loop,
        EXIT_HANDLER.source if use.in_exit_handler else "",
    )


def merge_warnings(ctx: PlaceContext, paths: PipelinePaths) -> dict[str, str]:
    """A warning for each executor that the SDK's compiler gave to several components, by the executor's label."""
    return {
        merged.label: (
            f"the components {' and '.join(merged.components)} share the executor {merged.label}, and "
            f"{', '.join(merged.unused)} is used by none: the compiler of the SDK mixed them up, so the image, resources and "
            "settings of one are lost; compile again until no executor is left over, or give the components of nested "
            "pipelines distinct names"
        )
        for merged in merged_executors(mapping_at(ctx, paths.pipeline))
    }


def policy_of(ctx: PlaceContext, paths: PipelinePaths, task: CompiledTask) -> Policy:
    """The policy of a task, the same as in a run of the pipeline."""
    own = [*_read_policy(ctx, paths.pipeline_policy), *_read_policy(ctx, paths.policy(task.label))]
    return ctx.policy(task.path, on_demand_reason=task.on_demand_reason, own=own, kfp=task.retry)


def _read_policy(ctx: PlaceContext, path: Path) -> Iterator[Layer]:
    text = ctx.editor.get(path)
    if text is not None:
        try:
            yield read_policy_text(text)
        except (ValueError, TypeError) as error:
            raise ctx.problem(path, str(error)) from error


def mapping_at(ctx: PlaceContext, path: Path) -> Mapping[str, Any]:
    """The mapping at a path, empty if it is missing. Raises :class:`ManifestError` for any other value."""
    value = ctx.editor.get(path)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ctx.problem(path, f"expected a mapping, found {value!r}")
    return value


_SHORTEST_WINDOW = 30 * 24 * 3600
"""The least ``backoffMaxDuration``: seconds after the start of the first attempt in which retries may begin."""

LONGEST_WAIT = 3600
"""The longest wait in seconds, even if the policy's cap is lower: in KFP waits grow until the last retry."""


def write_retries(ctx: PlaceContext, task: CompiledTask, placed: Placed) -> int:
    """Write the retries of a task unless it has its own; returns their number."""
    policy, at = placed.policy, (*task.at, "retryPolicy")
    count = policy.retries + (policy.max_interruptions if placed.on_spot else 0)
    own = ctx.editor.get(at)
    if not ctx.writes(Group.RETRIES):
        return _retries_of(own or {})
    if own is None:
        if count:
            ctx.editor.add(at, _retry_policy(placed, count))
        return count
    if not ctx.options.replace_retries:
        return _keep(ctx, task.path, at, own, placed)
    write_unless_set(ctx, (*at, "maxRetryCount"), count)
    if _is_broken(own.get("backoffFactor")):
        write_unless_set(ctx, (*at, "backoffFactor"), max(1, int(own["backoffFactor"])))
    if _seconds(ctx, (*at, "backoffMaxDuration")) < _SHORTEST_WINDOW:
        write_unless_set(ctx, (*at, "backoffMaxDuration"), f"{_window(placed, count)}s")
    return count


def _retry_policy(placed: Placed, count: int) -> dict[str, Any]:
    wait = placed.policy.interruption_backoff if placed.on_spot else placed.policy.error_backoff
    window = _window(placed, count)
    counted = f"interruptions.max {placed.policy.max_interruptions} + " if placed.on_spot else ""
    return {
        "maxRetryCount": RemarkedNumber(count, f"{counted}errors.retries {placed.policy.retries}"),
        "backoffDuration": f"{math.ceil(wait.first)}s",
        "backoffFactor": _factor(wait, count),
        "backoffMaxDuration": RemarkedText(
            f"{window}s", f"{window / 86400:.3g} days from the first attempt on, in which others may begin"
        ),
    }


_MOST_RETRIES = 2**31 - 1  # the field is an int32


def _retries_of(own: Mapping[str, Any]) -> int:
    return min(int(own.get("maxRetryCount") or 0), _MOST_RETRIES)


def _factor(wait: Backoff, count: int) -> int:
    """The policy's factor as a whole number, smaller if the last wait would be too long."""
    factor, longest = max(1, int(wait.factor)), max(wait.max_backoff, LONGEST_WAIT)
    if wait.first and count > 1:
        factor = min(factor, int((longest / wait.first) ** (1 / (count - 1))) + 1)
    while factor > 1 and _wait(wait, factor, count - 1) > longest:
        factor -= 1
    return factor


def _wait(wait: Backoff, factor: int, number: int) -> float:
    try:
        return wait.first * float(factor) ** number
    except OverflowError:
        return math.inf


def _window(placed: Placed, count: int) -> int:
    """Whole seconds from the first start to the end of the last attempt, if the policy has a timeout."""
    policy = placed.policy
    wait = policy.interruption_backoff if placed.on_spot else policy.error_backoff
    factor = _factor(wait, count)
    waits = wait.first * count if factor == 1 else (_wait(wait, factor, count) - wait.first) / (factor - 1)
    attempts = (count + 1) * (policy.timeout + policy.pending_timeout) if policy.timeout is not None else 0.0
    return max(_SHORTEST_WINDOW, math.ceil(waits + attempts))


def _keep(ctx: PlaceContext, name: str, at: Path, own: Mapping[str, Any], placed: Placed) -> int:
    """Keep the user's own retries and report their effects; returns their number."""
    policy, problems = placed.policy, []
    count = _retries_of(own)
    if placed.on_spot and count != policy.max_interruptions + policy.retries:
        problems.append(
            f"maxRetryCount {count} counts interruptions and errors together, and the policy allows "
            f"{policy.max_interruptions} and {policy.retries}"
        )
    window = _seconds(ctx, (*at, "backoffMaxDuration"))
    if count and window < _SHORTEST_WINDOW:
        problems.append(
            f"backoffMaxDuration {format_duration(window)} is a window over all attempts: no attempt begins after it, and a "
            "running one is killed (read in kubeflow/pipelines#13452)"
        )
    if _is_broken(own.get("backoffFactor")):
        problems.append(
            f"backoffFactor {own['backoffFactor']} is not a whole number, on which Argo fails (read in Argo 4.0)"
        )
    if problems:
        ctx.add_finding(
            Level.WARNING, at, f"{name}: its retryPolicy stays: {'; '.join(problems)}; --replace-retries changes it"
        )
    return count


def _is_broken(factor: Any) -> bool:
    return isinstance(factor, float) and not factor.is_integer()


def _seconds(ctx: PlaceContext, path: Path) -> float:
    try:
        return parse_duration(ctx.editor.get(path) or 0)
    except ValueError as error:
        raise ctx.problem(path, str(error)) from error


_OLDEST_SEEN = (2, 15)  # the oldest release (Argo 3.7.3) seen to change an affinity by the attempt
_MERGED = (2, 17)  # its manifests merge retryPolicy OnError into every template
_SEEN_BEFORE, _SEEN = "2.16.1", "2.17.0"
_PATCH: Mapping[str, object] = {"templateDefaults": {"retryStrategy": {"limit": "0", "retryPolicy": "Always"}}}


@dataclass(frozen=True, slots=True)
class Backend:
    """An installation of Kubeflow Pipelines. ``is_patched``: its admin has enabled retries of every ending."""

    version: tuple[int, int]
    is_assumed: bool
    is_patched: bool

    @property
    def is_stock(self) -> bool:
        """Whether it retries only endings that Argo calls Error: not errors of the code, not drained pods."""
        return self.version >= _MERGED and not self.is_patched

    @property
    def source(self) -> str:
        """The source of the facts: the release on which they were seen, and whether they are assumed for this one."""
        seen = _SEEN_BEFORE if self.version < _MERGED else _SEEN
        configuration = ", stock configuration" if self.is_stock else ""
        configuration = ", retryPolicy Always" if self.is_patched else configuration
        own = f"{self.version[0]}.{self.version[1]}"
        assumed = "" if seen.startswith(f"{own}.") else f"; assumed for {own} too"
        if self.is_assumed:
            assumed = f"; target.kfp is not set, so {own} is assumed"
        return f"seen on KFP {seen}{configuration}{assumed}"

    @property
    def attempt_guard(self) -> str | None:
        """The prefix of an expression over ``retries`` in a pod's settings; ``None`` if the backend does not evaluate it.

        If every template has a retry strategy, drivers and DAGs would replace ``retries`` by their own 0 before the pod's
        template does, unless the expression is nil there. Seen: without the guard on 2.16.1, with it on 2.17.0.
        """
        if self.version < _OLDEST_SEEN:
            return None
        if self.version < _MERGED and not self.is_patched:
            return ""
        return "inputs.parameters['retry-max-count'] == nil || inputs.parameters['cached-decision'] != nil ? nil : "


def backend_of(target: Mapping[str, str]) -> Backend:
    """The backend for which pipelines are placed: ``target``'s, or the newest known."""
    parts = str(target.get("kfp", "")).removeprefix("v").split(".")
    is_known = len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit()
    version = (int(parts[0]), int(parts[1])) if is_known else _MERGED
    return Backend(version, is_assumed=not is_known, is_patched=target.get("kfp_retries") == "always")


def after_interruption(backend: Backend, tries: int) -> str:
    """The effect of an interruption on a task; ``tries``: its retries."""
    lost = "a lost node: the same attempt again, not counted, so interruptions.max has no effect there"
    if not tries:
        moved = "a drain or a delete: the task fails, it has no retries"
    elif backend.is_stock:
        moved = "a drain or a delete: the task fails with exit code 143, whatever its retries"
    else:
        moved = f"a drain or a delete: tried again, at most {tries} times, errors counted too"
    return f"{lost}; {moved} ({backend.source})"


def lost_nodes_note(backend: Backend) -> str:
    """The note that no budget applies to lost nodes."""
    return (
        "a task whose node is lost is tried again as often as that happens, also without retries: the backend does not count it, "
        f"so interruptions.max and fall_back_after have no effect there ({backend.source})"
    )


def stock_warning(backend: Backend, tasks: int) -> str:
    """The warning that the retries of a pipeline are void on a stock installation, with the line that changes it."""
    those = "1 task" if tasks == 1 else f"{tasks} tasks"
    return (
        "KFP as its manifests install it retries neither errors of the code nor drained pods, whatever the pipeline says "
        f"({backend.source}): errors.retries is ignored and a node drain fails the task, for {those}. Its admin changes "
        f"that with: {_command(_PATCH)} (then set target.kfp_retries to always)"
    )


def admin_notes(backend: Backend, pools: Iterable[Pool]) -> tuple[str, ...]:
    """Settings for an installation, ready to paste: which endings are retried, and where driver pods may run."""
    retries = _PATCH if backend.is_stock or backend.is_patched else {}
    tolerations = [taint.toleration_fields for taint in _spot_taints(pools)]
    lines = ["for Kubeflow Pipelines, by its admin (backends since the end of 2025):"]
    if backend.is_stock:
        lines += [
            "  # every ending is retried as often as the task allows, and a task without retries is not retried:",
            f"  {_command(retries)}",
        ]
    lines += [
        "  # a pipeline cannot place its driver pods, one for each task: they have no tolerations, so they stay off tainted",
        "  # pools, but not off other pools.",
    ]
    if tolerations:
        lines += [
            "  # If every pool is tainted, use this instead, so that they can start:",
            f"  {_command({**retries, 'tolerations': tolerations})}",
        ]
    return ("\n".join(lines),)


def _command(patch: Mapping[str, object]) -> str:
    value = json.dumps(patch, separators=(",", ":"))
    return f"kubectl -n kubeflow set env deployment/ml-pipeline COMPILED_PIPELINE_SPEC_PATCH='{value}'"


def _spot_taints(pools: Iterable[Pool]) -> list[Taint]:
    taints = (
        taint
        for pool in pools
        if pool.is_spot
        for taint in providers.taints(pool)
        if providers.is_spot_taint(pool, taint)
    )
    return list(dict.fromkeys(taints))


_DERIVED = "interruptions.max"
"""The source of a ``fall_back_after`` derived from the budget, so that the last attempt is on on-demand."""


def queue_of(ctx: PlaceContext, settings: Path) -> str:
    """The Kueue queue that admits the executor's pods, by their label; empty without one."""
    return str(mapping_at(ctx, (*settings, "podMetadata", "labels")).get(QUEUE_LABEL) or "")


def on_demand_from(
    ctx: PlaceContext,
    paths: PipelinePaths,
    backend: Backend,
    tasks: Sequence[CompiledTask],
    tries: Mapping[Path, int],
    placed: Placed,
) -> int | None:
    """The first retry from which an executor's tasks require on-demand; ``None`` without one, with a finding if needed.

    ``tries`` are the retries of each task, by its path in the document. A task with too few retries for the fallback derived
    from the policy's budget falls back at its last one.
    """
    policy, fewest = placed.policy, min(tries[task.at] for task in tasks)
    both = {rung.spot for rung in placed.ladder.rungs} == {True, False}
    if policy.spot is not Spot.PREFER or not both or not fewest or queue_of(ctx, paths.settings(tasks[0].label)):
        return None
    if placed.ladder.undecided:
        return None
    if backend.attempt_guard is None and ctx.options.has_webhook:
        return None
    if backend.attempt_guard is None:
        text = "KFP before 2.15 is not known to place attempts differently: every attempt prefers spot, none requires on-demand"
        ctx.add_finding(Level.WARNING, (*paths.pipeline, "pipelineInfo"), text)
        return None
    if policy.fall_back_after <= fewest:
        return policy.fall_back_after
    if policy.sources.get("fall_back_after") == _DERIVED:
        return fewest
    if ctx.options.has_webhook:
        return None
    text = f"{tasks[0].path}: with {fewest} retries, the fallback to on-demand after {policy.fall_back_after} is never reached"
    ctx.add_finding(Level.WARNING, tasks[0].at, text)
    return None


def on_demand_text(backend: Backend, first: int | None) -> str:
    """How an executor's attempts move to on-demand, for ``explain``, or empty."""
    if first is None:
        return ""
    counted = (
        "only endings that Argo calls Error count here" if backend.is_stock else "errors of the code count as well"
    )
    return (
        f"from retry {first} on, it requires on-demand: {counted}, and after lost nodes it stays on spot, as only a "
        "controller in the cluster could count them"
    )


def later_conditions(
    ctx: PlaceContext, backend: Backend, placed: Placed, first: int | None, last: int
) -> list[Expression]:
    """The conditions that hold from the retry ``first`` on; ``last`` is the last retry. Empty if ``first`` is ``None``."""
    if first is None:
        return []
    pools = ctx.config.pools
    used = [pools[name] for rung in placed.ladder.rungs for name in rung.pools]
    early, late = range(first), range(first, last + 1)

    def choose(before: str, after: str) -> str:
        if len(early) <= len(late):
            numbers, texts = early, (before, after)
        else:
            numbers, texts = late, (after, before)
        listed = ",".join(f"'{number}'" for number in numbers)
        inner = f"retries in [{listed}] ? '{texts[0]}' : '{texts[1]}'"
        return f"{{{{={backend.attempt_guard}({inner})}}}}" if backend.attempt_guard else f"{{{{={inner}}}}}"

    conditions: list[Mapping[str, Any]] = list(capacity_expressions(used, tuple(pools.values()), spot=False))
    return conditions_from_attempt(conditions, choose)


_BY_FIELD = {
    "SPOTWRIGHT_RUN": "metadata.labels['pipeline/runid']",
    "SPOTWRIGHT_POD_UID": "metadata.uid",
    "SPOTWRIGHT_HOST": "status.hostIP",
}
"""Variables and their pod fields. No field has the number of the attempt.

The ``(n)`` of Argo's node name counts retries: after a lost node the name repeats (seen with Argo 3.7.3 and 4.0.5).
So the pod's UID identifies the attempt.
"""

_RUN = "{{workflow.name}}"  # Argo replaces it by the run's name, also in the driver's objects
_NODE = "{{=sprig.trunc(12, sprig.sha256sum(node.name))}}"
"""A short name, from Argo, for the task's place in the run: its path, with the iteration of every loop around it.

The executor is an argument of the task's driver, so the node is the driver's and all attempts of the executor share it. Seen on
KFP 2.16.1 and 2.17.0; read in ``executeTemplate`` in ``workflow/controller/operator.go`` of argo-workflows (3.3 and later) and
in ``argocompiler/container.go`` of kubeflow/pipelines.
"""
_PVC = "pvc://"


def read_work(ctx: PlaceContext, paths: PipelinePaths, label: str) -> PodRequirements:
    """The requests and constraints of an executor. A run-time amount counts as one GPU, or as 0 of any other resource."""
    at = (*paths.executor(label), "container", "resources")
    given = mapping_at(ctx, at)
    constants = {key: value for key, value in given.items() if "{{" not in json.dumps(value)}
    settings = paths.settings(label)
    try:
        requests, _ = read_resources(constants)
    except (ValueError, TypeError, AttributeError) as error:
        raise ctx.problem(at, f"cannot be read: {error}") from error
    if loss := accelerator_loss(given):
        ctx.add_finding(Level.WARNING, (*at, "accelerator"), f"executor {label} {loss}: write {NVIDIA_GPU} as the type")
    if "accelerator" in given and "accelerator" not in constants:
        requests = {**requests, NVIDIA_GPU: 1}
    try:
        fields = pod_fields(mapping_at(ctx, settings))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ctx.problem(settings, f"cannot be read: {error}") from error
    for one in fields.refusals:
        raise ctx.problem((*settings, *one.path), one.text)
    constraints = scheduling_of(fields.spec)
    terms = (*settings, "nodeAffinity")
    tell_assumptions(constraints, ctx.config.pools, ctx.add_finding, (*settings, "nodeSelector", "labels"), terms)
    return PodRequirements(requests, constraints, devices_asked({}, mapping_at(ctx, (*settings, "podMetadata"))))


def place_executor(
    ctx: PlaceContext,
    paths: PipelinePaths,
    tasks: Sequence[CompiledTask],
    placed: Placed,
    later: Sequence[Expression] = (),
) -> None:
    """Write the placement of an executor. ``tasks`` are the tasks that it runs, all with one policy.

    ``later`` are required conditions that depend on the number of the attempt.
    """
    policy, settings, editor = placed.policy, paths.settings(tasks[0].label), ctx.editor
    container = (*paths.executor(tasks[0].label), "container")
    if ctx.writes(Group.PLACEMENT):
        _write_settings(editor, settings, container, _placement(ctx, paths, tasks[0], placed, later))
    if ctx.writes(Group.RETRIES) and policy.timeout is not None and editor.get((*settings, _DEADLINE)) is None:
        editor.add((*settings, _DEADLINE), str(math.ceil(policy.timeout)))
    if ctx.writes(Group.CHECKPOINT):
        _write_settings(editor, settings, container, _environment(ctx, settings, container, tasks, policy.checkpoint))


_DEADLINE = "activeDeadlineSeconds"


def _placement(
    ctx: PlaceContext, paths: PipelinePaths, task: CompiledTask, placed: Placed, later: Sequence[Expression]
) -> PodChange:
    """The change that sends an executor's pods to their pools and keeps autoscalers from moving them."""
    settings = paths.settings(task.label)
    work = read_work(ctx, paths, task.label)
    change = change_of(ctx, settings, placed, work, queue=queue_of(ctx, settings), later=later)
    if change.preferred:
        used = [ctx.config.pools[name] for name in placed.report.pools]
        warn_of_preference(ctx, (*paths.pipeline, "pipelineInfo"), "tasks that prefer spot", used)
    metadata = (*settings, "podMetadata")
    spec = pod_fields(ctx.editor.get(settings) or {}).spec
    change |= own_conditions(ctx, metadata, change, spec) | metadata_change(ctx, metadata, placed)
    return replace(change, image_pull_secrets=tuple(placed.policy.image_pull_secrets))


def _write_settings(editor: Editor, settings: Path, container: Path, change: PodChange) -> None:
    """Write the change of a pod into the executor's Kubernetes settings and its container.

    A term is an entry of affinity there, and a variable from a pod field is a setting.
    """
    fields = pod_fields(editor.get(settings) or {})
    edits = change.terms(mappings(value_at(fields.spec, TERMS)))
    editor.extend((*settings, "tolerations"), change.tolerations)
    for index, added in enumerate(edits.added):
        if added:
            editor.extend((*settings, *fields.path((*TERMS, index)), "matchExpressions"), added)
    wishes = [{"matchExpressions": [wish], "weight": 100} for wish in change.preferred]
    editor.extend((*settings, "nodeAffinity"), [*edits.more, *wishes])
    write_metadata(editor, (*settings, "podMetadata"), change)
    at = (*settings, "imagePullSecret")
    have = set(map(str, _names(editor, at, "secretName", "secretNameParameter")))
    secrets = [named_constant("secretName", name) for name in change.image_pull_secrets if name not in have]
    if secrets:
        editor.extend(at, secrets)
    claims = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in change.volumes}
    for each in change.containers.values():
        for mount in each.mounts:
            claim = named_constant("constant", claims[mount["name"]], "pvcNameParameter")
            editor.extend((*settings, "pvcMount"), [{"mountPath": mount["mountPath"], **claim}])
        texts = [one for one in each.variables if "valueFrom" not in one]
        by_field = [one for one in each.variables if "valueFrom" in one]
        editor.extend((*container, "env"), texts)
        more = [{"name": one["name"], "fieldPath": one["valueFrom"]["fieldRef"]["fieldPath"]} for one in by_field]
        editor.extend((*settings, "fieldPathAsEnv"), more)


def _environment(
    ctx: PlaceContext, settings: Path, container: Path, tasks: Sequence[CompiledTask], checkpoint: str | None
) -> PodChange:
    """The variables of every attempt, except the URL of the notice: no value here can contain the host's address."""
    taken = {str(name) for name in _names(ctx.editor, (*container, "env"), "name")}
    taken |= {str(name) for name in _names(ctx.editor, (*settings, "fieldPathAsEnv"), "name")}
    identity = identity_of(tasks)
    work = identity["work"]
    values = {"SPOTWRIGHT_TASK": work}
    if identity["index"]:
        values["SPOTWRIGHT_INDEX"] = _NODE
    change = PodChange()
    if checkpoint is not None:
        folder, change = _folder(ctx, settings, checkpoint)
        place = f"{folder}/{_RUN}/{work}"
        values["SPOTWRIGHT_CHECKPOINT"] = f"{place}/{_NODE}" if identity["index"] else place
    variables: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items()]
    variables += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _BY_FIELD.items()]
    new = ContainerChange(tuple(one for one in variables if one["name"] not in taken))
    return change | PodChange(containers={0: new})


def identity_of(tasks: Sequence[CompiledTask]) -> dict[str, str]:
    """The work, run and index of the pods of an executor, as :class:`~spotwright.placing.pods.Role` has them.

    No index if the executor runs one task outside loops.
    """
    work = tasks[0].path if len({task.path for task in tasks}) == 1 else tasks[0].component
    several = len(tasks) > 1 or any(task.loops for task in tasks)
    return {"work": work, "run": _BY_FIELD["SPOTWRIGHT_RUN"], "index": _NODE if several else ""}


def _folder(ctx: PlaceContext, settings: Path, checkpoint: str) -> tuple[str, PodChange]:
    """The folder of the checkpoints in the container, and the mount of the claim if it is not mounted yet."""
    claim, below = claim_of(checkpoint)
    if not claim:
        return checkpoint.rstrip("/"), PodChange()
    for mount in ctx.editor.get((*settings, "pvcMount")) or ():
        if claim in _named(mount, "constant", "pvcNameParameter"):
            return f"{str(mount.get('mountPath')).rstrip('/')}/{below}".rstrip("/"), PodChange()
    mounted = ContainerChange(mounts=({"name": claim, "mountPath": CHECKPOINT_PATH},))
    volume = {"name": claim, "persistentVolumeClaim": {"claimName": claim}}
    return f"{CHECKPOINT_PATH}/{below}".rstrip("/"), PodChange(containers={0: mounted}, volumes=(volume,))


def claim_of(checkpoint: str) -> tuple[str, str]:
    """The claim and folder of the checkpoints; empty for another place."""
    claim, _, below = checkpoint.removeprefix(_PVC).strip("/").partition("/")
    return (claim, below) if checkpoint.startswith(_PVC) else ("", "")


def named_constant(name: str, value: str, parameter: str = "secretNameParameter") -> dict[str, Any]:
    """A name as the SDK writes it: a string for older backends, and a run-time value for newer ones."""
    return {name: value, parameter: {"runtimeValue": {"constant": value}}}


def _names(editor: Editor, path: Path, *fields: str) -> Iterator[Any]:
    entries = editor.get(path)
    for entry in entries if isinstance(entries, list) else ():
        yield from _named(entry, *fields)


def _named(entry: Any, *fields: str) -> Iterable[Any]:
    """The names of an entry, in any of these fields."""
    given = (entry.get(field) for field in fields) if isinstance(entry, dict) else ()
    return [with_constants(value) for value in given if value is not None]
