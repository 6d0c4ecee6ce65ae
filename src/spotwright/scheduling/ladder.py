"""Builds the ladder of a task: the pools that its attempts may use, in order.

The ladder is built once per task from its policy, its own constraints and the pools. It answers two questions for every
backend: which pools fit, with the reason for each that does not; and which rungs are allowed after a number of interruptions
(rows 6 and 8 of the design's table). The scheduler's rules are in :mod:`spotwright.model.scheduling_terms`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from spotwright.clouds import node_labels, providers
from spotwright.clouds.node_signs import PLATFORM_TAINTS
from spotwright.model.policy import Policy, Spot
from spotwright.model.pools import Pool, PriceSource, Resources
from spotwright.model.quantities import format_bytes
from spotwright.model.scheduling_terms import Constraints, Expression, Taint, Toleration

__all__ = ["EVERYWHERE", "Ladder", "PodRequirements", "Rung", "build", "has_accelerators", "too_large"]

_IDLE = "its GPUs would be idle: the task requests none"
"""Why work without GPUs is kept off GPU pools that would admit it."""

EVERYWHERE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources that every node has, even if the configuration of its pool names only others."""


@dataclass(frozen=True, slots=True)
class PodRequirements:
    """A task as the scheduler sees it: its resource requests, and its own constraints on nodes."""

    requests: Resources = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)


class Rung(NamedTuple):
    """One step of the ladder: the pools an attempt may use, with the tolerations that Spotwright adds for them.

    With a spot policy or a named ladder a rung is one pool. Without either the only rung holds every pool that fits, and the
    scheduler chooses among them, as on a cluster.
    """

    pools: tuple[str, ...]
    spot: bool | None  # None: spot and on-demand pools; the scheduler chooses
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs in order, spot before on-demand, with the reason for every pool that is not a rung.

    ``undecided``: the work's own conditions that are decided at run time, so that some of the rungs may not fit then.
    ``tainted``: the pools that are not rungs only because of their taint, if their capacity has no rung.
    ``unstated``: a sentence on GPUs that the work asks for, if its pools only simulate them or do not state them.
    """

    rungs: tuple[Rung, ...]
    refusals: Mapping[str, str] = field(default_factory=dict)  # by pool: why it is not a rung
    note: str = ""  # shown once to the user: "no on-demand pool fits: ..."
    undecided: tuple[Expression, ...] = ()
    tainted: tuple[str, ...] = ()
    unstated: str = ""

    @property
    def idle(self) -> tuple[str, ...]:
        """The GPU pools that are not rungs because the work asks for no GPUs."""
        return tuple(name for name, why in self.refusals.items() if why == _IDLE)

    @property
    def on_demand(self) -> tuple[int, ...]:
        """Indexes of the on-demand rungs."""
        return tuple(index for index, rung in enumerate(self.rungs) if rung.spot is False)

    def allowed(self, *, only_on_demand: bool) -> tuple[int, ...]:
        """Indexes of the rungs that an attempt may use now. Without an on-demand rung that is every rung."""
        return (self.on_demand if only_on_demand else ()) or tuple(range(len(self.rungs)))

    def warnings(self, path: str) -> list[str]:
        """Warnings about the pools of the task with this path, for its user."""
        note = f"{self.note}{self.remedy(path)}" if self.note else ""
        return [text for text in (note, self.unstated) if text]

    def remedy(self, path: str) -> str:
        """How the task with this path can use the tainted pools, as the end of a message; empty without such pools."""
        if not self.tainted:
            return ""
        names = [*self.tainted, *(name for rung in self.rungs for name in rung.pools)]
        ladder = f"policy: {{tasks: {{{json.dumps(path)}: {{ladder: [{', '.join(names)}]}}}}}}"
        return (
            f"; only taints keep it off {', '.join(self.tainted)}: a ladder that names a pool tolerates its taints ({ladder} in "
            "spotwright.yaml)"
        )


def build(work: PodRequirements, policy: Policy, pools: Mapping[str, Pool]) -> Ladder:
    """Build the ladder of one task. If no pool fits, ``rungs`` is empty and ``refusals`` gives the reason for each pool."""
    named = policy.ladder is not None
    order = list(policy.ladder) if policy.ladder is not None else list(pools)
    refusals: dict[str, str] = {}
    tainted: list[Pool] = []
    fitting: list[tuple[Pool, tuple[Toleration, ...]]] = []
    for name in order:
        pool = pools[name]
        why = _unwanted(pool, policy.spot) or too_large(work.requests, pool.node)
        if not why:
            taints = providers.taints(pool)
            added = _added_tolerations(pool, taints, work, policy, named=named)
            why = _refusal(pool, taints, work, added)
            asks = bool(work.constraints.selector or work.constraints.required)
            if why and not _refusal(pool, (), work, ()) and (asks or not _idles(pool, work)):
                tainted.append(pool)
        if why:
            refusals[name] = why
        else:
            fitting.append((pool, added))
    if policy.spot is None and not named:
        fitting.sort(key=lambda item: _idles(item[0], work))  # a preference only: no policy asks for more
        names = tuple(pool.name for pool, _ in fitting)
        tolerations = tuple(dict.fromkeys(toleration for _, added in fitting for toleration in added))
        return Ladder((Rung(names, None, tolerations),) if names else (), refusals)
    if not named:
        fitting = _without_idle_gpus(fitting, work, refusals)
        fitting.sort(key=lambda item: (not item[0].is_spot, *_price_order(item[0])))
    elif policy.spot is not None:
        fitting.sort(key=lambda item: not item[0].is_spot)  # the named order, spot rungs first
    rungs = tuple(Rung((pool.name,), pool.is_spot, added) for pool, added in fitting)
    kinds = {rung.spot for rung in rungs}
    shut = tuple(pool.name for pool in tainted if pool.is_spot not in kinds)
    unstated = _unstated(work, [pool for pool, _ in fitting])
    return Ladder(rungs, refusals, _note(policy, rungs), tuple(work.constraints.undecided), shut, unstated)


def _unstated(work: PodRequirements, pools: Sequence[Pool]) -> str:
    """The sentence if work asks for GPUs that its pools only simulate or do not state."""
    asked = [name for name, amount in work.requests.items() if amount and has_accelerators({name: amount})]
    if asked and any(pool.price_source is PriceSource.EXAMPLE for pool in pools):  # the built-in ones
        return (
            f"it asks for {', '.join(asked)}, which the built-in pools do not have: they simulate it at the price of a node"
            " without, and the code uses this machine's devices. Name your cluster's pools in spotwright.yaml"
        )
    silent = [pool.name for pool in pools if pool.node is None and not pool.machine]
    if not asked or not silent:
        return ""
    return (
        f"it asks for {', '.join(asked)}, and {', '.join(silent)} in spotwright.yaml do not say whether their nodes have it:"
        f" assuming that they do; write node: {{..., {asked[0]}: NUMBER}} under each pool that has it, and under others node "
        "without it"
    )


def too_large(requests: Resources, node: Resources | None) -> str:
    """Return why a node of this size is too small (``it asks for 8 cpu, a node has 6 cpu``), or empty text.

    Every node has the resources of :data:`EVERYWHERE`: if a size does not name one of them, it is unlimited.
    """
    if node is None:
        return ""
    for name, amount in requests.items():
        if name in EVERYWHERE and name not in node:
            continue
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
    """Return why the policy or the pool's ``max_price`` excludes the pool; empty if neither does."""
    if spot is Spot.REQUIRE and not pool.is_spot:
        return "the policy requires spot"
    if spot is Spot.NEVER and pool.is_spot:
        return "the policy forbids spot"
    if pool.max_price is not None and pool.price is not None and pool.price > pool.max_price:
        return f"its price is above max_price ({float(pool.price):g}/h > {float(pool.max_price):g}/h)"
    return ""


