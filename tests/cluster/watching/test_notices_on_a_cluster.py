"""A node's notice reaches the journal of the run on it: metadata server, node agent, Event, watcher, each of them real."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.live.chart_account import node_events_policy, remove_policy_of
from tests.cluster.live.kube import Kube
from tests.cluster.watching.node_agents import node_agent
from tests.cluster.watching.started_watcher import IMAGE, start_watcher, states

from spotwright.cluster.node_events import SPREADS
from spotwright.engine.events import NoticeGiven
from spotwright.records.journal import Journal
from spotwright.records.state_folder import StateFolder

pytestmark = [pytest.mark.cluster, pytest.mark.cluster_ci]

NODE = 2


@pytest.fixture
def policy(kube: Kube) -> Iterator[None]:
    """The policy of the chart, for a release of the watcher's name."""
    kube.apply(*node_events_policy("spotwright"))
    yield
    remove_policy_of(kube, "spotwright")


@pytest.fixture
def agent(bed: Settings, kube: Kube, policy: None, tmp_path: Path) -> Iterator[Path]:
    """The log of a node agent that runs on the node."""
    with node_agent(kube, bed, tmp_path / "agent", NODE) as log:
        yield log


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
        log = tmp_path / "watcher.log"
        kube.wait(lambda: "Events about nodes count" in log.read_text(encoding="utf-8"), "the policy is found", 90)
        time.sleep(SPREADS)  # what is written before is not believed
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
    assert "Events about nodes, including notices of node agents, are ignored" not in log.read_text(encoding="utf-8")


def _notices(state: Path) -> list[NoticeGiven]:
    found: list[NoticeGiven] = []
    for folder in StateFolder.existing(state).runs():
        journal = Journal.read(folder.journal)
        try:
            found += [event for _, event in journal.events() if isinstance(event, NoticeGiven)]
        finally:
            journal.close()
    return found
