"""``pools import`` and ``pools check`` with ``--cluster``: pools that are read off a real cluster fit the nodes there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.cluster.live.kube import Kube

pytestmark = pytest.mark.cluster

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {topology.kubernetes.io/zone: ZONE}
      tolerations: [{operator: Exists}]
      containers: [{name: train, image: trainer}]
"""


@pytest.fixture
def project(kube: Kube, tmp_path: Path) -> Path:
    """An empty folder with the configuration that the cluster's nodes show."""
    (tmp_path / "spotwright.yaml").write_text(pools(kube, tmp_path, "import", "--cluster").stdout)
    return tmp_path


def pools(kube: Kube, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spotwright", "pools", *arguments]
    env = {**os.environ, "KUBECONFIG": str(kube.kubeconfig)}
    return subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True, check=False, timeout=120)


def test_the_pools_that_are_read_have_every_node(kube: Kube, project: Path) -> None:
    nodes = json.loads(kube.run("get", "nodes", "-o", "json"))["items"]
    found = pools(kube, project, "check", "--cluster")

    assert f"nodes: {len(nodes)}, {len(nodes)} of them in" in found.stdout, found.stderr
    assert "node-of-no-pool" not in found.stdout


@pytest.mark.usefixtures("bed")  # whose nodes have the labels of AKS
def test_pools_of_aks_have_their_zones_by_number_with_the_region(kube: Kube, project: Path) -> None:
    nodes = json.loads(kube.run("get", "nodes", "-o", "json"))["items"]
    labels = {node["metadata"]["labels"].get("topology.kubernetes.io/zone") for node in nodes}
    written = yaml.safe_load((project / "spotwright.yaml").read_text())["pools"].values()

    assert {f"{pool['region']}-{zone}" for pool in written for zone in pool["zones"]} == labels


@pytest.mark.usefixtures("bed")
@pytest.mark.parametrize(("is_label", "lands"), [(True, True), (False, False)], ids=["the label", "the number"])
def test_work_for_a_zone_lands_by_the_label_of_the_zone_alone(
    kube: Kube, project: Path, is_label: bool, lands: bool
) -> None:
    node = json.loads(kube.run("get", "nodes", "-o", "json"))["items"][0]
    zone = node["metadata"]["labels"]["topology.kubernetes.io/zone"]
    (project / "job.yaml").write_text(JOB.replace("ZONE", zone if is_label else f'"{zone.rpartition("-")[2]}"'))

    assert ("work-lands-nowhere" not in pools(kube, project, "check", "--cluster", "job.yaml").stdout) is lands
