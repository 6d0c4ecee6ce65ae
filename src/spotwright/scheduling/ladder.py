"""Build the ladder of a task: the pools that its attempts may use, in order.

The ladder is built once per task from its policy, its own constraints and the pools. It answers two questions for every
backend: which pools fit, with the reason for each that does not; and which rungs are allowed after a number of interruptions
(rows 6 and 8 of the design's table). The scheduler's rules are in :mod:`spotwright.model.scheduling_terms`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from spotwright.clouds import machines, node_labels, providers
from spotwright.clouds.node_signs import PLATFORM_TAINTS
from spotwright.kube.devices import is_share
from spotwright.model.not_judged import NotJudged, Subject
from spotwright.model.policy import Policy, Spot
from spotwright.model.pools import Pool, PriceSource, Resources
from spotwright.model.quantities import format_bytes
from spotwright.model.scheduling_terms import Constraints, Expression, Taint, Toleration

__all__ = [
    "EVERYWHERE",
    "SIZE_UNKNOWN",
    "STATE_NODE",
    "Ladder",
    "PodRequirements",
    "Rung",
    "amount_text",
    "build",
    "has_accelerators",
    "too_large",
]

_IDLE = "its GPUs would be idle: the task requests none"
"""Why work without GPUs is kept off GPU pools that would admit it."""

EVERYWHERE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources that every node has, even if the configuration of its pool names only others."""


@dataclass(frozen=True, slots=True)
class PodRequirements:
    """A task as the scheduler sees it: its resource requests, and its own constraints on nodes.

    ``devices`` are further requested devices, in the words of messages, whose number requests and pools do not state.
    ``system`` is the operating system that the pod states, by Kubernetes' name; empty: none.
    """

    requests: Resources = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)
    devices: tuple[str, ...] = ()
    system: str = ""

    @property
    def wants_accelerators(self) -> bool:
        """Whether it asks for GPUs or other devices, so that such nodes are meant for it."""
        return bool(self.devices) or has_accelerators(self.requests)


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

    ``undecided``: the work's own conditions that are decided at run time, when some rungs may not fit. ``tainted``: the pools
    that only their taint excludes, if their capacity has no rung. ``unstated``: a sentence on devices that the work asks for,
    if its pools only simulate them or do not state them. ``maybe`` has, by pool, why it is unknown whether a rung's nodes are
    large enough and have the requested devices.
    """

    rungs: tuple[Rung, ...]
    refusals: Mapping[str, str] = field(default_factory=dict)  # by pool: why it is not a rung
    note: str = ""  # shown once to the user: "no on-demand pool fits: ..."
    undecided: tuple[Expression, ...] = ()
    tainted: tuple[str, ...] = ()
    unstated: str = ""
    maybe: Mapping[str, str] = field(default_factory=dict)

    @property
    def not_judged(self) -> list[NotJudged]:
        """The rungs of which it is unknown whether the work fits."""
        return [NotJudged(Subject.POOL, name, why, STATE_NODE) for name, why in self.maybe.items()]

    @property
    def idle(self) -> tuple[str, ...]:
        """The GPU pools that are not rungs because the work asks for no GPUs."""
        return tuple(name for name, why in self.refusals.items() if why == _IDLE)

    @property
    def keeps_off_windows(self) -> bool:
        """Whether pools are excluded because their nodes run Windows, perhaps without a taint."""
        return _WINDOWS in self.refusals.values()

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
        why = (
            _unwanted(pool, policy.spot)
            or too_large(work.requests, pool)
            or _without_device(pool, work)
            or _other_system(pool, work)
        )
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
        fitting.sort(key=lambda item: _idles(item[0], work))  # only a preference: policies do not ask for more
        names = tuple(pool.name for pool, _ in fitting)
        tolerations = tuple(dict.fromkeys(toleration for _, added in fitting for toleration in added))
        maybe = _maybe(work, [pool for pool, _ in fitting])
        return Ladder((Rung(names, None, tolerations),) if names else (), refusals, maybe=maybe)
    if not named:
        fitting = _without_idle_gpus(fitting, work, refusals)
        fitting.sort(key=lambda item: (not item[0].is_spot, *_price_order(item[0])))
    elif policy.spot is not None:
        fitting.sort(key=lambda item: not item[0].is_spot)  # the named order, spot rungs first
    rungs = tuple(Rung((pool.name,), pool.is_spot, added) for pool, added in fitting)
    kinds = {rung.spot for rung in rungs}
    shut = tuple(pool.name for pool in tainted if pool.is_spot not in kinds)
    fit = [pool for pool, _ in fitting]
    unstated = " ".join(filter(None, [_unstated(work, fit), _mixed(work, fit)]))
    note, undecided = _note(policy, rungs), tuple(work.constraints.undecided)
    return Ladder(rungs, refusals, note, undecided, shut, unstated, _maybe(work, fit))


def _unstated(work: PodRequirements, pools: Sequence[Pool]) -> str:
    """The sentence if work asks for GPUs that its pools only simulate or do not state."""
    whole = [name for name in work.requests if not is_share(name)]
    asked = [name for name in whole if work.requests[name] and has_accelerators({name: work.requests[name]})]
    if asked and any(pool.price_source is PriceSource.EXAMPLE for pool in pools):  # the built-in ones
        return (
            f"it asks for {', '.join(asked)}, which the built-in pools do not have: they simulate it at the price of a node"
            " without, and the code uses this machine's devices. Name your cluster's pools in spotwright.yaml"
        )
    silent = [pool.name for pool in pools if _may_lack(pool, work)]
    if silent and work.devices and not asked:
        names = ", ".join(work.devices)
        return f"it asks for a device by {names}, and no pool states which of its nodes have it: {', '.join(silent)} may lack it"
    if not asked or not silent:
        return ""
    return (
        f"it asks for {', '.join(asked)}, and {', '.join(silent)} in spotwright.yaml do not say whether their nodes have it:"
        f" assuming that they do; write node: {{..., {asked[0]}: NUMBER}} under each pool that has it, and under others node "
        "without it"
    )


_ARCH = ("kubernetes.io/arch", "beta.kubernetes.io/arch")


def _mixed(work: PodRequirements, pools: Sequence[Pool]) -> str:
    """The sentence if pools have several architectures, and the work does not state its image's."""
    given = work.constraints
    if any(map(given.selector.get, _ARCH)) or any(one.key in _ARCH for one in _conditions(given)):
        return ""
    names: dict[str, list[str]] = {}
    for pool in pools:
        if arch := node_labels.known(pool)[0].get(_ARCH[0], ""):
            names.setdefault(arch, []).append(pool.name)
    if len(names) < 2:
        return ""
    shown = " and ".join(f"{', '.join(each)} have {arch} nodes" for arch, each in names.items())
    return f"{shown}, and it states no architecture: select {_ARCH[0]} if its image is for one of them"


