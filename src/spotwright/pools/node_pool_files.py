"""Reads node pools off what the tools of their providers list, so that pools without a node are known too.

The lists come from ``az aks nodepool list``, ``gcloud container node-pools list``, ``aws eks describe-nodegroup`` and
``eksctl get nodegroup`` (each as JSON), and Terraform's own output (``terraform show -json``, also of a plan, and ``terraform
state pull``). A form is known by its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from spotwright.clouds import providers
from spotwright.errors import InputError
from spotwright.model.pools import GENERIC, Capacity, Pool
from spotwright.pools.listed_forms import EKSCTL_CONFIG, FORMS, Form, Raw, mappings
from spotwright.pools.request import ListedPool, find_wrong, name_for
from spotwright.pools.terraform_files import is_terraform, terraform_pools

__all__ = ["TOOLS", "is_listing", "listed_pools"]


TOOLS = (
    "az aks nodepool list -o json, gcloud container node-pools list --format=json, aws eks describe-nodegroup, eksctl get "
    "nodegroup -o json or terraform show -json"
)
"""The commands whose output is read."""


def is_listing(document: Raw) -> bool:
    """Whether an object without a kind is a list of node pools, one of them, or an output of Terraform."""
    return is_terraform(document) or next(_parts(document), None) is not None


def listed_pools(documents: Iterable[Raw], name: str) -> tuple[str, list[ListedPool]]:
    """The tools that wrote the lists, and their pools under names for spotwright.yaml. ``name`` is how messages call the file.

    Raises :class:`InputError` with the field that has another form, and for lists without a node pool.
    """
    tools: dict[str, None] = {}
    pools: dict[str, ListedPool] = {}
    for document in documents:
        from_terraform = is_terraform(document)
        for form, one in terraform_pools(document, name) if from_terraform else _parts(document):
            tools["Terraform" if from_terraform else form.tool] = None
            wrong = find_wrong(one, form.shape)
            if not wrong and not one.get(form.name):
                wrong = f"{form.name} is missing"
            if wrong:
                raise InputError(f"{name}: node pool {len(pools) + 1} of {form.tool}: {wrong}")
            pool = form.read(one)
            free = name_for(pool.name, taken=pools)
            pools[free] = pool._replace(name=free, settings=_named(pool, free))
    if not pools:
        raise InputError(f"{name}: the list has no node pools")
    return ", ".join(tools), [_without_devices_of_others(pool, pools) for pool in pools.values()]


def _without_devices_of_others(pool: ListedPool, pools: Mapping[str, ListedPool]) -> ListedPool:
    """The pool, with 0 of each device that another pool of the same machine has: pools of one machine share their size."""
    machine = pool.settings.get("machine")
    if not machine or "node" in pool.settings:
        return pool
    same = [one.settings.get("node", {}) for one in pools.values() if one.settings.get("machine") == machine]
    none = {resource: 0 for node in same for resource in node}
    return pool._replace(settings={**pool.settings, "node": none}) if none else pool


def _named(pool: ListedPool, name: str) -> Raw:
    """The settings, with the label that names the pool at its provider where spotwright.yaml has another name for it."""
    label = providers.pool_label(Pool(name, Capacity.SPOT, pool.settings.get("provider", GENERIC)))
    if name == pool.name or not label:
        return pool.settings
    return {**pool.settings, "labels": {label: pool.name, **pool.settings.get("labels", {})}}


def _parts(document: Raw, depth: int = 0) -> Iterator[tuple[Form, Raw]]:
    """The node pools of a document: itself, a cluster's, and those of a page of a list."""
    if str(document.get("apiVersion")).startswith("eksctl.io/"):
        yield from _groups(document)
        return
    for inside in _HOLDERS if depth < len(_HOLDERS) else ():
        if isinstance(document.get(inside), list):
            region = {"location": document["location"]} if isinstance(document.get("location"), str) else {}
            for item in mappings(document[inside]):
                yield from _parts({**region, **item}, depth + 1)
            return
    for wrapper in ("nodegroup", "properties"):
        inner = document.get(wrapper)
        if isinstance(inner, Mapping):
            document = {**document, **inner}
    form = next((one for one in FORMS if one.keys <= document.keys()), None)
    if form is not None:
        yield form, document


_HOLDERS = ("value", "agentPoolProfiles", "nodePools")  # of a page of Azure's API, of a cluster of AKS, of one of GKE


def _groups(config: Raw) -> Iterator[tuple[Form, Raw]]:
    """The groups of a ClusterConfig of eksctl, managed ones and others, each with the region of the cluster."""
    metadata = config.get("metadata")
    region = {"region": metadata["region"]} if isinstance(metadata, Mapping) and metadata.get("region") else {}
    for key in ("managedNodeGroups", "nodeGroups"):
        for group in mappings(config.get(key)):
            yield EKSCTL_CONFIG, {**group, **region, "isManaged": key == "managedNodeGroups"}
