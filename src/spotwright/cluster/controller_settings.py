"""The settings of the two processes of a controller."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from spotwright.cluster.autoscaler_status import DEFAULT_LIMIT as ORDER_LIMIT
from spotwright.cluster.log_client import reading_name
from spotwright.cluster.log_keeper import DEFAULT_LIMIT, NAMESPACE_LIMIT

__all__ = ["CertificateFiles", "RecorderSettings", "Settings", "WebhookSettings"]


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """An externally made and renewed serving certificate, with its key and the authority that signed it. All are PEM."""

    certificate: Path
    key: Path
    authority: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of both processes of a controller.

    ``kubeconfig`` and ``context`` select the cluster, as for :func:`~spotwright.cluster.api_client.find_cluster`. ``home`` is
    the controller's own namespace, with the ConfigMap of the cluster and the Lease. ``name`` is the name of the registration
    and of the Lease. ``namespaces`` are the served ones, each with separate watches; empty: all labelled
    ``spotwright.dev/enabled=true``, with watches of the whole cluster. ``metrics_port`` serves metrics and probes; unless
    ``metrics_are_asked`` for, a port in use is not an error. ``files`` are an externally made certificate; None: the process
    signs its own, by an authority in the folder ``authority_folder``.
    """

    authority_folder: Path
    kubeconfig: str | None = None
    context: str | None = None
    home: str = "spotwright"
    name: str = "spotwright"
    namespaces: tuple[str, ...] = ()
    files: CertificateFiles | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 9445
    metrics_are_asked: bool = True

    @property
    def release(self) -> str:
        """The label value that identifies this controller among the cluster's controllers."""
        return f"{self.home}.{self.name}"[:63].strip("-.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings(Settings):
    """Settings of a process that answers reviews.

    ``where`` is the webhook's address for API servers: the namespace and name of a Service, or an ``https`` address.
    ``client_authority`` is a file with the CA (PEM) of API servers' client certificates, if they are configured: then reviews
    without one are refused, and probes are answered. ``refusal_image`` is a small image with a shell, and refused pods run it
    as ``refusal_user``; 0: as their own user, or the image's. ``argo_executor_images`` are the images of Argo's own containers;
    if empty, all whose repository is called ``argoexec``. ``registers``: the CA is written into the registration.
    ``makes_library``: the ConfigMap with the checkpoint library is created in every served namespace; with a ``claim_size``,
    such as ``20Gi``, the claims that policies name are too, of the storage class ``claim_class`` or the cluster's default.
    """

    host: str = "127.0.0.1"
    port: int = 9443
    where: tuple[str, str] | str = ("spotwright", "spotwright")
    client_authority: Path | None = None
    refusal_image: str = "busybox:1"
    refusal_user: int = 65532
    argo_executor_images: tuple[str, ...] = ()
    registers: bool = True
    makes_library: bool = False
    claim_size: str = ""
    claim_class: str = ""
    claim_access_mode: str = "ReadWriteMany"

    @property
    def served_names(self) -> list[str]:
        """The names and addresses of the certificate; API servers use the first one."""
        if isinstance(self.where, str):
            rest = self.where.partition("://")[2].partition("/")[0]
            return [rest[1:].partition("]")[0] if rest.startswith("[") else rest.partition(":")[0]]
        namespace, service = self.where
        return [f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings(Settings):
    """Settings of a process that records, stores logs and evicts pods.

    ``read_port`` is where people read logs; None: nowhere. ``log_limit`` is in bytes, for the log of one attempt; 0 stores no
    logs. ``namespace_log_limit`` is for all logs of a namespace. ``logs`` is the address of the log store; empty: the end of
    each log is in its record. ``max_node_provision_time`` is in seconds: after it, a node that an autoscaler ordered counts as
    one that will never come. Members of ``repair_group`` may delete archives of runs; empty: no one may.
    """

    read_host: str = "127.0.0.1"
    read_port: int | None = None
    log_limit: int = DEFAULT_LIMIT
    namespace_log_limit: int = NAMESPACE_LIMIT
    logs: str = ""
    max_node_provision_time: float = ORDER_LIMIT
    repair_group: str = "spotwright:repair"

    @property
    def served_names(self) -> list[str]:
        """The names and addresses of the certificate; readers check the first one."""
        own = [] if _is_any(self.read_host) else [self.read_host]
        return [reading_name(self.home), *own]


def _is_any(host: str) -> bool:
    """Whether a host means all addresses of a machine, so that a certificate cannot name it."""
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        return False