def _refusal(pool: Pool, taints: tuple[Taint, ...], work: PodRequirements, added: tuple[Toleration, ...]) -> str:
    """Return why no node of the pool admits the work; empty if the nodes of one of its zones do."""
    left = tuple(taint for taint in taints if not any(toleration.tolerates(taint) for toleration in added))
    return node_labels.refusal(pool, work.constraints, left)


def _added_tolerations(
    pool: Pool, taints: tuple[Taint, ...], work: PodRequirements, policy: Policy, *, named: bool
) -> tuple[Toleration, ...]:
    """Tolerations that Spotwright adds to the work for a pool.

    - The ladder names the pool: for all taints of the pool.
    - The policy sets ``spot``: for the taint that marks spot, for a GPU taint if the work asks for GPUs, and for the taint of an
      architecture or operating system that the work selects. Other taints reserve the nodes for someone, and stay untolerated.
    - Neither: the tolerations that the cluster itself adds to every pod with these requests.
    """
    if policy.spot is None and not named:
        return tuple(
            Toleration(taint.key, "Exists", effect=taint.effect)
            for taint in taints
            if not work.constraints.tolerates(taint) and providers.is_tolerated_by_cluster(pool, taint, work.requests)
        )
    return tuple(
        Toleration(taint.key, "Equal", taint.value, taint.effect)
        for taint in taints
        if not work.constraints.tolerates(taint) and (named or _is_tolerated_for_policy(pool, taint, work))
    )


def _is_tolerated_for_policy(pool: Pool, taint: Taint, work: PodRequirements) -> bool:
    if providers.is_spot_taint(pool, taint) or (providers.is_gpu_taint(taint) and has_accelerators(work.requests)):
        return True
    return work.constraints.selector.get(PLATFORM_TAINTS.get(taint.key, "")) == taint.value


def has_accelerators(resources: Resources) -> bool:
    """Whether GPUs or TPUs are among the resources, of a request or of a node."""
    return any(
        amount and providers.is_accelerator(name) for name, amount in resources.items() if name not in EVERYWHERE
    )


def _without_idle_gpus(
    fitting: list[tuple[Pool, tuple[Toleration, ...]]], work: PodRequirements, refusals: dict[str, str]
) -> list[tuple[Pool, tuple[Toleration, ...]]]:
    """Exclude GPU pools for work without GPUs, unless no other pool fits, because its own selector asks for them."""
    idle = [pool.name for pool, _ in fitting if _idles(pool, work)]
    if len(idle) == len(fitting):
        return fitting
    refusals.update(dict.fromkeys(idle, _IDLE))
    return [item for item in fitting if item[0].name not in idle]


def _idles(pool: Pool, work: PodRequirements) -> bool:
    """Whether the work would leave the pool's GPUs idle."""
    return has_accelerators(pool.node or {}) and not has_accelerators(work.requests)


def _price_order(pool: Pool) -> tuple[bool, Fraction | int]:
    """Cheapest first, pools without a price last."""
    return (pool.price is None, pool.price or 0)


def _note(policy: Policy, rungs: Iterable[Rung]) -> str:
    """The sentence for the user where ``spot: prefer`` finds pools of one capacity type only."""
    kinds = {rung.spot for rung in rungs}
    if policy.spot is Spot.PREFER and kinds == {True}:
        return "no on-demand pool fits: spot is preferred, but has no fallback"
    if policy.spot is Spot.PREFER and kinds == {False}:
        return "no spot pool fits: it runs on on-demand"
    return ""
