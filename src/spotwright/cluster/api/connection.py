"""Finds the cluster and logs in: a service account inside a pod, or the context of a kubeconfig.

lightkube reads the configuration, checks the server's certificate and sends tokens. It knows no command of the version
``client.authentication.k8s.io/v1``, whose answer differs from ``v1beta1`` in its name alone, so those are asked as ``v1beta1``. A
command that insists on ``v1`` gets its request in ``KUBERNETES_EXEC_INFO``, as from kubectl. No token is ever part of a message.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx2
import yaml
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import DEFAULT_KUBECONFIG, KubeConfig, SingleConfig
from lightkube.config.models import NameValue, UserExec
from lightkube.core.exceptions import ConfigError as WrongConfiguration

from spotwright.errors import InputError

__all__ = ["connect", "find_cluster"]

_CONNECT = 10.0  # seconds to reach the server
_ANSWER = 60.0  # seconds without a byte of an answer; the API server gives up after 60 itself
_V1, _V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"


def find_cluster(context: str | None = None, *, kubeconfig: str | None = None) -> SingleConfig:
    """The cluster of a context of the kubeconfig; without a context the pod's own cluster, else the current context.

    ``kubeconfig`` is a path; the default is ``$KUBECONFIG``, then ``~/.kube/config``. Raises :class:`InputError` that names the
    file, never what is in it.
    """
    if context is None and kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        try:
            return _login(KubeConfig.from_service_account().get())
        except (WrongConfiguration, KeyError, OSError):
            pass  # no service account is mounted: a kubeconfig may be there
    path = kubeconfig or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or DEFAULT_KUBECONFIG
    where = Path(path).expanduser()
    if not where.is_file():
        raise InputError(
            f"{where}: there is no such kubeconfig; set KUBECONFIG, or run inside a pod with a service account"
        )
    try:
        return _login(KubeConfig.from_file(where).get(context))
    except WrongConfiguration as error:
        raise InputError(f"{where}: {error}") from error
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        OSError,
        yaml.YAMLError,
    ) as error:  # the error may quote a secret
        raise InputError(f"{where}: is no kubeconfig that can be read ({type(error).__name__})") from None


def connect(cluster: SingleConfig, *, many_streams: bool = False) -> httpx2.AsyncClient:
    """A client with the cluster's address, certificates and authentication. Raises :class:`InputError` for wrong ones.

    ``many_streams``: the client opens as many connections at once as are asked for, where the library's limit is 100.
    """
    parameters = ConnectionParams(timeout=httpx2.Timeout(_ANSWER, connect=_CONNECT))
    try:
        if many_streams:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
            return httpx2.AsyncClient(**parameters.httpx_params(cluster), limits=limits)
        return AsyncClient(cluster, parameters)
    except (WrongConfiguration, OSError, ValueError) as error:
        raise InputError(
            f"context {cluster.context_name}: cannot log in to {cluster.cluster.server}: {error}"
        ) from error


def _login(cluster: SingleConfig | None) -> SingleConfig:
    if cluster is None:
        raise WrongConfiguration("no current context is set")
    if cluster.user is not None and cluster.user.exec is not None and cluster.user.exec.apiVersion == _V1:
        cluster.user.exec = _as_v1beta1(cluster.user.exec)
    return cluster


def _as_v1beta1(command: UserExec) -> UserExec:
    request = {"apiVersion": _V1, "kind": "ExecCredential", "spec": {"interactive": False}}
    variables = [*(command.env or ()), NameValue("KUBERNETES_EXEC_INFO", json.dumps(request))]
    return UserExec(_V1BETA1, command.command, variables, command.args, command.installHint)
