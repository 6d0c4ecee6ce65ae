"""Rules on Argo workflows: what is retried, what a template replaces, and fields that a version dropped.

Sources: argo-workflows v3.7 and v4.0, ``workflow/controller/operator.go``, ``workflowpod.go``,
``docs/retries.md``; #9880, #2881, #13951.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from spotwright.kinds.argo_steps import strategy_at
from spotwright.kinds.kind import Retry
from spotwright.linter.rule import ON_SPOT, SHIELDS, Checks, Problem, Rule, Severity
from spotwright.linter.settings import Settings
from spotwright.linter.subjects import KubeObject, Pods, Shape, items_of, mapping_at, mapping_of
from spotwright.placing.documents import Path
from spotwright.placing.patch import value_at

__all__ = ["RULES"]


def _is_workflow(subject: KubeObject | None) -> bool:
    return subject is not None and subject.record.retry is Retry.STEP


def _strategy(pods: Pods) -> tuple[Shape, bool]:
    """The retry strategy of a template, and whether there is one: its own, the default of templates, or the workflow's."""
    owner = pods.owner
    if owner is None:
        return {}, False
    own = strategy_at(partial(value_at, owner.value), owner.record.top, pods.spec[len(owner.base) :])
    return (owner.mapping(*own), True) if own is not None else ({}, False)


