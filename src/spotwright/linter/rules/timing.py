"""Rules on the end of pods and on unwanted moves: grace periods, hooks, drains, autoscalers, zones of gangs.

The notices come from :mod:`spotwright.clouds`. Sources: Kubernetes documentation, "Pod Lifecycle", "Disruptions";
karpenter, ``karpenter.sh/do-not-disrupt``; cluster autoscaler FAQ, ``safe-to-evict``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from spotwright.clouds import providers
from spotwright.clouds.providers import ZONE
from spotwright.kinds.kind import Retry
from spotwright.linter.rule import ON_SPOT, SHIELDS, Checks, Mend, Problem, Rule, Severity, job, training_job
from spotwright.linter.settings import Settings
from spotwright.linter.spot_reach import admits, shuns_spot
from spotwright.linter.subjects import KubeObject, Pods, is_whole, items_of, mapping_at, mapping_of
from spotwright.placing.context import POLICY_ANNOTATION, name_of
from spotwright.placing.pod_change import longest_grace
from spotwright.placing.pods import PodRole, shields, shortest_notice

__all__ = ["RULES", "has_policy"]

_GRACE = "terminationGracePeriodSeconds"
_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
_SLEEP = re.compile(r"(?<![\w-])sleep\s+(\d+)")


def _notice(pods: Pods, settings: Settings) -> tuple[float, str] | None:
    """The notice that pods get, in seconds, and whose it is; ``None`` if it is unknown which provider's nodes they use."""
    landing = [pool for pool in settings.spot_pools if admits(pool, pods.constraints)]
    notice = shortest_notice(landing or settings.spot_pools)
    if notice is not None:
        return notice, "the spot pools that admit it" if landing else "the spot pools"
    named = {one.key for one in pods.constraints.tolerations} | {one.key for one in pods.conditions}
    notices = ((one.notice_of_pods, one.notice_words) for one in providers.providers_of(named))
    return min(notices, default=None)


def _long_grace(pods: Pods, settings: Settings) -> Iterator[Problem]:
    given = pods.value.get(_GRACE)
    notice = _notice(pods, settings) if pods.asks_for_spot and is_whole(given) else None
    if notice is None or given is None or given <= notice[0]:
        return
    text = f"{pods.label} has a grace period of {given} s, and the notice of {notice[1]} is {notice[0]:g} s"
    path = pods.at(_GRACE)
    limit = longest_grace(notice[0])
    yield Problem(path, text, f"Set it to {limit} or less.", (Mend("replace", path, limit),))


