"""The whole controller in a pod of the test bed, with the rights that it prints and nothing more, behind a Service.

The nodes of the bed see the folders of this machine, so the pod takes the sources and the packages from there; on a cluster
elsewhere they would be in an image. People reach it as they do anywhere: by a port-forward through the API server.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.building.images import BUSYBOX
from tests.cluster.live.kube import Kube
from tests.cluster.reading import on_the_bed
from tests.cluster.reading.served import Printed, spotwright

from spotwright.cluster.install import permissions

__all__ = ["ControllerPod", "controller_pod"]

_STARTS = 240.0  # seconds, on a busy machine
_LABELS = {"app.kubernetes.io/name": "spotwright"}


@dataclass(frozen=True)
class ControllerPod:
    """A controller that runs in the pod ``controller`` of the namespace ``home``."""

    kube: Kube
    home: str

    def log(self) -> str:
        """What it has written so far."""
        return self.kube.run("logs", "controller", "-n", self.home)

    def inside(self, *words: str) -> str:
        """What a command of ours prints in the pod, beside the state folder."""
        command = ["python3", "-m", "spotwright", *words, "--state", "/state"]
        return self.kube.run("exec", "-n", self.home, "controller", "--", *command)

    def read(self, *words: str, kubeconfig: Path | None = None) -> Printed:
        """What a command prints to a person, as an admin unless a kubeconfig is given."""
        login = str(kubeconfig or self.kube.kubeconfig)
        return spotwright(*words, "--cluster", "--kubeconfig", login, "--controller", self.home)


@contextmanager
def controller_pod(kube: Kube, config: str, *options: str) -> Iterator[ControllerPod]:
    """A controller with this configuration for all labelled namespaces, ready to place, record and be read."""
    home = f"controller-{uuid.uuid4().hex[:6]}"
    made = ControllerPod(kube, home)
    rights = permissions(home, home, home)
    try:
        kube.apply(on_the_bed.named("Namespace", "v1", home, ""), *rights)
        text = {**on_the_bed.named("ConfigMap", "v1", "spotwright", home), "data": {"spotwright.yaml": config}}
        kube.apply(text, _service(home))
        kube.apply(_pod(home, options))
        try:
            kube.wait(lambda: on_the_bed.is_ready(kube, home), "the controller is ready", _STARTS)
            kube.wait(lambda: " ready\n" in made.log() or None, "the webhook is registered", _STARTS)
        except AssertionError as error:
            raise AssertionError(kube.run("logs", "controller", "-n", home, "--ignore-errors")) from error
        yield made
    finally:
        kube.run("delete", "mutatingwebhookconfiguration", home, "--ignore-not-found")
        kube.run("delete", "namespace", home, "--wait=false", "--ignore-not-found")
        kube.run("delete", "clusterrole,clusterrolebinding", home, "--ignore-not-found")
        kube.run("delete", "rolebinding", home, "-n", "kube-system", "--ignore-not-found")
        kube.run("delete", "role,rolebinding", f"{home}-autoscalers", "-n", "kube-system", "--ignore-not-found")


def _service(home: str) -> dict[str, Any]:
    ports = [{"port": 443, "targetPort": 9443}]
    return {**on_the_bed.named("Service", "v1", "spotwright", home), "spec": {"selector": _LABELS, "ports": ports}}


def _pod(home: str, options: tuple[str, ...]) -> dict[str, Any]:
    command = ["-m", "spotwright", "controller", "--state", "/state", "--name", home]
    command += ["--listen", "0.0.0.0:9443", "--read-listen", "0.0.0.0:9444", "--refusal-image", BUSYBOX, "-v", *options]
    probe = {"httpGet": {"scheme": "HTTPS", "path": "/readyz", "port": 9443}, "periodSeconds": 1, "timeoutSeconds": 5}
    ports = [{"name": "webhook", "containerPort": 9443}, {"name": "reading", "containerPort": 9444}]
    more = {"name": "controller", "ports": ports, "readinessProbe": probe}
    spec = {
        "serviceAccountName": home,
        "nodeSelector": {"kubernetes.io/hostname": "n1"},
        "terminationGracePeriodSeconds": 5,
        "tolerations": [{"operator": "Exists"}],
        **on_the_bed.with_our_code({**more, "command": on_the_bed.python(*command)}, state={"emptyDir": {}}),
    }
    pod = on_the_bed.named("Pod", "v1", "controller", home)
    return {**pod, "metadata": {**pod["metadata"], "labels": _LABELS}, "spec": spec}
