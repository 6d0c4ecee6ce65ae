"""The settings of a cluster, with their defaults; the environment overrides them.

Several clusters can run side by side: each needs a separate name and port. Their addresses may repeat, because every cluster
has separate network namespaces.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from testbed.errors import TestbedError

__all__ = ["CLOUDS", "CONTROLLERS", "NETWORK", "ON_REQUEST", "Network", "Settings"]

CLOUDS = ("aks", "gke", "eks")
CONTROLLERS = ("argo", "jobset", "trainer", "kueue")
"""The controllers that run by default."""
ON_REQUEST = ("kwok", "karpenter", "katib")
"""Those that only who asks for them gets: KWOK pretends nodes, Karpenter orders such nodes for pods that wait; and Katib."""

_MAX_NAME = 9  # letters: the kernel allows 15 in the name of an interface, and "-n12" is added to this one
_MAX_NODES = 50
_MAX_PRETENDED = 5000
_PRETENDED_SILENCE = 600  # seconds; a busy machine is late with the heartbeats of hundreds of nodes


@dataclass(frozen=True, slots=True)
class Network:
    """The addresses inside a cluster: nodes, pods and services."""

    control_plane: str = "10.89.0.1"
    services: str = "10.87.0.0/16"
    kubernetes_service: str = "10.87.0.1"
    all_pods: str = "10.88.0.0/16"
    metadata: str = "169.254.169.254"

    def node(self, number: int) -> str:
        """The address of a node."""
        return f"10.89.0.{10 + number}"

    def pods(self, number: int) -> str:
        """The addresses of a node's pods."""
        return f"10.88.{number}.0/24"


NETWORK = Network()