def _short_grace(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """Work that is killed at once, or before it can save."""
    given = pods.value.get(_GRACE)
    if (
        not pods.asks_for_spot
        or pods.duty is not PodRole.WORKER
        or not is_whole(given)
        or given is None
        or given > _SHORTEST
    ):
        return
    what = "is killed without SIGTERM (grace period 0)" if given == 0 else f"is killed {given} s after SIGTERM"
    yield Problem(pods.at(_GRACE), f"{pods.label} {what}, whatever the notice of its node")


_SHORTEST = 2  # seconds, in which no state of any size is saved


def _long_hook(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if not pods.on_spot:
        return
    given = pods.value.get(_GRACE)
    grace = given if is_whole(given) else 30
    for container in pods.containers:
        hook = mapping_at(container.value, "lifecycle", "preStop")
        seconds = _sleeps(hook)
        if seconds is not None and grace is not None and seconds >= grace:
            text = f"{pods.label} waits {seconds} s in preStop, and its grace period is {grace} s, so SIGKILL "
            text += "follows at once"
            yield Problem((*container.path, "lifecycle", "preStop"), text)


def _sleeps(hook: object) -> int | None:
    """The seconds that a preStop hook sleeps, ``None`` if it does not."""
    seconds = mapping_at(hook, "sleep").get("seconds")
    if is_whole(seconds):
        return int(seconds) if seconds is not None else None
    words = " ".join(str(word) for word in items_of(mapping_at(hook, "exec").get("command")))
    match = _SLEEP.search(words)
    return int(match[1]) if match else None


def _unshielded(pods: Pods, settings: Settings) -> Iterator[Problem]:
    """Work that an autoscaler may move to save a node; ``place`` would prevent it."""
    at = pods.annotations_at
    is_placed = _says_its_capacity(pods) or has_policy(pods, settings)
    if (
        at is None or pods.is_partial or pods.retry is Retry.NONE or not is_placed
    ):  # another rule says more about bare pods
        return
    wanted = shields(pods.duty, settings.target, settings.pools.values(), [one.key for one in pods.conditions])
    missing = {name: value for name, value in wanted.items() if pods.annotations.get(name) is None}
    if missing:
        mends = tuple(Mend("add", (*at, name), value) for name, value in missing.items())
        text = f"{pods.label} may be moved by the autoscaler while it works, to save a node"
        yield Problem(pods.spec, text, _how_to_shield(missing, is_pipeline=pods.form == "K"), mends)


def _how_to_shield(missing: Mapping[str, str], *, is_pipeline: bool) -> str:
    if is_pipeline:
        calls = (f'kubernetes.add_pod_annotation(task, "{name}", "{value}")' for name, value in missing.items())
        return f"Call {' and '.join(calls)}; spotwright compile writes it."
    wished = ", ".join(f'{name}: "{value}"' for name, value in missing.items())
    return f"Annotate the pod: {wished}."


def _says_its_capacity(pods: Pods) -> bool:
    """Whether pods ask for spot nodes, or keep themselves off them."""
    return pods.asks_for_spot or any(map(shuns_spot, pods.conditions))


def has_policy(pods: Pods, settings: Settings) -> bool:
    """Whether a policy places the pods, on spot nodes or not: their own, their object's or the configuration's."""
    of_object = mapping_at(pods.owner.value, "metadata", "annotations") if pods.owner is not None else {}
    if pods.wish or POLICY_ANNOTATION in {**of_object, **pods.annotations}:
        return True
    if not settings.pools or pods.owner is None:
        return False
    name = name_of(pods.owner.value.get("metadata"))
    default, tasks = settings.config.layers_for(name, f"{name}/{pods.role}".lower())
    return any(layer.values.get("spot") for layer in (*default, *tasks))


def _one_zone(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """Several pods that need each other, on spot nodes of one zone."""
    if not pods.asks_for_spot or pods.duty is not PodRole.WORKER or pods.owner is None or not pods.are_several:
        return
    expressions = pods.constraints.pairs
    if len(pods.constraints.required) == 1:
        expressions += pods.constraints.required[0].expressions
    zones = [
        one for one in expressions if one.key in (ZONE, _OLD_ZONE) and one.operator == "In" and len(one.values) == 1
    ]
    if zones:
        path = pods.selected(zones[0].key) if zones[0].key in pods.constraints.selector else pods.terms
        yield Problem(path, f"{pods.label} needs several spot nodes, all in zone {zones[0].values[0]}")
        return
    required = items_of(
        mapping_at(pods.value, "affinity", "podAffinity").get("requiredDuringSchedulingIgnoredDuringExecution")
    )
    for index, term in enumerate(required):
        if mapping_of(term).get("topologyKey") in (ZONE, _OLD_ZONE):
            path = (
                *pods.at("affinity"),
                "podAffinity",
                "requiredDuringSchedulingIgnoredDuringExecution",
                index,
                "topologyKey",
            )
            yield Problem(path, f"{pods.label} needs several spot nodes, all in the zone of its first pod")


def _blocked_drain(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    if (subject.group, subject.kind) != ("policy", "PodDisruptionBudget"):
        return
    for name, blocking in (("maxUnavailable", (0, "0", "0%")), ("minAvailable", ("100%",))):
        if subject.get("spec", name) in blocking:
            text = f"{subject.label} lets no pod go ({name}: {subject.get('spec', name)}), so a drain waits until "
            text += "the node is reclaimed"
            yield Problem(subject.at("spec", name), text)


def _short_interval(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """Schedules whose retries overlap the next run."""
    owner = pods.owner
    if owner is None or not (owner.record.retry is Retry.JOB and owner.record.may_change) or not pods.asks_for_spot:
        return
    if owner.get("spec", "concurrencyPolicy") in (None, "Allow"):
        path = owner.at("spec", "concurrencyPolicy")
        yield Problem(path, f"{pods.label} may still be retried when the next Job of its schedule starts")


_HOOK = "lifecycle: {{preStop: {{exec: {{command: [sleep, '{seconds}']}}}}}}\n".replace(
    "[sleep, '{seconds}']", '[sh, -c, "sleep {seconds}"]'
)
_CRON = (
    "apiVersion: batch/v1\nkind: CronJob\nmetadata:\n  name: nightly\nspec:\n  schedule: '0 3 * * *'\n{policy}"
    "  jobTemplate:\n"
)

RULES = (
    Rule(
        id="grace-longer-than-notice",
        severity=Severity.WARNING,
        title="A grace period longer than the notice",
        why="The node goes at the end of the notice, whatever the grace period says: a save that is planned for the "
        "rest is cut off. GKE gives pods 15 of the 30 seconds.",
        fix="Set the grace period to the notice less a few seconds, and save in that time.",
        fails=job(ON_SPOT + "terminationGracePeriodSeconds: 300\n"),
        passes=job(ON_SPOT + "terminationGracePeriodSeconds: 25\n"),
        checks=Checks(pods=_long_grace),
        mends=True,
    ),
    Rule(
        id="grace-too-short",
        severity=Severity.WARNING,
        title="Work on spot that has no time to save",
        why="With a grace period of 0 the pod is killed without SIGTERM, also at a drain. In one or two seconds it cannot save.",
        fix="Leave the grace period out (30 s), or set it to what a save takes.",
        fails=job(ON_SPOT + "terminationGracePeriodSeconds: 0\n"),
        passes=job(ON_SPOT + "terminationGracePeriodSeconds: 10\n"),
        checks=Checks(pods=_short_grace),
        source='Kubernetes documentation, "Pod Lifecycle"',
    ),
    Rule(
        id="prestop-takes-grace",
        severity=Severity.WARNING,
        title="A preStop hook that takes the whole grace period",
        why="The grace period counts from the beginning of the hook. SIGTERM comes after the hook, and SIGKILL at the "
        "end of the period, so the code has no time to save.",
        fix="Let the hook end as soon as the code has saved, or make it shorter than the grace period.",
        fails=job(ON_SPOT + "terminationGracePeriodSeconds: 25\n", container=_HOOK.format(seconds=30)),
        passes=job(ON_SPOT + "terminationGracePeriodSeconds: 25\n", container=_HOOK.format(seconds=5)),
        checks=Checks(pods=_long_hook),
    ),
    Rule(
        id="churn-not-shielded",
        severity=Severity.NOTE,
        title="The autoscaler may move work to save a node",
        why="Scaling down and consolidation evict pods that could be packed more tightly, more often than spot nodes "
        "are reclaimed in some clusters, and on-demand nodes as well as spot nodes. Each time costs the work since the last "
        "checkpoint.",
        fix="Annotate the pods; spotwright place does it.",
        fails=job(ON_SPOT).replace(f"    metadata:\n      {SHIELDS}", ""),
        passes=job(ON_SPOT),
        checks=Checks(pods=_unshielded),
        mends=True,
        source="kubernetes-sigs/karpenter#701; cluster autoscaler FAQ",
    ),
    Rule(
        id="gang-in-one-zone",
        severity=Severity.WARNING,
        title="Several pods that need each other, on spot nodes of one zone",
        why="They start only when the zone has room for all of them, and a shortage there takes them together.",
        fix="Allow all zones of the pool, unless the pods need the bandwidth of one.",
        fails=training_job(
            "nodeSelector: {topology.kubernetes.io/zone: eastus-1}\n" + ON_SPOT, role="restartPolicy: ExitCode\n"
        ),
        passes=training_job(ON_SPOT, role="restartPolicy: ExitCode\n"),
        checks=Checks(pods=_one_zone),
    ),
    Rule(
        id="disruption-budget-blocks",
        severity=Severity.WARNING,
        title="A PodDisruptionBudget that lets no pod go",
        why="The drain at a notice uses evictions, which the budget refuses: the pods get no SIGTERM and end with the "
        "node.",
        fix="Allow one pod at least: maxUnavailable: 1.",
        fails="apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata:\n  name: train\nspec:\n  maxUnavailable: 0\n",
        passes="apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata:\n  name: train\nspec:\n  "
        "maxUnavailable: 1\n",
        checks=Checks(objects=_blocked_drain),
    ),
    Rule(
        id="schedule-overlaps-retries",
        severity=Severity.WARNING,
        title="A schedule on spot that may overlap its own retries",
        why="After interruptions a Job ends later than planned. With concurrencyPolicy Allow, the default, the next "
        "one starts beside it and both write the same results.",
        fix="Set concurrencyPolicy to Forbid or Replace.",
        fails=_CRON.format(policy="") + "".join(f"    {line}\n" for line in job(ON_SPOT).splitlines()[4:]),
        passes=_CRON.format(policy="  concurrencyPolicy: Forbid\n")
        + "".join(f"    {line}\n" for line in job(ON_SPOT).splitlines()[4:]),
        checks=Checks(pods=_short_interval),
        place_says=True,
    ),
)
"""The rules of this module."""
