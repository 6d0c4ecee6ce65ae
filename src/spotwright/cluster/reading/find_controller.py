"""Finds the controller of a cluster: its pod by label, its authority in a ConfigMap beside it, or the address that is given.

The pod has the label ``app.kubernetes.io/name=spotwright`` and is in the namespace ``spotwright``. The ConfigMap
``spotwright-reading`` beside it has the authority that signed the controller's certificate in ``ca.crt``, as ``kube-root-ca.crt``
has that of the cluster: who could change it could change the controller too. The certificate is for
``spotwright.NAMESPACE.svc``, the name of the Service that the webhook has anyway.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from spotwright.cluster.api.requests import ApiFailed
from spotwright.cluster.reading.controller import Controller
from spotwright.cluster.reading.kubernetes import Kubernetes
from spotwright.cluster.reading.port_forward import ForwardRefused, PortForward
from spotwright.errors import InputError

__all__ = ["AUTHORITY_VARIABLE", "CONFIG_MAP", "NAMESPACE", "POD_LABEL", "PORT_NAME", "find_controller", "reading_name"]

NAMESPACE = "spotwright"
"""The namespace of the controller, unless another one is named."""

POD_LABEL = "app.kubernetes.io/name=spotwright"
"""The label of the controller's pods."""

CONFIG_MAP = "spotwright-reading"
"""The ConfigMap with the authority of the controller's certificate, in ``ca.crt``."""

PORT_NAME = "reading"
"""The name of the port in the controller's pod, where it is not :data:`_PORT`."""

AUTHORITY_VARIABLE = "SPOTWRIGHT_CONTROLLER_CA"
"""The environment variable with the file of the authority, for a controller that is named by its URL."""

_PORT = 9444
_CONNECT = 10.0  # seconds


def reading_name(namespace: str) -> str:
    """The name for which the certificate of a controller in this namespace has to be, so that readers accept it."""
    return f"spotwright.{namespace}.svc"


def find_controller(kubernetes: Kubernetes, named: str = "") -> Controller:
    """The controller of a cluster. ``named``: an ``https`` URL, or the namespace of its pod; by default ``spotwright``.

    Raises :class:`InputError` with what to do.
    """
    if "://" in named:
        return _at_address(kubernetes, named)
    namespace = named or NAMESPACE
    context = _context(kubernetes, _authority(kubernetes, namespace))
    pod, port = _pod(kubernetes, namespace)

    def dial() -> socket.socket:
        nonlocal pod, port
        try:
            return _forward(kubernetes, namespace, pod, port)
        except ForwardRefused as error:
            if error.status in {401, 403}:
                raise _not_allowed(kubernetes, namespace, "create pods/portforward") from error
            pod, port = _pod(kubernetes, namespace)  # it may have another pod by now
            try:
                return _forward(kubernetes, namespace, pod, port)
            except ForwardRefused as second:
                raise ConnectionError(str(second)) from second

    place = f"the controller of context {kubernetes.context}"
    return Controller(dial, context, reading_name(namespace), place, kubernetes)


def _forward(kubernetes: Kubernetes, namespace: str, pod: str, port: int) -> socket.socket:
    async def opened() -> socket.socket:
        return await PortForward(kubernetes.client, namespace, pod, port).open()

    return kubernetes.call(opened())


def _at_address(kubernetes: Kubernetes, url: str) -> Controller:
    """The controller at a URL; its certificate is checked against the file of the environment, else as for any site."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port or 443
    except ValueError as error:
        raise InputError(f"--controller {url}: {error}") from error
    if parts.scheme != "https" or not host or parts.path not in {"", "/"}:
        raise InputError(f"--controller {url}: expected https://HOST:PORT, because your login is sent there")
    authority = os.environ.get(AUTHORITY_VARIABLE, "")
    try:
        text = Path(authority).read_text(encoding="ascii") if authority else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{AUTHORITY_VARIABLE}={authority}: cannot be read ({error})") from error

    def dial() -> socket.socket:
        return socket.create_connection((host, port), timeout=_CONNECT)

    return Controller(dial, _context(kubernetes, text), host, f"the controller at {url}", kubernetes)


def _context(kubernetes: Kubernetes, authority: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=authority or None)
    except ssl.SSLError as error:
        raise InputError(f"the authority of the controller's certificate is no certificate ({error.reason})") from error
    kubernetes.present_certificate(context)
    return context


def _authority(kubernetes: Kubernetes, namespace: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}"
    found = _read(kubernetes, namespace, path, f"get configmaps/{CONFIG_MAP}")
    authority = str((found.get("data") or {}).get("ca.crt", ""))
    if not authority:
        raise InputError(f"ConfigMap {CONFIG_MAP} in namespace {namespace} has no ca.crt: start the controller again")
    return authority


def _pod(kubernetes: Kubernetes, namespace: str) -> tuple[str, int]:
    """The name and port of a pod of the controller that is ready."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    items = _read(kubernetes, namespace, path, "list pods", {"labelSelector": POD_LABEL}).get("items") or ()
    for pod in items:
        if _is_ready(pod):
            return str(pod["metadata"]["name"]), _port_of(pod)
    if items:
        raise InputError(
            f"no controller is ready in namespace {namespace} of context {kubernetes.context}: "
            f"kubectl -n {namespace} describe pod {items[0]['metadata']['name']} tells why"
        )
    raise _not_found(kubernetes, namespace)


def _read(
    kubernetes: Kubernetes, namespace: str, path: str, right: str, params: Mapping[str, str] | None = None
) -> dict[str, Any]:
    try:
        return kubernetes.get(path, params)
    except ApiFailed as error:
        if error.status == 403:
            raise _not_allowed(kubernetes, namespace, right) from error
        if error.status == 404:
            raise _not_found(kubernetes, namespace) from error
        raise InputError(f"context {kubernetes.context}: {error}") from error


def _not_found(kubernetes: Kubernetes, namespace: str) -> InputError:
    return InputError(
        f"there is no controller of Spotwright in namespace {namespace} of context {kubernetes.context}: "
        "install it there, or name its namespace or URL with --controller"
    )


def _not_allowed(kubernetes: Kubernetes, namespace: str, right: str) -> InputError:
    return InputError(
        f"context {kubernetes.context}: you may not {right} in namespace {namespace}, where the controller is: "
        "ask for the Role spotwright-reader there, or name the controller's URL with --controller"
    )


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")


def _port_of(pod: Mapping[str, Any]) -> int:
    ports = [port for container in pod["spec"]["containers"] for port in container.get("ports") or ()]
    return next((int(port["containerPort"]) for port in ports if port.get("name") == PORT_NAME), _PORT)


_Dial = Callable[[], socket.socket]
