"""Where work of one sort may go, decided once: the pods of a thousand manifests ask for a handful of different things.

The decisions are :func:`~spotwright.scheduling.ladder.build` and :func:`~spotwright.manifests.affinity.attraction`; both depend
only on what is asked for here, so an answer that was given holds for everybody who asks the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from spotwright.manifests.affinity import Attraction, Expression, attraction, off_idle_gpus
from spotwright.model.policy import Layer, Policy, meant, resolve
from spotwright.model.policy_values import check
from spotwright.model.pools import Pool
from spotwright.scheduling.ladder import Ladder, Work, build

__all__ = ["Choices", "resolved"]


class Choices:
    """The decisions among one configuration's pools."""

    def __init__(self, pools: Mapping[str, Pool]) -> None:
        self._pools = pools
        self._policies: dict[Hashable, tuple[Policy, Sequence[str]]] = {}
        self._ladders: dict[Hashable, Ladder] = {}
        self._attractions: dict[Hashable, Attraction] = {}
        self._off: dict[int, Sequence[Expression]] = {}

    def policy(self, layers: Sequence[Layer]) -> tuple[Policy, Sequence[str]]:
        """:func:`resolved` for layers of the configuration alone, which are known by their identity."""
        key = tuple(map(id, layers))
        if key not in self._policies:
            self._policies[key] = resolved(layers, None)
        return self._policies[key]

    def ladder(self, work: Work, policy: Policy) -> Ladder:
        """The ladder of work that asks for this under such a policy."""
        asked = work.constraints
        key = (
            policy.spot,
            policy.ladder,
            tuple(work.requests.items()),
            asked.tolerations,
            tuple(asked.selector.items()),
            asked.required,
            asked.preferred,
        )
        if key not in self._ladders:
            self._ladders[key] = build(work, policy, self._pools)
        return self._ladders[key]

    def attraction(self, policy: Policy, used: Sequence[Pool]) -> Attraction:
        """The node affinity that leads to the pools in use."""
        key = (policy.ladder is not None, tuple(pool.name for pool in used))
        if key not in self._attractions:
            self._attractions[key] = attraction(policy, used, self._pools)
        return self._attractions[key]

    def off_idle_gpus(self, work: Work, ladder: Ladder, wanted: Attraction) -> Sequence[Expression]:
        """What keeps work off GPU pools that it does not need; ``ladder`` is one that was given here for it."""
        key = id(ladder)  # which is kept here, one for each sort of work
        if key not in self._off:
            self._off[key] = off_idle_gpus(work, ladder, wanted, self._pools)
        return self._off[key]


def resolved(layers: Sequence[Layer], kfp: Layer | None) -> tuple[Policy, Sequence[str]]:
    """The policy that layers amount to, and what contradicts itself in it."""
    policy = meant(resolve(layers, kfp))
    return policy, check(policy, layers)
