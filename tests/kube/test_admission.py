"""The fields that a cluster adds to pods, by the API server's admission; place, lint and the check of pools read them alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from tests import plain_yaml
from tests.linter.linting import found_in, settings
from tests.placing.placed import FILE, place, refusal

from spotwright.config import built_in
from spotwright.kube.admission import admitted, contradiction
from spotwright.kube.pod import scheduling_of
from spotwright.linter.subjects import FileObjects, Pods, objects_in, pods_of
from spotwright.placing.documents import parse
from spotwright.placing.pod_spec import pod_requests
from spotwright.pools.cluster_inventory import Objects, PodWork, ground_of, pod_works

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


BAD = {"spec": {"limits": [{"type": "Container", "default": {"cpu": "abc"}}]}}
BAD_CLASS = {"overhead": {"podFixed": {"cpu": "abc"}}}


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (
            RANGE | BAD,
            "LimitRange r does not apply to these pods, because it cannot be read: spec.limits[0].default.cpu: 'abc'",
        ),
        (
            CLASS | BAD_CLASS,
            "RuntimeClass kata does not apply to these pods, because it cannot be read: overhead.podFixed.cpu: 'abc'",
        ),
    ],
)
def test_an_object_with_a_quantity_that_cannot_be_read_is_named_and_adds_nothing(
    bad: dict[str, Any], named: str
) -> None:
    job = a_job(runtimeClassName="kata")
    outcome = place(plain_yaml.dump_all([bad, job]))
    assert outcome.reports(named)
    assert set(outcome.roles["train"].pools) == set(place(plain_yaml.dump_all([a_job()])).roles["train"].pools)

    [found] = [one for one in found_in(plain_yaml.dump_all([bad, job])) if "does not apply to pods" in one.text]
    assert found.text.startswith(named.replace("these pods", "pods"))
    assert "abc" in plain_yaml.dump_all([bad, job]).splitlines()[found.line - 1]

    admitting = Objects(admitting=[bad])
    [work] = pod_works(job, FILE, built_in(), admitting.of_kind)
    assert isinstance(work, PodWork)
    assert work.requests == {}
    [finding] = ground_of(built_in(), admitting, [work]).unread
    assert (finding.code, finding.where) == ("manifest-not-readable", named.partition(" does")[0])


def test_a_placeholder_is_a_quantity_that_is_known_later() -> None:
    later = {
        **RANGE,
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "{{ .Values.cpu }}", "memory": "1Gi"}}]},
    }
    assert pod_requests(admitted(a_pod(), "team", lambda kind: [later] if kind == "LimitRange" else [])) == {
        "memory": GIB
    }


LARGE = {"spec": {"limits": [{"type": "Container", "default": {"cpu": "100", "memory": "1Gi"}}]}}
LARGE_CLASS = {"overhead": {"podFixed": {"cpu": "100"}}}


@pytest.mark.parametrize(
    ("given", "fields", "hint"),
    [
        (RANGE | LARGE, {}, "; its LimitRange r adds the default request cpu: 100"),
        (CLASS | LARGE_CLASS, {"runtimeClassName": "kata"}, "; its RuntimeClass kata adds the overhead cpu: 100"),
        (CLASS, {"runtimeClassName": "kata"}, "; its RuntimeClass kata adds the node selector kata=yes"),
    ],
)
def test_a_refusal_names_the_object_that_adds_what_no_pool_has(
    given: dict[str, Any], fields: dict[str, Any], hint: str
) -> None:
    assert hint in refusal(plain_yaml.dump_all([given, a_job(**fields)]))


def test_a_refusal_names_no_object_whose_default_the_pod_overrides() -> None:
    text = refusal(plain_yaml.dump_all([RANGE | LARGE, a_job(resources={"requests": {"cpu": "99"}})]))
    assert "it asks for 99 cpu" in text
    assert "LimitRange" not in text


POD_DEFAULT = {
    "apiVersion": "kubeflow.org/v1alpha1",
    "kind": "PodDefault",
    "metadata": {"name": "all", "namespace": "team"},
    "spec": {
        "selector": {},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "env": [{"name": "A", "value": "1"}],
    },
}


@pytest.mark.parametrize(
    ("selector", "labels", "is_laid"),
    [
        ({}, {}, True),
        (None, {}, False),
        ({"matchLabels": {"a": "b"}}, {"a": "b", "c": "d"}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "c"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, {"a": "b"}, False),
    ],
)
def test_a_pod_default_adds_to_the_pods_that_it_selects(selector: Any, labels: dict[str, str], is_laid: bool) -> None:
    one = {**POD_DEFAULT, "spec": {**POD_DEFAULT["spec"], "selector": selector}}  # type: ignore[dict-item]
    pod = a_pod(initContainers=[{"name": "first"}], tolerations=[{"key": "gpu", "operator": "Exists"}])
    given = admitted(pod, "team", Objects(admitting=[one]).of_kind, labels)
    assert (given is not pod) is is_laid
    assert [each["key"] for each in given["tolerations"]] == ["gpu", *(["spot"] if is_laid else [])]
    assert ("env" in given["containers"][0]) is is_laid
    assert "env" not in given["initContainers"][0]
    assert admitted(pod, "other", Objects(admitting=[one]).of_kind, labels) is pod


def test_tolerations_of_two_objects_are_both_there() -> None:
    every = Objects(admitting=[CLASS, POD_DEFAULT])
    given = admitted(a_pod(runtimeClassName="kata"), "team", every.of_kind)
    assert [each["key"] for each in given["tolerations"]] == ["kata", "spot"]


def test_the_check_of_pools_lays_a_pod_default_over_the_pods_that_it_selects() -> None:
    of_team = {**POD_DEFAULT, "spec": {**POD_DEFAULT["spec"], "selector": {"matchLabels": {"team": "a"}}}}  # type: ignore[dict-item]
    job = a_job()
    for labels, keys in (({"team": "a"}, ["spot"]), ({"team": "b"}, [])):
        job["spec"]["template"]["metadata"] = {"labels": labels}
        [work] = pod_works(job, FILE, built_in(), Objects(admitting=[of_team]).of_kind)
        assert isinstance(work, PodWork)
        assert [one.key for one in work.constraints.tolerations] == keys


@pytest.mark.parametrize(("of_pod", "of_range"), [("team", None), (None, "team"), ("team", "other")])
def test_a_limit_range_is_of_its_namespace_alone(of_pod: str | None, of_range: str | None) -> None:
    one = {**RANGE, "metadata": {"name": "r", **({"namespace": of_range} if of_range else {})}}
    pod = a_pod()
    assert admitted(pod, of_pod, lambda kind: [one] if kind == "LimitRange" else []) is pod
    assert admitted(pod, of_range, lambda kind: [one] if kind == "LimitRange" else []) is not pod


def test_lint_finds_the_limit_range_of_each_namespace_though_they_have_one_name() -> None:
    pools = "version: 1\npools: {a: {capacity: spot, provider: aks, node: {cpu: 4, memory: 8Gi}}}\n"
    small = {**RANGE, "metadata": {"name": "r", "namespace": "first"}}
    large = RANGE | LARGE
    text = plain_yaml.dump_all([small, large, a_job()])
    beside = FileObjects()
    *_, subject = (one for document in parse(text, FILE) for one in objects_in(document, beside))
    [pods] = pods_of(subject, settings(pools))
    assert isinstance(pods, Pods)
    assert pods.requests["cpu"] == 100_000


SELECTING = "version: 1\npools: {a: {capacity: spot, provider: aks}}\n"


def test_lint_says_which_object_adds_the_label_that_no_pool_has() -> None:
    class_ = {**CLASS, "metadata": {"name": "kata"}}
    for given, fields, maker in (
        (a_namespace({"disk": "ssd"}), {}, "namespace team"),
        (class_, {"runtimeClassName": "kata"}, "RuntimeClass kata"),
    ):
        found = found_in(plain_yaml.dump_all([given, a_job(**fields)]), SELECTING)
        [text] = [one.text for one in found if one.rule == "selector-matches-no-pool"]
        assert text.startswith(f"Job train, by its {maker}, selects ")
    own = found_in(plain_yaml.dump_all([a_namespace({"disk": "ssd"}), a_job(nodeSelector={"disk": "ssd"})]), SELECTING)
    assert "Job train selects disk=ssd, which no pool has" in [one.text for one in own]


def test_lint_mends_no_label_that_the_namespace_adds() -> None:
    text = plain_yaml.dump_all([a_namespace({"kubernetes.azure.com/scalesetpriority": "Spot"}), a_job()])
    [found] = [one for one in found_in(text) if "no node has" in one.text]
    assert found.text.endswith("so Job train stays Pending: its namespace team adds this label")
    assert not found.can_fix
