"""Whether the rights that the chart grants allow a request, as RBAC decides it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import parse_qs

from spotwright.cluster import permissions
from spotwright.cluster.permissions import LEASE, Right

__all__ = ["MADE_BY_HAND", "is_allowed"]

MADE_BY_HAND = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
"""With ``--webhook-url`` the registration is not part of the chart: the user who starts the controller may create it."""

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def is_allowed(
    line: str, process: str, *, served: Sequence[str] = (), home: str = "spotwright", name: str = "spotwright"
) -> bool:
    """Whether a process may make a request, given as its method and its path with the query.

    ``served`` are the namespaces of the chart's list; if empty, the labelled ones, by the cluster-wide form.
    """
    method, _, rest = line.partition(" ")
    path, _, query = rest.partition("?")
    if path.startswith(MADE_BY_HAND):
        return process == "webhook"
    group, parts = _split(path)
    if not parts:
        return True  # what the server has at all: every account may ask
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    resource, object_name = "/".join([parts[0], *parts[2:]]), parts[1] if len(parts) > 1 else ""
    following = "watch" if "watch=true" in query else "list"
    verb = _VERBS.get(method) or ("get" if object_name else following)
    fields = parse_qs(query).get("fieldSelector", [""])[0]
    object_name = object_name or fields.partition("metadata.name=")[2].partition(",")[0]
    return any(
        process in right.processes
        and right.group == group
        and resource in right.resources
        and verb in right.verbs
        and (not right.names or object_name in [each.replace(LEASE, name) for each in right.names])
        for right in _granted(namespace, served, home)
    )


def _split(path: str) -> tuple[str, list[str]]:
    """The API group of a path, and the path after its version."""
    parts = path.strip("/").split("/")
    return ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])


def _granted(namespace: str, served: Sequence[str], home: str) -> Iterator[Right]:
    """The rights on objects of a namespace, or without one on those of the whole cluster."""
    yield from (*permissions.CLUSTER, *permissions.REGISTRATION)
    yield from (replace(right, names=tuple(served)) for right in permissions.NAMESPACES)
    if not served or namespace in served:
        yield from permissions.SERVED
    by_namespace = {home: permissions.HOME, "default": permissions.DEFAULT, "kube-system": permissions.KUBE_SYSTEM}
    by_namespace["kube-node-lease"] = permissions.NODE_LEASES
    yield from by_namespace.get(namespace, ())