@dataclass(frozen=True, slots=True)
class Settings:
    """One cluster of the test bed."""

    name: str = "swbed"
    port: int = 16443  # on 127.0.0.1, for clients outside the cluster's network
    nodes: int = 3  # real ones; 0 is a control plane alone
    pretended: int = 0  # nodes that KWOK pretends
    cloud: str = "aks"
    controllers: tuple[str, ...] = CONTROLLERS
    monitor_grace: int = 12  # seconds without a heartbeat until a node is NotReady; Kubernetes' default is 50
    lease: int = 8  # seconds; a kubelet renews its lease at a quarter of it; Kubernetes' default is 40
    toleration: int = 300  # seconds that pods stay on a node which does not report; 300 is Kubernetes' default
    shutdown_grace: int = 30  # seconds that a kubelet takes for a graceful shutdown, as on GKE
    shutdown_grace_critical: int = 15  # seconds of these for critical pods
    proxy: bool = False  # kube-proxy on each node: needed for Services other than "kubernetes"
    state: Path = Path("/var/tmp")  # noqa: S108  # the folder below it is made for root alone
    cache: Path = Path("~/.cache/spotwright/testbed")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """The settings that ``TESTBED_*`` variables name, and the defaults of the others."""
        default = cls()

        def value(name: str, fallback: object) -> str:
            return environment.get(f"TESTBED_{name}") or str(fallback)

        settings = cls(
            name=value("NAME", default.name),
            port=_whole("PORT", value("PORT", default.port), 1, 65535),
            nodes=_whole("NODES", value("NODES", default.nodes), 0, _MAX_NODES),
            pretended=_whole("PRETENDED", value("PRETENDED", default.pretended), 0, _MAX_PRETENDED),
            cloud=value("CLOUD", default.cloud).lower(),
            controllers=_listed(value("CONTROLLERS", ",".join(default.controllers))),
            monitor_grace=_whole("MONITOR_GRACE", value("MONITOR_GRACE", default.monitor_grace), 2, 3600),
            lease=_whole("LEASE", value("LEASE", default.lease), 1, 3600),
            toleration=_whole("TOLERATION", value("TOLERATION", default.toleration), 0, 3600),
            shutdown_grace=_whole("SHUTDOWN_GRACE", value("SHUTDOWN_GRACE", default.shutdown_grace), 0, 600),
            shutdown_grace_critical=_whole(
                "SHUTDOWN_GRACE_CRITICAL", value("SHUTDOWN_GRACE_CRITICAL", default.shutdown_grace_critical), 0, 600
            ),
            proxy=value("PROXY", "0") not in ("0", "false", "no"),
            state=Path(value("STATE", default.state)),
            cache=_cache(environment),
        )
        settings._check()
        return settings

    def _check(self) -> None:
        if not re.fullmatch(rf"[a-z][a-z0-9]{{0,{_MAX_NAME - 1}}}", self.name):
            raise TestbedError(f"TESTBED_NAME={self.name!r}: use up to {_MAX_NAME} letters and digits, as in swbed")
        if self.cloud not in CLOUDS:
            raise TestbedError(f"TESTBED_CLOUD={self.cloud!r}: use one of {', '.join(CLOUDS)}")
        unknown = set(self.controllers) - {*CONTROLLERS, *ON_REQUEST}
        if unknown:
            listed = ", ".join((*CONTROLLERS, *ON_REQUEST, "none"))
            raise TestbedError(f"TESTBED_CONTROLLERS: there is no {', '.join(sorted(unknown))}; use {listed}")
        if self.pretended and "kwok" not in self.controllers:
            raise TestbedError("TESTBED_PRETENDED: KWOK pretends nodes; add kwok to TESTBED_CONTROLLERS")
        if "karpenter" in self.controllers and "kwok" not in self.controllers:
            raise TestbedError("TESTBED_CONTROLLERS: KWOK pretends the nodes that Karpenter orders; add kwok")
        if self.shutdown_grace_critical > self.shutdown_grace:
            raise TestbedError("TESTBED_SHUTDOWN_GRACE_CRITICAL is part of TESTBED_SHUTDOWN_GRACE and cannot exceed it")

    def environment(self) -> dict[str, str]:
        """The ``TESTBED_*`` variables that give another process these settings."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"controllers": ",".join(self.controllers) or "none", "proxy": int(self.proxy)}
        return {f"TESTBED_{name.upper()}": str(value) for name, value in values.items()}

    @property
    def silence(self) -> int:
        """Seconds without a heartbeat until a node is NotReady. Those that KWOK pretends report every 50 s."""
        return max(self.monitor_grace, _PRETENDED_SILENCE) if "kwok" in self.controllers else self.monitor_grace

    @property
    def folder(self) -> Path:
        """Everything that the cluster writes; :mod:`testbed.machine.leftovers` checks that it is gone afterwards."""
        return self.state / f"spotwright-{self.name}"

    @property
    def kubeconfig(self) -> Path:
        """For clients on this machine."""
        return self.folder / "kubeconfig"

    @property
    def inside_kubeconfig(self) -> Path:
        """For processes inside the control plane's network namespace."""
        return self.user_kubeconfig("inside")

    @property
    def audit(self) -> Path:
        """The API requests of pods' accounts, one event of JSON a line."""
        return self.folder / "log" / "audit.jsonl"

    def user_kubeconfig(self, user: str) -> Path:
        """The folder of a component with a separate user: ``controllers``, ``scheduler``, ``proxy``, or a node such as ``n1``."""
        return self.folder / f"{user}.kubeconfig"

    @property
    def namespace(self) -> str:
        """The network namespace of the control plane."""
        return self.name

    def node_namespace(self, number: int) -> str:
        """The network namespace of a node, which is also the name of its interface on the bridge."""
        return f"{self.name}-n{number}"

    def node_folder(self, number: int) -> Path:
        """A node's log."""
        return self.folder / f"n{number}"

    @property
    def numbers(self) -> range:
        """The numbers of the nodes, from 1."""
        return range(1, self.nodes + 1)


def _cache(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(environment.get("TESTBED_CACHE") or f"{base}/spotwright/testbed").expanduser().absolute()


def _whole(name: str, text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise TestbedError(f"TESTBED_{name}={text!r}: use a whole number from {least} to {most}")
    return int(text)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in (part.strip() for part in text.split(",")) if part not in ("", "none"))
