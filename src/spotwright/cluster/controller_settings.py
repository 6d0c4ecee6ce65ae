"""What a controller is started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spotwright.cluster.autoscaler_words import DEFAULT_LIMIT as ORDER_LIMIT
from spotwright.cluster.log_keeper import DEFAULT_LIMIT
from spotwright.cluster.run_api_client import reading_name

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

    ``state`` is the state folder, which the replicas of one machine share. ``home`` is the controller's own namespace, with
    the ConfigMap of the cluster and the Lease. ``where`` is how the API server reaches the webhook: the namespace and name of
    a Service, or an ``https`` address. ``name`` is that of the registration and of the Lease. ``refusal_image`` is a small
    image with a shell. ``read_port`` is where people read runs, with the webhook's certificate; None: nowhere.
    ``metrics_port`` serves metrics; None: nobody gets them. Unless ``metrics_are_asked`` for, a port that is taken is no error.
    ``log_limit`` is in bytes, for the log of one attempt; 0 keeps no logs. ``max_node_provision_time`` is in seconds: after it a
    node that an autoscaler has ordered counts as one that never comes.
    """

    state: Path
    home: str = "spotwright"
    host: str = "127.0.0.1"
    port: int = 9443
    where: tuple[str, str] | str = ("spotwright", "spotwright")
    files: CertificateFiles | None = None
    name: str = "spotwright"
    refusal_image: str = "busybox:1"
    read_host: str = "127.0.0.1"
    read_port: int | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    metrics_are_asked: bool = True
    log_limit: int = DEFAULT_LIMIT
    max_node_provision_time: float = ORDER_LIMIT
    has_webhook: bool = True
    watches: bool = True

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
