"""Reads what ``kubectl get ... -o json`` wrote: nodes, and whatever else a check needs to see beside them.

A file holds one object, or a List of objects of any kinds, as JSON or YAML. Kinds that nothing here reads are left out, and
counted for the message where nothing else is in the file. A kubelet's settings come as ``KubeletConfiguration`` or as the answer
of ``kubectl get --raw /api/v1/nodes/NODE/proxy/configz``; PriorityClasses say which of its pods have how much time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.errors import InputError
from spotwright.manifests.yamltext.documents import parse
from spotwright.provisioning.kubelets import SYSTEM_CLASSES, Shutdown, read_shutdown
from spotwright.provisioning.shapes import API_MODEL, NODE, NODE_POOL, PRIORITY_CLASS, find_wrong, word_for

__all__ = ["Objects", "add_settings", "read_objects"]

_LIST_KINDS = ("List", "NodeList", "DaemonSetList", "NodePoolList", "PriorityClassList")
_ASK = "kubectl get nodes -o json"


@dataclass(slots=True)
class Objects:
    """The objects of a file or a cluster by kind. ``others`` counts the kinds that were left out.

    ``kubelets`` are how kubelets end; ``priorities`` the values of priority classes, under the empty name the default.
    ``no_daemon_sets`` says why a cluster does not show its DaemonSets.
    """

    nodes: list[Mapping[str, Any]] = field(default_factory=list)
    node_pools: list[Mapping[str, Any]] = field(default_factory=list)
    daemon_sets: list[Mapping[str, Any]] = field(default_factory=list)
    kubelets: list[Shutdown] = field(default_factory=list)
    priorities: dict[str, int] = field(default_factory=lambda: dict(SYSTEM_CLASSES))
    api_models: list[Mapping[str, Any]] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    no_daemon_sets: str = ""

    def require_nodes(self, name: str) -> None:
        """Raise :class:`InputError` if there is no node, with what there is instead."""
        if self.nodes:
            return
        found = ", ".join(f"{count} {kind}" for kind, count in self.others.most_common(3))
        found = found or ("a List without items" if not self.daemon_sets else f"{len(self.daemon_sets)} DaemonSet")
        raise InputError(f"{name}: expected nodes, found {found}: write the file with {_ASK}")


def read_objects(text: str, name: str) -> Objects:
    """Read the objects of a text; ``name`` is how messages call it.

    Raises :class:`InputError` where it is neither JSON nor YAML, or where a node lacks what every node has.
    """
    if not text.strip():
        raise InputError(f"{name}: the file is empty: write it with {_ASK}")
    objects = Objects()
    for document in _documents(text, name):
        for one in _flattened(document, name):
            _sort(one, objects, name)
    return objects


def _documents(text: str, name: str) -> Iterable[Any]:
    stripped = text.lstrip("\ufeff \t\r\n")
    if not stripped.startswith(("{", "[")):
        return [document.get(()) for document in parse(text, name)]
    try:
        return [json.loads(stripped)]
    except json.JSONDecodeError as error:
        raise InputError(f"{name}:{error.lineno}: not valid JSON: {error.msg}; write the file with {_ASK}") from None
    except RecursionError:
        raise InputError(f"{name}: nested too deep to be nodes; write the file with {_ASK}") from None


def _flattened(document: Any, name: str) -> Iterator[Mapping[str, Any]]:
    items: Any = document if isinstance(document, list) else [document]
    common: Mapping[str, Any] = {}
    if isinstance(document, Mapping) and str(document.get("kind")) in _LIST_KINDS:
        items = document.get("items") or []
        kind = str(document["kind"]).removesuffix("List")
        if kind:  # the API writes the kind of all items once, at the list (kubectl get --raw)
            common = {"kind": kind, "apiVersion": document.get("apiVersion")}
    for item in items if isinstance(items, list) else [items]:
        if not isinstance(item, Mapping):
            raise InputError(
                f"{name}: expected objects of Kubernetes, found {word_for(item)}: write the file with {_ASK}"
            )
        yield {**common, **item}


def _sort(one: Mapping[str, Any], objects: Objects, name: str) -> None:
    kind = str(one.get("kind") or "")
    if kind == "Node":
        objects.nodes.append(_checked(one, NODE, f"{name}: node {len(objects.nodes) + 1}"))
    elif kind == "DaemonSet":
        objects.daemon_sets.append(one)
    elif kind == "NodePool" and str(one.get("apiVersion", "")).startswith("karpenter.sh/"):
        objects.node_pools.append(_checked(one, NODE_POOL, f"{name}: NodePool {len(objects.node_pools) + 1}"))
    elif add_settings(one, objects, name):
        return
    elif one.get("apiVersion") == "vlabs" and isinstance(one.get("properties"), Mapping):
        wrong = find_wrong(one, API_MODEL)
        if wrong:
            raise InputError(f"{name}: an API model of aks-engine: {wrong}")
        objects.api_models.append(one)
    else:
        objects.others[kind or "object without a kind"] += 1


def add_settings(one: Mapping[str, Any], objects: Objects, name: str) -> bool:
    """Add the settings of a kubelet or a PriorityClass; False for any other object. Raises :class:`InputError`."""
    settings = one if one.get("kind") == "KubeletConfiguration" else one.get("kubeletconfig")
    if isinstance(settings, Mapping):
        objects.kubelets.append(read_shutdown(settings, f"{name}: kubelet {len(objects.kubelets) + 1}"))
    elif one.get("kind") == "PriorityClass":
        _checked(one, PRIORITY_CLASS, f"{name}: PriorityClass")
        names = [one["metadata"]["name"], *([""] if one.get("globalDefault") is True else [])]
        objects.priorities |= dict.fromkeys(names, one.get("value") or 0)
    else:
        return False
    return True


def _checked(one: Mapping[str, Any], shape: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    """The object, whose fields have the types of the API. Raises :class:`InputError` with the field that has not."""
    wrong = find_wrong(one, shape)
    if wrong:
        raise InputError(f"{what}: {wrong}")
    if not (one.get("metadata") or {}).get("name"):
        raise InputError(f"{what}: metadata.name is missing: write the file with {_ASK}")
    return one
