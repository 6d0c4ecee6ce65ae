"""On the test bed: the commands and the manifest of the page about the controller install it, and take it out again.

The bed pulls no images and has no storage class, so the container gets our code from this machine, and the claim a volume.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from testbed.settings import Settings
from tests.cluster.live.controllers import configuration
from tests.cluster.live.kube import Kube, Object, job, pod_spec
from tests.cluster.reading import on_the_bed
from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.cluster

PAGE = ROOT / "docs" / "how-to" / "cluster" / "run-the-controller.md"
HOME = "spotwright"
STARTS = 240.0  # seconds, on a busy machine
CLUSTER_WIDE = ("clusterrole", "clusterrolebinding", "mutatingwebhookconfiguration")


def the_manifest() -> list[Object]:
    """The objects of the page."""
    (text,) = (block.text for block in blocks(PAGE) if block.file == "controller.yaml")
    return [dict(one) for one in yaml.safe_load_all(text)]


def on_this_bed(objects: list[Object]) -> list[Object]:
    """The objects with our code in the place of the image."""
    deployment = next(one for one in objects if one["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    ours = on_the_bed.with_our_code({"command": on_the_bed.python("-m", "spotwright", *container.pop("args"))})
    (code,) = ours["containers"]
    mounts = [*container.pop("volumeMounts"), *code.pop("volumeMounts")]
    spec["containers"] = [{**container, **code, "name": container["name"], "volumeMounts": mounts}]
    spec["volumes"] += ours["volumes"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
    return objects


def a_volume(folder: Path) -> Object:
    spec = {"capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": str(folder)}}
    claim = {"namespace": HOME, "name": "spotwright-state"}
    return {**on_the_bed.named("PersistentVolume", "v1", "spotwright-state", ""), "spec": {**spec, "claimRef": claim}}


def rights() -> str:
    """What ``spotwright controller --print-rbac`` prints."""
    command = [sys.executable, "-m", "spotwright", "controller", "--state", "unused", "--print-rbac"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def home(kube: Kube, bed: Settings, tmp_path: Path) -> Iterator[str]:
    """The namespace of the page, with the volume for its claim; nothing is left of it afterwards."""
    kube.run("delete", "namespace", HOME, "--ignore-not-found")
    (tmp_path / "state").mkdir()
    kube.apply(a_volume(tmp_path / "state"))
    try:
        yield kube.run("create", "namespace", HOME)
    finally:
        for kind in CLUSTER_WIDE:
            name = HOME if kind == "mutatingwebhookconfiguration" else "spotwright-controller"
            kube.run("delete", kind, name, "--ignore-not-found")
        kube.run("delete", "rolebinding", "spotwright-controller", "-n", "kube-system", "--ignore-not-found")
        autoscalers = "spotwright-controller-autoscalers"
        kube.run("delete", "role,rolebinding", autoscalers, "-n", "kube-system", "--ignore-not-found")
        kube.run("delete", "namespace", HOME, "--ignore-not-found")
        kube.run("delete", "persistentvolume", "spotwright-state", "--ignore-not-found")


def test_the_page_s_commands_install_a_controller_and_take_it_out(kube: Kube, home: str, namespace: str) -> None:
    kube.run("apply", "-f", "-", text=rights())
    kube.run("-n", HOME, "create", "configmap", "spotwright", f"--from-literal=spotwright.yaml={configuration('10m')}")
    made = on_this_bed(the_manifest())
    kube.run("apply", "-f", "-", text=yaml.safe_dump_all(made))
    kube.run("-n", HOME, "rollout", "status", "deployment/spotwright", f"--timeout={STARTS:.0f}s")
    kube.wait(lambda: kube.get("mutatingwebhookconfiguration", HOME), "it is registered", STARTS)
    kube.run("label", "namespace", namespace, "spotwright.dev/enabled=true")
    work = job("work", namespace, pod_spec(kube.container("true")))
    kube.run("apply", "-f", "-", text=json.dumps(work))
    placed = kube.get("job", "work", namespace)
    assert placed is not None
    assert "spotwright.dev/admitted" in placed["metadata"]["annotations"]

    again = kube.run("apply", "-f", "-", text=yaml.safe_dump_all(made))
    assert again.count("unchanged") == len(made), again

    kube.run("label", "namespace", namespace, "spotwright.dev/enabled-")
    kube.run("-n", HOME, "delete", "deployment", "spotwright")
    kube.run("delete", "mutatingwebhookconfiguration", HOME)  # what `spotwright controller --unregister` does
    kube.run("delete", "-f", "-", text=rights())
    kube.run("delete", "namespace", HOME)
    left = {kind: kube.run("get", kind, "-o", "name") for kind in CLUSTER_WIDE}
    assert {kind: text for kind, text in left.items() if "spotwright" in text} == {}
    assert kube.get("job", "work", namespace) is not None
