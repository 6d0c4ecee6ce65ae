"""A node's notice reaches the journal of the run on it: metadata server, node agent, Event, watcher, each of them real."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.control.api import Api
from testbed.faults import Faults
from testbed.settings import Settings
from tests import plain_yaml
from tests.cluster.live.kube import Kube
from tests.cluster.watching.test_watcher_on_a_cluster import IMAGE, start_watcher, states

from spotwright.engine.events import NoticeGiven
from spotwright.records.journal import Journal
from spotwright.records.state_folder import StateFolder

pytestmark = [pytest.mark.cluster, pytest.mark.cluster_ci]

NODE = 2
ROLE: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "node-agent", "namespace": "default"}},
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "node-agent", "namespace": "default"},
        "rules": [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "node-agent", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "node-agent"},
        "subjects": [{"kind": "ServiceAccount", "name": "node-agent", "namespace": "default"}],
    },
]
"""All that the node agent may do."""


@pytest.fixture
def account(kube: Kube, tmp_path: Path) -> Path:
    """The folder of a service account, as a kubelet mounts it."""
    kube.apply(*ROLE)
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text(kube.run("create", "token", "node-agent", "-n", "default"), encoding="ascii")
    cluster = plain_yaml.load(kube.kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    data = cluster.get("certificate-authority-data")
    authority = base64.b64decode(data) if data else Path(cluster["certificate-authority"]).read_bytes()
    (folder / "ca.crt").write_bytes(authority)
    return folder


@pytest.fixture
def agent(bed: Settings, account: Path, tmp_path: Path) -> Iterator[Path]:
    """The log of a node agent that runs on the node."""
    log = tmp_path / "agent.log"
    environment = {**os.environ, "KUBERNETES_SERVICE_HOST": "10.89.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    environment["SPOTWRIGHT_SERVICE_ACCOUNT"] = str(account)
    options = ["node-agent", "--provider", bed.cloud, "--listen", "127.0.0.1:0", "--node", f"n{NODE}"]
    if bed.cloud == "aks":
        provider = Api(bed).get(f"/api/v1/nodes/n{NODE}")
        options += ["--provider-id", str((provider or {})["spec"]["providerID"])]
    command = ["ip", "netns", "exec", bed.node_namespace(NODE), sys.executable, "-m", "spotwright", *options]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stderr=errors, env=environment)
    yield log
    process.terminate()
    process.wait(60)


def test_a_notice_of_the_metadata_server_is_in_the_journal(
    kube: Kube, faults: Faults, agent: Path, namespace: str, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "900"]}
    pod = {
        "restartPolicy": "Never",
        "nodeName": f"n{NODE}",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"template": {"spec": pod}},
    }
    kube.apply(job)
    os.environ.setdefault("KUBECONFIG", str(kube.kubeconfig))
    watcher = start_watcher(state, namespace, "--kubeconfig", str(kube.kubeconfig))
    try:
        kube.wait(lambda: any(run.nodes for run in states(state).values()), "the attempt on its node", 90)
        kube.wait(lambda: "listening" in agent.read_text(encoding="utf-8"), "the agent", 90)
        began = time.time()
        faults.notice(NODE, 300.0)
        (event,) = kube.wait(lambda: _notices(state), "the notice in the journal", 90)
        faults.notice(NODE, 300.0)
    finally:
        watcher.terminate()
        assert watcher.wait(60) == 0
    assert event.node == f"n{NODE}"
    assert event.id
    assert event.attempts == (("train", 1),)
    assert 200 < event.goes_at - began < 330
    assert "posted as Event default/n2." in agent.read_text(encoding="utf-8")


def _notices(state: Path) -> list[NoticeGiven]:
    found: list[NoticeGiven] = []
    for folder in StateFolder.existing(state).runs():
        journal = Journal.read(folder.journal)
        try:
            found += [event for _, event in journal.events() if isinstance(event, NoticeGiven)]
        finally:
            journal.close()
    return found
