"""Read node pools from the lists of their providers' tools, so that pools without a node are known too.

The lists come from ``az aks nodepool list``, ``gcloud container node-pools list``, ``aws eks describe-nodegroup`` and
``eksctl get nodegroup`` (each as JSON), and Terraform's own output (``terraform show -json``, also of a plan, and ``terraform
state pull``). Objects from which controllers make pools are lists too. A form is recognized by its content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from spotwright.clouds import providers
from spotwright.errors import InputError
from spotwright.kube.object_fields import metadata
from spotwright.model.pools import GENERIC, Capacity, Pool
from spotwright.pools.listed_forms import EKSCTL_CONFIG, FORMS, Form, Raw, mappings
from spotwright.pools.pool_objects import is_pool_object, object_pools, ordered_pools
from spotwright.pools.request import ListedPool, find_wrong, name_for
from spotwright.pools.terraform_files import CONVERTERS, Output, Unread, is_terraform

__all__ = ["TOOLS", "Listing", "is_listing", "listed_pools"]


TOOLS = (
    "az aks nodepool list -o json, gcloud container node-pools list --format=json, aws eks describe-nodegroup, eksctl get "
    "nodegroup -o json or terraform show -json"
)
"""The commands whose output is read."""


class Listing(NamedTuple):
    """Lists of node pools: the tools that wrote them, the pools under names for spotwright.yaml, and what was not read.

    ``others`` counts the resources that are not known to make nodes, by type.
    """

    tools: str
    pools: Sequence[ListedPool]
    unread: Sequence[Unread] = ()
    others: Mapping[str, int] = {}


def is_listing(document: Raw) -> bool:
    """Whether an object is a list of node pools, one of them, an object that makes some, or an output of Terraform."""
    return is_terraform(document) or is_pool_object(document) or next(_parts(document), None) is not None


def listed_pools(documents: Sequence[Raw], name: str, *, has_others: bool = False) -> Listing:
    """The pools of the lists. ``name`` is the file's in messages; ``has_others``: it shows other pools beside them.

    Raises :class:`InputError` with a malformed field, and for lists without a node pool.
    """
    tools: dict[str, None] = {}
    pools: dict[str, ListedPool] = {}
    outputs = [Output(one) for one in documents if is_terraform(one)]
    unread = [
        Unread("ComputeClass", str(metadata(one).get("name")), f"it orders {', '.join(ordered)}, which {_GCLOUD} shows")
        for one in documents
        if (ordered := ordered_pools(one))
    ]
    for tool, form, one in _found(documents, outputs):
        tools[tool] = None
        wrong = find_wrong(one, form.shape)
        if not wrong and not one.get(form.name):
            wrong = f"{form.name} is missing"
        if wrong:
            raise InputError(f"{name}: node pool {len(pools) + 1} of {form.tool}: {wrong}")
        pool = form.read(one)
        free = name_for(pool.name, taken=pools)
        pools[free] = pool._replace(name=free, settings=_named(pool, free))
    unread += (one for output in outputs for one in output.unread)
    others = sum((output.others() for output in outputs), Counter[str]())
    if not pools and not has_others:
        raise InputError(_no_pools(name, outputs, unread))
    return Listing(
        ", ".join(tools), [_without_devices_of_others(pool, pools) for pool in pools.values()], unread, others
    )


_GCLOUD = "gcloud container node-pools list --format=json"


def _found(documents: Sequence[Raw], outputs: Sequence[Output]) -> Iterator[tuple[str, Form, Raw]]:
    """Each pool of the documents with the tool that wrote it, its form, and itself."""
    left = iter(outputs)
    for document in documents:
        if is_terraform(document):
            yield from (("Terraform", form, one) for form, one in next(left).pools())
        elif is_pool_object(document):
            yield from ((str(document.get("kind")), form, one) for form, one in object_pools(document, documents))
        else:
            yield from ((form.tool, form, one) for form, one in _parts(document))


def _no_pools(name: str, outputs: Sequence[Output], unread: Sequence[Unread]) -> str:
    """The message for lists without a node pool, with what was found instead and why it does not count."""
    if unread:
        return f"{name}: no node pool can be read: {'; '.join(one.text for one in unread[:_SHOWN])}"
    if not outputs:
        return f"{name}: the list has no node pools"
    there = ", ".join(sorted({kind for output in outputs for kind in output.found})[:_MOST_TYPES]) or "no resources"
    return f"{name}: an output of Terraform without a node pool: expected {', '.join(CONVERTERS)}, found {there}"


_SHOWN = 3
_MOST_TYPES = 5


def _without_devices_of_others(pool: ListedPool, pools: Mapping[str, ListedPool]) -> ListedPool:
    """The pool, with 0 of each device of other pools with its machine: pools of one machine share their size."""
    machine = pool.settings.get("machine")
    if not machine or "node" in pool.settings:
        return pool
    same = [one.settings.get("node", {}) for one in pools.values() if one.settings.get("machine") == machine]
    none = {resource: 0 for node in same for resource in node}
    return pool._replace(settings={**pool.settings, "node": none}) if none else pool


def _named(pool: ListedPool, name: str) -> Raw:
    """The settings, with the label of the pool's name at its provider if spotwright.yaml has another name for it."""
    label = providers.pool_label(Pool(name, Capacity.SPOT, pool.settings.get("provider", GENERIC)))
    if name == pool.name or not label:
        return pool.settings
    return {**pool.settings, "labels": {label: pool.name, **pool.settings.get("labels", {})}}


def _parts(document: Raw, depth: int = 0) -> Iterator[tuple[Form, Raw]]:
    """The node pools of a document: itself, a cluster's, and a list page's."""
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