SIZE_UNKNOWN = "the node size is not known"
"""Why it is unknown whether work fits a pool without ``node``."""

STATE_NODE = "state node: under the pool in spotwright.yaml, such as node: {cpu: 8, memory: 32Gi}, with its devices"
"""The remedy by which Spotwright can judge it."""


def _maybe(work: PodRequirements, pools: Sequence[Pool]) -> dict[str, str]:
    """The pools of which it is unknown whether the work fits their nodes, each with the reason."""
    found = {}
    for pool in pools:
        if pool.price_source is PriceSource.EXAMPLE:  # its nodes are only simulated
            continue
        if pool.node is None and any(work.requests.values()):
            found[pool.name] = SIZE_UNKNOWN
        elif work.devices:
            found[pool.name] = f"whether its nodes have the device of {', '.join(work.devices)} is not known"
    return found


def _may_lack(pool: Pool, work: PodRequirements) -> bool:
    """Whether the pool's nodes may lack the requested devices; one GPU of a machine with GPUs is certain."""
    counts = [amount for name, amount in work.requests.items() if has_accelerators({name: amount})]
    if pool.node is not None:
        return bool(work.devices)
    return machines.has_accelerators(pool.machine) is not True or max(counts, default=2) > 1


def too_large(requests: Resources, pool: Pool) -> str:
    """Return why a node of the pool is too small (``it asks for 8 cpu, a node has 6 cpu``), or empty text.

    Every node has the resources of :data:`EVERYWHERE`: if the pool's ``node`` does not name one of them, it is unlimited.
    Without a ``node`` the machine may show that it has no accelerator; all else is unknown (:attr:`Ladder.maybe`).
    """
    node = pool.node
    if node is None:
        asked = next((name for name, amount in requests.items() if has_accelerators({name: amount})), "")
        if asked and machines.has_accelerators(pool.machine) is False:
            return f"it asks for {amount_text(asked, requests[asked])}, and {pool.machine} has no accelerators"
        return ""
    for name, amount in requests.items():
        if name not in node and (name in EVERYWHERE or is_share(name)):
            continue
        offered = node.get(name, 0)
        if amount > offered:
            return f"it asks for {amount_text(name, amount)}, a node has {amount_text(name, offered)}"
    return ""


def _without_device(pool: Pool, work: PodRequirements) -> str:
    """Return why a pool cannot have a device that work asks for without a request; empty if it may."""
    if not work.devices or has_accelerators(pool.node or {}):
        return ""
    if pool.node is None and machines.has_accelerators(pool.machine) is not False:
        return ""
    return f"it asks for a device by {work.devices[0]}, and its nodes have no accelerators"


_OS = ("kubernetes.io/os", "beta.kubernetes.io/os")


def _other_system(pool: Pool, work: PodRequirements) -> str:
    """Return why the operating system of a pool's nodes is wrong for the work; empty if it may be right.

    An image is made for one system. By default work is for Linux, as nearly all images are.
    """
    if pool.os == (work.system or "linux"):
        return ""
    given = work.constraints
    if not work.system and (any(map(given.selector.get, _OS)) or any(one.key in _OS for one in _conditions(given))):
        return ""  # its own condition decides
    return _WINDOWS if pool.os == "windows" else f"its nodes run {pool.os}, and the pod states {work.system}"


_WINDOWS = "its nodes run Windows, and the work does not say that it does (nodeSelector kubernetes.io/os: windows)"


def _conditions(given: Constraints) -> Iterator[Expression]:
    return (one for term in given.required for one in term.expressions)


def amount_text(name: str, amount: int) -> str:
    """An amount of a resource for people: ``2 cpu``, ``4Gi memory``, ``1 nvidia.com/gpu``."""
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
      architecture or operating system that the work selects. Other taints reserve the nodes, and stay untolerated.
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
    if providers.is_spot_taint(pool, taint) or (providers.is_gpu_taint(taint) and work.wants_accelerators):
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
    return has_accelerators(pool.node or {}) and not work.wants_accelerators


def _price_order(pool: Pool) -> tuple[bool, Fraction | int]:
    """Cheapest first, pools without a price last."""
    return (pool.price is None, pool.price or 0)


def _note(policy: Policy, rungs: Iterable[Rung]) -> str:
    """The sentence for the user if ``spot: prefer`` finds pools of only one capacity type."""
    kinds = {rung.spot for rung in rungs}
    if policy.spot is Spot.PREFER and kinds == {True}:
        return "no on-demand pool fits: spot is preferred, but has no fallback"
    if policy.spot is Spot.PREFER and kinds == {False}:
        return "no spot pool fits: it runs on on-demand"
    return ""
