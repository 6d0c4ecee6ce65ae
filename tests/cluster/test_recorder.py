"""The recorder of deaths keeps up with the code: its workloads can be placed, and its files are slim."""

from __future__ import annotations

import json

import pytest
from tests.cluster.recorder.deaths import DEATHS
from tests.cluster.recorder.placing import placed
from tests.cluster.recorder.slimming import slim
from tests.cluster.recorder.workloads import KINDS, Behaviour, workload


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_workload_of_every_kind_is_placed_on_spot_nodes(kind: str) -> None:
    written = placed(workload(kind, kind, Behaviour(("true",))))

    assert written[-1]["metadata"]["name"] == kind
    assert '"value": "spot"' in json.dumps(written)


def test_every_death_has_a_name_and_a_sentence_of_its_own() -> None:
    assert len({death.name for death in DEATHS}) == len({death.sentence for death in DEATHS}) == len(DEATHS)


def test_a_slimmed_pod_keeps_its_end_and_the_object_stays_as_it_is() -> None:
    container = {"name": "main", "env": [{"name": "ARGO_TEMPLATE", "value": "{}"}]}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "a", "managedFields": [{}]},
        "spec": {"containers": [container], "volumes": [{}]},
        "status": {"phase": "Failed"},
    }

    assert slim(pod) == {
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Failed"},
    }
    assert pod["spec"]["volumes"] == [{}]  # type: ignore[index]


def test_a_node_that_only_sent_a_heartbeat_is_the_same_object() -> None:
    def a_node(version: str, heartbeat: str) -> dict[str, object]:
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}
        return {"kind": "Node", "metadata": {"resourceVersion": version}, "status": {"conditions": [condition]}}

    assert slim(a_node("1", "12:00")) == slim(a_node("2", "12:01"))
