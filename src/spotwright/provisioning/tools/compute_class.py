"""The ComputeClass of GKE that orders the pools: spot first, on-demand where spot has no capacity.

GKE's autoscaler takes the first priority that can be had, for pods that select the class by the label
``cloud.google.com/compute-class``. Existing node pools belong to a class if they have that label, and a taint of the same key
that keeps other work away; GKE adds the toleration to pods that select the class.

Sources: Google Cloud, "About custom compute classes" and "ComputeClass CustomResourceDefinition" (priorities, ``nodepools``,
activeMigration, whenUnsatisfiable; since 1.30.3-gke.1451000); the CRD ``computeclasses.cloud.google.com`` v1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spotwright.clouds import providers
from spotwright.clouds.providers import COMPUTE_CLASS
from spotwright.errors import InputError
from spotwright.manifests.kueue.flavors import flavor_order
from spotwright.manifests.yamltext.splice import flow
from spotwright.model.pools import Pool, Provider
from spotwright.provisioning.script import items

__all__ = ["DEFAULT_CLASS", "compute_class_lines"]

DEFAULT_CLASS = "spotwright"
"""Name of the class where the pools name none."""


def compute_class_lines(pools: Mapping[str, Pool], ladder: Sequence[str] = ()) -> Iterator[str]:
    """The ComputeClass of each name that the pools of GKE have as their label, or one of all of them where none has the label.

    Raises :class:`InputError` if there is no pool of GKE.
    """
    ours = {name: pool for name, pool in pools.items() if pool.provider is Provider.GKE}
    if not ours:
        raise InputError("no pool has provider: gke, and a ComputeClass orders pools of GKE")
    ordered = sorted(flavor_order(ours, ladder), key=lambda pool: not pool.is_spot)
    named = list(dict.fromkeys(pool.labels[COMPUTE_CLASS] for pool in ordered if COMPUTE_CLASS in pool.labels))
    for number, name in enumerate(named or [DEFAULT_CLASS]):
        members = [pool for pool in ordered if pool.labels.get(COMPUTE_CLASS) == name] if named else ordered
        yield from () if number == 0 else ("---",)
        yield from _class(name, members)


def _class(name: str, members: Sequence[Pool]) -> Iterator[str]:
    yield from items(_meanings(name, members))
    yield "apiVersion: cloud.google.com/v1"
    yield "kind: ComputeClass"
    yield f"metadata: {flow({'name': name})}"
    yield "spec:"
    yield "  priorities:"
    for pool in members:
        if not providers.pool_name(pool):
            raise InputError(f"pool {pool.name}: GKE allows no pool of that name: rename it in spotwright.yaml")
        yield f"  - {flow({'nodepools': [providers.pool_name(pool)]})}  # {pool.capacity}"
    yield "  nodePoolAutoCreation: {enabled: false}  # the pools above are there; true lets GKE make others"
    yield "  activeMigration: {optimizeRulePriority: false}  # true would drain running work to bring it back to spot"
    yield "  whenUnsatisfiable: DoNotScaleUp  # wait for one of these pools, instead of any machine that GKE finds"


def _meanings(name: str, members: Sequence[Pool]) -> Iterator[str]:
    taint = f"{COMPUTE_CLASS}={name}:NoSchedule"
    lacking = [
        pool.name for pool in members if pool.labels.get(COMPUTE_CLASS) != name or taint not in map(str, pool.taints)
    ]
    yield (
        f"Pods belong to the class by the label {COMPUTE_CLASS}={name}. A ladder that names these pools makes place "
        f"require it: policy: {{default: {{spot: prefer, ladder: {flow([pool.name for pool in members])}}}}}."
    )
    if lacking:
        yield (
            f"SET THIS in spotwright.yaml, and make these pools again with it ({', '.join(lacking)}): "
            f'labels: {{{COMPUTE_CLASS}: {name}}} and taints: ["{taint}"]. A pool without them is not part of the '
            "class."
        )
    if {pool.is_spot for pool in members} != {True, False}:
        yield "All pools of the class have one capacity: there is nothing to fall back to."
