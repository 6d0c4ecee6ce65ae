"""Which pools a piece of work may go to, in which order: the ladder and its rungs.

The ladder is built once per task from its policy, its own constraints and the pools. It answers two questions for every
body: which pools fit (and why the others do not), and which rungs are allowed after so many interruptions (rows 6 and 8 of
the design's table). The scheduler rules themselves live in :mod:`spotwright.model.placing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from spotwright import clouds
from spotwright.model.placing import Constraints, Taint, Toleration
from spotwright.model.policy import Policy, Spot
from spotwright.model.pools import Pool, Resources
from spotwright.model.quantities import format_bytes

__all__ = ["IDLE", "Ladder", "Rung", "Work", "build", "is_gpu", "node_labels", "too_large"]

IDLE = "its GPUs would stand idle: the task asks for none"
"""Why work without GPUs does not go to a pool with them, though nothing in the pool refuses it."""

_ZONE = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class Work:
    """What the scheduler needs to know of a task: what it asks for and what it says about nodes itself."""

    requests: Resources = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder: the pools an attempt may go to, with the tolerations that Spotwright adds for them.

    With a policy a rung is one pool. Where nobody said anything about spot it holds every pool that fits, and the scheduler
    chooses among them, as on a cluster.
    """

    pools: tuple[str, ...]
    spot: bool | None  # None: of both kinds, the scheduler chooses
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs in order, spot before on-demand, with the reason for every pool that is not on it."""

    rungs: tuple[Rung, ...]
    refusals: Mapping[str, str] = field(default_factory=dict)  # pool: why it is not a rung
    note: str = ""  # said once to the user: "no on-demand pool fits: ..."

    @property
    def on_demand(self) -> tuple[int, ...]:
        """Indexes of the on-demand rungs."""
        return tuple(index for index, rung in enumerate(self.rungs) if rung.spot is False)

    def allowed(self, *, only_on_demand: bool) -> tuple[int, ...]:
        """Indexes of the rungs an attempt may use now; all of them where no on-demand rung exists."""
        return (self.on_demand if only_on_demand else ()) or tuple(range(len(self.rungs)))


def build(work: Work, policy: Policy, pools: Mapping[str, Pool]) -> Ladder:
    """Build the ladder of one task. An empty ``rungs`` means that it can run nowhere; ``refusals`` says why, pool by pool."""
    named = policy.ladder is not None
    order = list(policy.ladder) if policy.ladder is not None else list(pools)
    refusals: dict[str, str] = {}
    fitting: list[tuple[Pool, tuple[Toleration, ...]]] = []
    for name in order:
        pool = pools[name]
        added = _added_tolerations(pool, work, policy, named=named)
        why = _unwanted(pool, policy.spot) or _refusal(pool, work, added)
        if why:
            refusals[name] = why
        else:
            fitting.append((pool, added))
    if policy.spot is None and not named:
        fitting.sort(key=lambda item: _wastes_gpus(item[0], work))  # only a preference: nobody asked for more
        names = tuple(pool.name for pool, _ in fitting)
        granted = tuple(dict.fromkeys(toleration for _, added in fitting for toleration in added))
        return Ladder((Rung(names, None, granted),) if names else (), refusals)
    if not named:
        fitting = _without_wasted_gpus(fitting, work, refusals)
        fitting.sort(key=lambda item: (not item[0].is_spot, *_price_order(item[0])))
    elif policy.spot is not None:
        fitting.sort(key=lambda item: not item[0].is_spot)  # the named order, spot rungs first
    rungs = tuple(Rung((pool.name,), pool.is_spot, added) for pool, added in fitting)
    return Ladder(rungs, refusals, _note(policy, rungs))


def node_labels(pool: Pool, zone: str | None = None) -> dict[str, str]:
    """The labels of a node of this pool, in one of its zones."""
    labels = dict(clouds.labels(pool))
    if zone is not None:
        labels[_ZONE] = zone
    return labels


def too_large(requests: Resources, node: Resources | None) -> str:
    """Why these requests fit no node of this size: ``asks for 8 cpu, a node has 6``; empty when they fit."""
    if node is None:
        return ""
    for name, amount in requests.items():
        offered = node.get(name, 0)
        if amount > offered:
            return f"it asks for {_amount(name, amount)}, a node has {_amount(name, offered)}"
    return ""


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{float(Fraction(amount, 1000)):g} cpu"
    if name in ("memory", "ephemeral-storage"):
        return f"{format_bytes(amount)} {name}"
    return f"{amount} {name}"


def _unwanted(pool: Pool, spot: Spot | None) -> str:
    if spot is Spot.REQUIRE and not pool.is_spot:
        return "the policy requires spot"
    if spot is Spot.NEVER and pool.is_spot:
        return "the policy says never spot"
    if pool.max_price is not None and pool.price is not None and pool.price > pool.max_price:
        return f"its price is above max_price ({float(pool.price):g}/h > {float(pool.max_price):g}/h)"
    return ""


def _refusal(pool: Pool, work: Work, added: tuple[Toleration, ...]) -> str:
    """Why no node of the pool takes the work; a pool of several zones is refused only if each of them is."""
    large = too_large(work.requests, pool.node)
    if large:
        return large
    constraints = replace(work.constraints, tolerations=work.constraints.tolerations + added)
    taints = tuple(clouds.taints(pool))
    reasons = [constraints.refusal(node_labels(pool, zone), taints) for zone in pool.zones or (None,)]
    return "" if "" in reasons else reasons[0]


def _added_tolerations(pool: Pool, work: Work, policy: Policy, *, named: bool) -> tuple[Toleration, ...]:
    """The tolerations Spotwright adds for a pool; where nobody said anything about spot, those that the cluster adds by itself.

    A pool that the ladder names is wanted with all its taints. Otherwise only the taint that marks spot is answered by the
    policy, and a GPU taint by work that asks for GPUs: other taints keep other people's work away for a reason of their own.
    """
    if policy.spot is None and not named:
        return tuple(
            Toleration(taint.key, "Exists", effect=taint.effect)
            for taint in clouds.taints(pool)
            if not work.constraints.tolerates(taint) and clouds.is_tolerated_by_itself(pool, taint, work.requests)
        )
    return tuple(
        Toleration(taint.key, "Equal", taint.value, taint.effect)
        for taint in clouds.taints(pool)
        if not work.constraints.tolerates(taint) and (named or _answered(pool, taint, work))
    )


def _answered(pool: Pool, taint: Taint, work: Work) -> bool:
    return clouds.is_spot_taint(pool, taint) or (clouds.is_gpu_taint(taint) and _asks_for_gpu(work.requests))


def _asks_for_gpu(requests: Resources) -> bool:
    return any(amount and is_gpu(name) for name, amount in requests.items())


def is_gpu(resource: str) -> bool:
    """Whether a resource of this name is a GPU or its like: work that asks for none is kept off nodes that have them."""
    return resource.endswith(("/gpu", "/tpu")) or "gpu" in resource.rpartition("/")[2]


def _without_wasted_gpus(
    fitting: list[tuple[Pool, tuple[Toleration, ...]]], work: Work, refusals: dict[str, str]
) -> list[tuple[Pool, tuple[Toleration, ...]]]:
    """Keep work without GPUs off GPU pools, unless it asks for such a node itself or nothing else is left."""
    if work.constraints.selector or work.constraints.required:
        return fitting
    plain = [item for item in fitting if not _wastes_gpus(item[0], work)]
    if not plain:
        return fitting
    for pool, _ in fitting:
        if _wastes_gpus(pool, work):
            refusals[pool.name] = IDLE
    return plain


def _wastes_gpus(pool: Pool, work: Work) -> bool:
    return _asks_for_gpu(pool.node or {}) and not _asks_for_gpu(work.requests)


def _price_order(pool: Pool) -> tuple[bool, Fraction]:
    return (pool.price is None, pool.price or Fraction(0))


def _note(policy: Policy, rungs: Iterable[Rung]) -> str:
    kinds = {rung.spot for rung in rungs}
    if policy.spot is Spot.PREFER and kinds == {True}:
        return "no on-demand pool fits: spot is preferred, but there is nothing to fall back to"
    if policy.spot is Spot.PREFER and kinds == {False}:
        return "no spot pool fits: it runs on on-demand"
    return ""
