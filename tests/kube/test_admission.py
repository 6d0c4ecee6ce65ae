"""What a cluster adds to pods, as the API server's admission does it; place, lint and the check of pools read it alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from tests import plain_yaml
from tests.linter.linting import found_in
from tests.placing.placed import FILE, place, refusal

from spotwright.config import built_in
from spotwright.kube.admission import admitted, contradiction
from spotwright.kube.pod import scheduling_of
from spotwright.placing.pod_spec import pod_requests
from spotwright.pools.ground import PodWork, pod_works

NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "team", "annotations": {"scheduler.alpha.kubernetes.io/node-selector": "disk=ssd, team=a"}},
}
RANGE = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "r", "namespace": "team"},
    "spec": {
        "limits": [
            {"type": "Pod", "max": {"cpu": "64"}},
            {"type": "Container", "default": {"cpu": "2", "memory": "4Gi"}, "defaultRequest": {"cpu": "1"}},
        ]
    },
}
CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
    "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
}
GIVEN = [NAMESPACE, RANGE, CLASS]


def others(kind: str) -> Iterable[Mapping[str, Any]]:
    return [one for one in GIVEN if one["kind"] == kind]


def a_pod(resources: Any = None, **fields: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "i", **({} if resources is None else {"resources": resources})}
    return {"restartPolicy": "Never", "containers": [container], **fields}


GIB = 1024**3


@pytest.mark.parametrize(
    ("resources", "requests"),
    [
        (None, {"cpu": 1000, "memory": 4 * GIB}),
        ({"requests": {"cpu": "3"}}, {"cpu": 3000, "memory": 4 * GIB}),
        ({"limits": {"cpu": "3"}}, {"cpu": 3000, "memory": 4 * GIB}),
        ({"limits": {"memory": "1Gi"}, "requests": {"cpu": "3"}}, {"cpu": 3000, "memory": GIB}),
    ],
)
def test_a_limit_range_gives_each_container_what_it_does_not_ask_for(resources: Any, requests: dict[str, int]) -> None:
    assert pod_requests(admitted(a_pod(resources), "team", others)) == requests


def test_the_overhead_of_a_runtime_class_is_a_part_of_the_requests() -> None:
    asked = {"requests": {"cpu": "1"}}
    plain = pod_requests(admitted(a_pod(asked), None, others))
    more = pod_requests(admitted(a_pod(asked, runtimeClassName="kata"), None, others))
    assert more["cpu"] - plain["cpu"] == plain["cpu"] // 4
    assert "memory" not in plain
    assert more["memory"] == 120 * 1024**2


def test_selectors_of_the_namespace_and_the_runtime_class_join_those_of_the_pod() -> None:
    pod = a_pod(runtimeClassName="kata", nodeSelector={"own": "1"}, tolerations=[{"key": "own", "operator": "Exists"}])
    found = scheduling_of(admitted(pod, "team", others))
    assert found.selector == {"own": "1", "kata": "yes", "disk": "ssd", "team": "a"}
    assert [one.key for one in found.tolerations] == ["own", "kata"]


@pytest.mark.parametrize(("namespace", "name"), [("other", "kata-2"), (None, None)])
def test_what_is_not_given_adds_nothing(namespace: str | None, name: Any) -> None:
    pod = a_pod(runtimeClassName=name)
    assert admitted(pod, namespace, others) is pod


def test_a_selector_that_the_namespace_wants_otherwise_is_a_contradiction() -> None:
    assert contradiction(a_pod(nodeSelector={"team": "b"}), "team", others) == ("team", "a")
    assert contradiction(a_pod(nodeSelector={"team": "a"}), "team", others) is None


ODD = [None, "x", 1, [], [None], {}, {"limits": "x"}, {"limits": [{"type": "Container", "default": "x"}]}]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_objects_of_another_shape_add_nothing(odd: Any) -> None:
    def given(kind: str) -> Iterable[Mapping[str, Any]]:
        return [
            {
                "kind": kind,
                "metadata": odd if isinstance(odd, dict) else {"name": "team", "annotations": odd},
                "spec": odd,
            }
        ]

    pod = a_pod(nodeSelector="x" if odd == "x" else None, runtimeClassName="team")
    assert admitted(pod, "team", given) == pod


def a_job(**fields: Any) -> dict[str, Any]:
    job = {"template": {"spec": a_pod(**fields)}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "team"}, "spec": job}


ON_DEMAND = {"kubernetes.azure.com/scalesetpriority": "regular"}


def a_namespace(selector: Mapping[str, str]) -> dict[str, Any]:
    text = ",".join(f"{key}={value}" for key, value in selector.items())
    notes = {"openshift.io/node-selector": text}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "annotations": notes}}


def test_every_door_reads_the_selector_of_the_namespace() -> None:
    selector = {"kubernetes.azure.com/scalesetpriority": "spot"}
    text = plain_yaml.dump_all([a_namespace(selector), a_job()])
    assert place(text).roles["train"].pools == ("spot",)

    rules = {one.rule for one in found_in(text)}
    assert "affinity-without-toleration" in rules
    assert "affinity-without-toleration" not in {one.rule for one in found_in(plain_yaml.dump_all([a_job()]))}

    [work] = pod_works(a_job(), FILE, built_in(), lambda kind: [a_namespace(selector)] if kind == "Namespace" else [])
    assert isinstance(work, PodWork)
    assert work.constraints.selector == selector


def test_a_pod_that_its_namespace_refuses_is_refused_with_the_field() -> None:
    text = plain_yaml.dump_all([a_namespace({"team": "a"}), a_job(nodeSelector={"team": "b"})])
    assert "nodeSelector.team: the node selector of namespace team wants a here" in refusal(text)


def test_default_requests_count_for_the_size_of_nodes() -> None:
    large = {**RANGE, "spec": {"limits": [{"type": "Container", "default": {"memory": "400Gi"}}]}}
    assert "it asks for 400Gi memory" in refusal(plain_yaml.dump_all([large, a_job()]))
