"""What a controller is started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from spotwright.cluster.autoscaler_words import DEFAULT_LIMIT as ORDER_LIMIT
from spotwright.cluster.log_client import reading_name
from spotwright.cluster.log_keeper import DEFAULT_LIMIT, NAMESPACE_LIMIT

__all__ = ["CertificateFiles", "Settings"]


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A serving certificate that somebody else makes and renews, with its key and the authority that signed it. All are PEM."""

    certificate: Path
    key: Path
    authority: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one replica.

    ``state`` is the state folder, which the replicas of one machine share. ``kubeconfig`` and ``context`` say how the cluster
    is reached, as for :func:`~spotwright.cluster.api_client.find_cluster`. ``home`` is the controller's own namespace, with
    the ConfigMap of the cluster and the Lease. ``where`` is how the API server reaches the webhook: the namespace and name of
    a Service, or an ``https`` address. ``client_authority`` is a file with the authority (PEM) of the certificates with which
    API servers log in to the webhook, where they were configured to: reviews without one are refused then, and probes are
    answered. ``name`` is that of the registration and of the Lease. ``refusal_image`` is a small image with a shell, and
    refused pods run it as ``refusal_user``; 0: as their own user, or that of the image.
    ``argo_executor_images`` are the images of Argo's own containers; none: all whose repository is called ``argoexec``.
    ``read_port`` is where people read runs, with the webhook's certificate; None: nowhere. ``metrics_port`` serves metrics;
    None: nobody gets them. Unless ``metrics_are_asked`` for, a port that is taken is no error. ``log_limit`` is in bytes, for
    the log of one attempt; 0 keeps no logs. ``namespace_log_limit`` is for all logs of a namespace. ``logs`` is the address of
    the object store that has the logs; empty: the state folder has them. ``records_in_api``: runs are recorded as objects of the
    Kubernetes API, not in the state folder.
    ``max_node_provision_time`` is in seconds: after it a node that an autoscaler has ordered counts as one that never comes.
    ``namespaces`` are those that are served, each watched by streams of its own; none: all that are labelled
    ``spotwright.dev/enabled=true``, watched by streams of the whole cluster. ``registers``: the authority is written into the
    registration. ``makes_library``: the ConfigMap with the checkpoint library is made in every
    served namespace; with a ``claim_size``, such as ``20Gi``, so are the claims that policies name, of the storage class
    ``claim_class``, or the cluster's default.
    """

    state: Path
    kubeconfig: str | None = None
    context: str | None = None
    home: str = "spotwright"
    host: str = "127.0.0.1"
    port: int = 9443
    where: tuple[str, str] | str = ("spotwright", "spotwright")
    files: CertificateFiles | None = None
    client_authority: Path | None = None
    name: str = "spotwright"
    refusal_image: str = "busybox:1"
    refusal_user: int = 65532
    argo_executor_images: tuple[str, ...] = ()
    read_host: str = "127.0.0.1"
    read_port: int | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    metrics_are_asked: bool = True
    log_limit: int = DEFAULT_LIMIT
    namespace_log_limit: int = NAMESPACE_LIMIT
    logs: str = ""
    max_node_provision_time: float = ORDER_LIMIT
    records_in_api: bool = False
    has_webhook: bool = True
    watches: bool = True
    namespaces: tuple[str, ...] = ()
    registers: bool = True
    makes_library: bool = False
    claim_size: str = ""
    claim_class: str = ""
    claim_access_mode: str = "ReadWriteMany"

    @property
    def is_stateless(self) -> bool:
        """Whether nothing that other replicas need, or a later one, lies in the state folder: each has one of its own."""
        return self.records_in_api and bool(self.logs)

    @property
    def release(self) -> str:
        """What tells this controller from others of the cluster: the value of a label."""
        return f"{self.home}.{self.name}"[:63].strip("-.")

    @property
    def served_names(self) -> list[str]:
        """The names and addresses that the serving certificate is for, first that by which API servers reach the webhook."""
        reading = [] if self.read_port is None else [reading_name(self.home)]
        if isinstance(self.where, str):
            rest = self.where.partition("://")[2].partition("/")[0]
            host = rest[1:].partition("]")[0] if rest.startswith("[") else rest.partition(":")[0]
            return [host, *reading]
        namespace, service = self.where
        names = [f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local"]
        return [*names, *(name for name in reading if name not in names)]

    def to_json(self) -> bytes:
        """The settings in one line, for a process that this one starts."""
        return msgspec.json.encode(self, enc_hook=str)

    @classmethod
    def from_json(cls, text: bytes) -> Settings:
        """The settings that :meth:`to_json` has written. Raises :class:`msgspec.DecodeError`."""
        return msgspec.json.decode(text, type=cls, dec_hook=_path)


def _path(kind: type, text: Any) -> Path:
    if kind is not Path:
        raise TypeError(f"settings have no field of type {kind}")
    return Path(text)
