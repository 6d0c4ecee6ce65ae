"""Cache the ladders, affinities and policies of one configuration: the pods of a thousand manifests have few different needs.

The decisions are :func:`~spotwright.scheduling.ladder.build` and :func:`~spotwright.manifests.rules.affinity.attraction`. Both
depend only on the arguments that are the keys here.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from spotwright.manifests.rules.affinity import Attraction, Expression, attraction, off_idle_gpus
from spotwright.model.policy import Layer, Policy, imply_spot, resolve
from spotwright.model.policy_values import check
from spotwright.model.pools import Pool
from spotwright.scheduling.ladder import Ladder, Work, build

__all__ = ["LadderCache", "resolve_layers"]


class LadderCache:
    """The decisions for one configuration's pools."""

    def __init__(self, pools: Mapping[str, Pool]) -> None:
        self._pools = pools
        self._policies: dict[Hashable, tuple[Policy, Sequence[str]]] = {}
        self._ladders: dict[Hashable, Ladder] = {}
        self._attractions: dict[Hashable, Attraction] = {}
        self._exclusions: dict[int, Sequence[Expression]] = {}

    def policy(self, layers: Sequence[Layer]) -> tuple[Policy, Sequence[str]]:
        """:func:`resolve_layers` for layers of the configuration alone; their identities are the key."""
        key = tuple(map(id, layers))
        if key not in self._policies:
            self._policies[key] = resolve_layers(layers, None)
        return self._policies[key]

    def ladder(self, work: Work, policy: Policy) -> Ladder:
        """The ladder of this work under this policy."""
        constraints = work.constraints
        key = (
            policy.spot,
            policy.ladder,
            tuple(work.requests.items()),
            constraints.tolerations,
            tuple(constraints.selector.items()),
            constraints.required,
            constraints.preferred,
        )
        if key not in self._ladders:
            self._ladders[key] = build(work, policy, self._pools)
        return self._ladders[key]

    def attraction(self, policy: Policy, used: Sequence[Pool]) -> Attraction:
        """The node affinity that selects the pools in use."""
        key = (policy.ladder is not None, tuple(pool.name for pool in used))
        if key not in self._attractions:
            self._attractions[key] = attraction(policy, used, self._pools)
        return self._attractions[key]

    def off_idle_gpus(self, work: Work, ladder: Ladder, wanted: Attraction) -> Sequence[Expression]:
        """The conditions that keep work off GPU pools that it does not need; ``ladder`` must come from this cache."""
        key = id(ladder)  # unique while it is cached here
        if key not in self._exclusions:
            self._exclusions[key] = off_idle_gpus(work, ladder, wanted, self._pools)
        return self._exclusions[key]


def resolve_layers(layers: Sequence[Layer], kfp: Layer | None) -> tuple[Policy, Sequence[str]]:
    """The policy of the layers, and the contradictions in it."""
    policy = imply_spot(resolve(layers, kfp))
    return policy, check(policy, layers)
