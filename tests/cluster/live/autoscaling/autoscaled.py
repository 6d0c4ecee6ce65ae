"""A situation with its autoscaler: groups without machines, the times of the tests, and the ConfigMap of its expander."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from tests.cluster.live.autoscaling.autoscaler import STATUS_MAP, Autoscaler, Times
from tests.cluster.live.autoscaling.expanders import EXPANDER_MAP
from tests.cluster.live.autoscaling.machines import Cloud
from tests.cluster.live.autoscaling.recurring_cases import Situation
from tests.cluster.live.autoscaling.requests import Requests
from tests.cluster.live.kube import Kube

__all__ = ["LIMIT", "TIMES", "Autoscaled", "autoscaled"]

TIMES = Times(scan=2.0, fresh=1.5, fresh_gpu=6.0, backoff=60.0, provision=20.0, unneeded=15.0, repeat=60.0)
"""A fifth of the real ones, and less where the length does not matter."""
LIMIT = ("--max-node-provision-time", f"{TIMES.provision:g}s")
"""The controller's option for the same limit."""


@dataclass
class Autoscaled:
    """A cloud and the autoscaler that orders its machines."""

    kube: Kube
    api: Requests
    cloud: Cloud
    times: Times
    expander: str
    autoscaler: Autoscaler

    def restart(self) -> None:
        """Stop the autoscaler, and start another one, which knows nothing of its orders."""
        self.autoscaler.end()
        self.autoscaler = Autoscaler(self.kube, self.api, self.cloud, self.times, expander=self.expander)


@contextmanager
def autoscaled(
    kube: Kube, api: Requests, folder: Path, situation: Situation, *, provision: float = TIMES.provision
) -> Iterator[Autoscaled]:
    """The groups of a situation, empty, with an autoscaler that has just begun. ``provision``: when it gives an order up."""
    _set_priorities(kube, folder, situation)
    cloud = Cloud(api, situation.groups(), boot=situation.boot, faults=situation.faults)
    times = replace(TIMES, provision=provision)
    autoscaler = Autoscaler(kube, api, cloud, times, expander=situation.expander)
    made = Autoscaled(kube, api, cloud, times, situation.expander, autoscaler)
    try:
        yield made
    finally:
        made.autoscaler.end()
        cloud.end()
        kube.run("delete", "configmap", STATUS_MAP, "-n", "kube-system", "--ignore-not-found")


def _set_priorities(kube: Kube, folder: Path, situation: Situation) -> None:
    """The ConfigMap of the expander ``priority``, as ``explain`` prints it, or none."""
    kube.run("delete", "configmap", EXPANDER_MAP, "-n", "kube-system", "--ignore-not-found")
    if situation.expander != "priority":
        return
    if situation.priorities is not None:
        meta = {"name": EXPANDER_MAP, "namespace": "kube-system"}
        data = {"priorities": situation.priorities}
        kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
        return
    kube.apply(_printed_map(folder, situation))


def _printed_map(folder: Path, situation: Situation) -> dict[str, object]:
    """The output of ``explain`` for the work of the situation."""
    config, work = folder / "spotwright.yaml", folder / "work.yaml"
    config.write_text(situation.case.config, encoding="utf-8")
    work.write_text(yaml.safe_dump_all(situation.case.manifests), encoding="utf-8")
    command = [sys.executable, "-m", "spotwright", "explain", str(work), "--config", str(config)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, object] = yaml.safe_load(textwrap.dedent(printed.partition("for the cluster autoscaler:\n")[2]))
    return found
