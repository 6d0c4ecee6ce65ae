"""The controller in pods of the test bed, as the chart installs it for all labelled namespaces, with the chart's rights alone.

The nodes of the bed see the folders of this machine, so the pods take the sources and the packages from there and no image has to
be made; logs go with the pod that keeps them. People reach it as they do anywhere: by a port-forward through the API server.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from testbed.building.images import BUSYBOX
from tests.cluster.chart.rendered import PROCESSES, Helm, Object, find_helm
from tests.cluster.live.kube import Kube
from tests.cluster.live.recorded import install_kinds
from tests.cluster.reading import on_the_bed
from tests.cluster.reading.served import Printed, spotwright

__all__ = ["ControllerPod", "controller_pod"]

_STARTS = 240.0  # seconds, on a busy machine
_LOGS = "file:///tmp/logs"  # of the pod


@dataclass(frozen=True)
class ControllerPod:
    """A controller whose Deployments are in the namespace ``home``."""

    kube: Kube
    home: str

    def log(self) -> str:
        """The output of its processes so far."""
        return "".join(self.kube.run("logs", f"deployment/spotwright-{each}", "-n", self.home) for each in PROCESSES)

    def read(self, *words: str, kubeconfig: Path | None = None) -> Printed:
        """The output of a command for people, as an admin unless a kubeconfig is given."""
        login = str(kubeconfig or self.kube.kubeconfig)
        return spotwright(*words, "--cluster", "--kubeconfig", login, "--controller", self.home)


@contextmanager
def controller_pod(kube: Kube, config: str) -> Iterator[ControllerPod]:
    """A controller with this configuration for all labelled namespaces, ready to place, record and be read."""
    kube.awaited("helm")
    program = find_helm()
    if program is None:
        pytest.skip("helm is not installed")
    home = f"controller-{uuid.uuid4().hex[:6]}"
    values = {
        "clusterWide": True,
        "config": config,
        "refusal": {"image": BUSYBOX},
        "nodeSelector": {"kubernetes.io/hostname": "n1"},
        "replicas": 1,
        "controller": {"verbose": True},
    }
    install_kinds(kube)
    objects = [with_our_code(each) for each in Helm(program).render(values, home)]
    made = ControllerPod(kube, home)
    try:
        kube.apply(on_the_bed.named("Namespace", "v1", home, ""))
        kube.apply(*objects)
        try:
            for process in PROCESSES:
                rollout = ["rollout", "status", f"deployment/spotwright-{process}"]
                kube.run(*rollout, "-n", home, f"--timeout={_STARTS:.0f}s")
            kube.wait(lambda: " ready\n" in made.log() or None, "the webhook is registered", _STARTS)
        except AssertionError as error:
            raise AssertionError(made.log()) from error
        yield made
    finally:
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        kube.run("delete", "--ignore-not-found", "--wait=false", "-f", "-", text=json.dumps(items))
        kube.run("delete", "namespace", home, "--wait=false", "--ignore-not-found")


def with_our_code(made: Object) -> Object:
    """The object; a Deployment with this machine's code in the place of the image, and whole logs in a folder of the recorder."""
    if made["kind"] != "Deployment":
        return made
    spec: dict[str, Any] = made["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    words = [*container.pop("args"), *(["--logs", _LOGS] if container["name"] == "recorder" else [])]
    ours = on_the_bed.with_our_code({"command": on_the_bed.python("-m", "spotwright", *words)})
    (code,) = ours["containers"]
    lists = {name: [*container[name], *code.pop(name)] for name in ("env", "volumeMounts")}
    spec["containers"] = [{**container, **code, **lists}]
    spec["volumes"] = [*spec["volumes"], *ours["volumes"]]
    return made