def _not_retried(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if not _is_workflow(pods.owner) or not pods.asks_for_spot:
        return
    if not _strategy(pods)[1]:
        yield Problem(pods.spec, f"{pods.label} has no retryStrategy, so a drained node fails the workflow")


def _half_retried(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if not _is_workflow(pods.owner) or not pods.asks_for_spot:
        return
    strategy, is_there = _strategy(pods)
    policy = strategy.get("retryPolicy")
    if is_there and (policy or ("Always" if strategy.get("expression") else "OnFailure")) != "Always":
        path = pods.at("retryStrategy") if "retryStrategy" in pods.value else pods.spec
        yield Problem(
            path,
            f"{pods.label} retries {policy or 'OnFailure'}, and an interruption is sometimes Failed and sometimes Error",
        )


def _replaced(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A template with its own tolerations, which replace the workflow's."""
    owner = pods.owner
    if owner is None or not _is_workflow(owner):
        return
    outer = items_of(owner.mapping(*owner.record.top).get("tolerations"))
    here = pods.at("tolerations")
    inner = items_of(pods.value.get("tolerations"))
    if not outer or not inner or here[: len(pods.spec)] != pods.spec:
        return
    lost = [mapping_of(one) for one in outer if one not in inner]
    if lost:
        keys = ", ".join(str(one.get("key")) for one in lost)
        text = f"{pods.label} has its own tolerations, which replace the workflow's: it does not "
        text += f"tolerate {keys}"
        yield Problem(here, text)


def _hanging_sets(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if _is_workflow(pods.owner) and pods.asks_for_spot and mapping_at(pods.value, "containerSet"):
        yield Problem(pods.at("containerSet"), f"{pods.label} is a container set, which hangs when its pod is deleted")


def _daemons(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if _is_workflow(pods.owner) and pods.asks_for_spot and pods.value.get("daemon") is True:
        yield Problem(pods.at("daemon"), f"{pods.label} serves the other steps while they run, and is on spot")


def _dropped(subject: KubeObject, settings: Settings) -> Iterator[Problem]:
    """Fields that Argo 4.0 dropped."""
    if not _is_workflow(subject) or settings.is_before("argo", (4, 0)):
        return
    top = subject.record.top
    if len(top) > 1 and subject.get("spec", "schedule") is not None:
        text = f"{subject.label} has schedule, which Argo 4.0 dropped"
        yield Problem(subject.at("spec", "schedule"), text, 'Write schedules: ["..."], a list.')
    places: list[Path] = [top]
    places += [(*top, "templates", index) for index in range(len(subject.items(*top, "templates")))]
    for place in places:
        holder = subject.mapping(*place)
        if holder.get("podPriority") is not None:
            text = f"{subject.label} has podPriority, which Argo 4.0 dropped"
            yield Problem(subject.at(*place, "podPriority"), text, "Write podPriorityClassName.")
        for name, new in (("mutex", "mutexes"), ("semaphore", "semaphores")):
            if mapping_at(holder, "synchronization").get(name) is not None:
                text = f"{subject.label} has synchronization.{name}, which Argo 4.0 dropped"
                yield Problem(subject.at(*place, "synchronization", name), text, f"Write {new}, a list.")


_HEAD = (
    "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata:\n  generateName: train-\nspec:\n  entrypoint: train\n"
)
_CONTAINER = "    container: {image: 'trainer:1', command: [train]}\n"
_RETRY = "retryStrategy: {limit: 5, retryPolicy: Always}\n"


def _workflow(spec: str = ON_SPOT, template: str = _RETRY, *, head: str = _HEAD) -> str:
    lines = "".join(f"  {line}\n" for line in spec.splitlines())
    own = "".join(f"    {line}\n" for line in template.splitlines())
    return f"{head}{lines}  podMetadata:\n    {SHIELDS}  templates:\n  - name: train\n{own}{_CONTAINER}"


RULES = (
    Rule(
        id="argo-no-retries",
        severity=Severity.WARNING,
        title="A template of Argo on spot without a retryStrategy",
        why="A drain or a delete fails the step and with it the workflow. (A node that goes without a word is another "
        "matter: Argo makes that pod again, uncounted.)",
        fix="Add retryStrategy with retryPolicy: Always and a limit.",
        fails=_workflow(template=""),
        passes=_workflow(),
        checks=Checks(pods=_not_retried),
    ),
    Rule(
        id="argo-retry-policy",
        severity=Severity.WARNING,
        title="A retryStrategy of Argo that misses half of the interruptions",
        why='The same interruption is Failed (exit code 143, "imminent node shutdown") or Error ("pod deleted"), as it '
        "happens. OnFailure, the default, and OnError each retry one of them.",
        fix="Write retryPolicy: Always, with an expression if errors of the code are not to be retried.",
        fails=_workflow(template="retryStrategy: {limit: 5}\n"),
        passes=_workflow(),
        checks=Checks(pods=_half_retried),
        place_says=True,
        source="argoproj/argo-workflows#9880, #2881; tried on Argo 3.7.3 and 4.0.5",
    ),
    Rule(
        id="argo-tolerations-replaced",
        severity=Severity.ERROR,
        title="Tolerations of a template replace those of its workflow",
        why="Argo does not merge them: a template that tolerates the GPU taint no longer tolerates the taint of spot "
        "nodes, and stays Pending there.",
        fix="Write all tolerations into the template.",
        fails=_workflow(
            template=_RETRY + "tolerations:\n- {key: sku, value: gpu}\n", spec=ON_SPOT.partition("affinity")[0]
        ),
        passes=_workflow(),
        checks=Checks(pods=_replaced),
    ),
    Rule(
        id="argo-container-set",
        severity=Severity.WARNING,
        title="A container set on spot",
        why="A step with a containerSet stays running for ever when its pod is deleted.",
        fix="Use templates of one container each, or keep the step on on-demand.",
        fails=_workflow().replace(
            _CONTAINER.strip(),
            "containerSet: {containers: [{name: main, image: 'trainer:1'}]}",
        ),
        passes=_workflow(),
        checks=Checks(pods=_hanging_sets),
        place_says=True,
        source="argoproj/argo-workflows#13951",
    ),
    Rule(
        id="argo-daemon-on-spot",
        severity=Severity.WARNING,
        title="A daemon of a workflow on spot",
        why="The other steps use it while they run, and fail when it goes.",
        fix="Give the daemon's template a node selector for on-demand nodes.",
        fails=_workflow(template=_RETRY + "daemon: true\n"),
        passes=_workflow(),
        checks=Checks(pods=_daemons),
    ),
    Rule(
        id="argo-dropped-field",
        severity=Severity.WARNING,
        title="A field that Argo 4.0 dropped",
        why="The API server drops the field in silence, and the workflow runs without what it asked for. Set "
        "target.argo in spotwright.yaml if yours is older.",
        fix="Write the current field.",
        fails=_workflow(template=_RETRY + "synchronization: {mutex: {name: one}}\n"),
        passes=_workflow(template=_RETRY + "synchronization: {mutexes: [{name: one}]}\n"),
        checks=Checks(objects=_dropped),
    ),
)
"""The rules of this module."""
