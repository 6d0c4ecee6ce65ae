"""What a cluster adds to pods when they are created, as far as the given objects tell it.

A pod's own fields do not say all that the scheduler sees: its namespace may have a node selector and default requests, and its
runtime class an overhead, a selector and tolerations. Placement, lint and the check of pools read pods as admitted, so that they
say the same. What an object is not given for is not known, and the pod is read as it is written.

Sources: Kubernetes 1.35, ``plugin/pkg/admission/podnodeselector``, ``plugin/pkg/admission/limitranger``,
``plugin/pkg/admission/runtimeclass`` and ``pkg/apis/core/v1/defaults.go`` (``SetDefaults_LimitRangeItem``); OpenShift's
documentation, "Creating project-wide node selectors".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from spotwright.kube.object_fields import mapping, mappings, metadata

__all__ = ["ADMITTING", "Others", "admitted", "contradiction", "namespace_selector", "no_others"]

Others = Callable[[str], Iterable[Mapping[str, Any]]]
"""The given objects of a kind."""

ADMITTING = ("LimitRange", "Namespace", "RuntimeClass")
"""The kinds whose objects say what is added."""

_SELECTORS = ("scheduler.alpha.kubernetes.io/node-selector", "openshift.io/node-selector")


def no_others(_kind: str) -> Iterable[Mapping[str, Any]]:
    """No object is given."""
    return ()


def admitted(spec: Mapping[str, Any], namespace: str | None, others: Others) -> Mapping[str, Any]:
    """A pod spec with what the cluster adds; the same one where nothing is known to be added.

    ``namespace`` is that of the pod, ``None`` if it is not known. A selector of the pod itself is kept where the namespace has
    another value for its key: :func:`contradiction`.
    """
    added: dict[str, Any] = {}
    own = mapping(spec.get("nodeSelector"))
    selector = {**namespace_selector(namespace, others), **own}
    runtime = next((one for one in others("RuntimeClass") if _is_named(one, spec.get("runtimeClassName"))), None)
    if runtime is not None:
        of_class = mapping(runtime.get("scheduling"))
        selector = {**mapping(of_class.get("nodeSelector")), **selector}
        if more := mappings(of_class.get("tolerations")):
            given = spec.get("tolerations")
            added["tolerations"] = [*(given if isinstance(given, list) else ()), *more]
        if overhead := mapping(mapping(runtime.get("overhead")).get("podFixed")):
            added["overhead"] = overhead
    if selector.keys() - own.keys():
        added["nodeSelector"] = selector
    limits, requests = _defaults(namespace, others)
    for name in ("containers", "initContainers") if limits or requests else ():
        if isinstance(containers := spec.get(name), list):
            added[name] = [_with_defaults(one, limits, requests) for one in containers]
    return {**spec, **added} if added else spec


def namespace_selector(namespace: str | None, others: Others) -> dict[str, str]:
    """The node selector that a namespace adds to its pods; empty where it has none, or is not given."""
    for one in others("Namespace") if namespace else ():
        if _is_named(one, namespace):
            notes = mapping(metadata(one).get("annotations"))
            texts = [notes[key] for key in _SELECTORS if isinstance(notes.get(key), str)]
            pairs = (part.partition("=") for text in texts for part in text.split(","))
            return {key.strip(): value.strip() for key, equals, value in pairs if equals}
    return {}


def contradiction(spec: Mapping[str, Any], namespace: str | None, others: Others) -> tuple[str, str] | None:
    """A key of the pod's node selector that its namespace wants otherwise, and that value: the API server refuses the pod."""
    own = mapping(spec.get("nodeSelector"))
    wanted = namespace_selector(namespace, others)
    return next(((key, value) for key, value in wanted.items() if key in own and str(own[key]) != value), None)


def _defaults(namespace: str | None, others: Others) -> tuple[dict[str, Any], dict[str, Any]]:
    """The limits and the requests of containers that name none, by the LimitRanges of the namespace."""
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for one in _of_containers(namespace, others):
        default = {**mapping(one.get("max")), **mapping(one.get("default"))}
        limits = {**default, **limits}
        requests = {**mapping(one.get("min")), **default, **mapping(one.get("defaultRequest")), **requests}
    return limits, requests


def _of_containers(namespace: str | None, others: Others) -> Iterator[Mapping[str, Any]]:
    for one in others("LimitRange"):
        if metadata(one).get("namespace") in (None, namespace):
            yield from (
                item for item in mappings(mapping(one.get("spec")).get("limits")) if item.get("type") == "Container"
            )


def _with_defaults(container: Any, limits: Mapping[str, Any], requests: Mapping[str, Any]) -> Any:
    """A container with default limits and requests; a limit of its own is its request too."""
    if not isinstance(container, Mapping):
        return container
    resources = container.get("resources") or {}
    if not isinstance(resources, Mapping):
        return container
    own = mapping(resources.get("limits"))
    missing = {key: value for key, value in requests.items() if key not in own}
    both = {"limits": {**limits, **own}, "requests": {**missing, **mapping(resources.get("requests"))}}
    return {**container, "resources": {**resources, **both}}


def _is_named(one: Mapping[str, Any], name: Any) -> bool:
    return isinstance(name, str) and metadata(one).get("name") == name
