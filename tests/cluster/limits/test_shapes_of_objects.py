"""A pod may send reviews to the webhook's port: a misshapen object is allowed unchanged, with one line in the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from spotwright.cluster.admission_server import admit, answer, parse_review
from spotwright.cluster.admit_objects import Verdict
from spotwright.cluster.admit_updates import Update
from spotwright.cluster.object_shapes import why_misshapen
from spotwright.config import from_mapping

POLICY = {"spotwright.dev/policy": '{"spot": "prefer"}'}
CONFIG = from_mapping({"pools": {"spot": {"capacity": "spot", "provider": "aks"}}, "policy": {"default": {}}})


def a_pod() -> dict[str, Any]:
    """A pod with every field that is read."""
    term = {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
    nodes = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}],
    }
    container = {
        "name": "main",
        "image": "train:1",
        "command": ["sh"],
        "args": ["-c"],
        "env": [{"name": "SPOTWRIGHT_TASK", "value": "train"}],
        "envFrom": [{"configMapRef": {"name": "x"}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "resources": {"requests": {"cpu": "1", "memory": 5}, "limits": {"cpu": 1.5}},
        "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
        "securityContext": {"runAsUser": 7},
    }
    spec = {
        "containers": [container],
        "initContainers": [{"name": "init", "image": "x", "restartPolicy": "Always"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": nodes, "podAffinity": {}, "podAntiAffinity": {}},
        "nodeSelector": {"pool": "x"},
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "overhead": {"cpu": "1"},
        "schedulingGates": [{"name": "g"}],
        "securityContext": {"runAsUser": 7},
        "os": {"name": "linux"},
    }
    metadata = {"name": "p", "labels": {"a": "b"}, "annotations": dict(POLICY), "ownerReferences": [{"name": "o"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values below a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


PLACES = list(places(a_pod()))


def with_value(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    made = holder = a_pod()
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return made


def test_a_pod_as_an_api_server_sends_it_has_its_shape() -> None:
    assert why_misshapen(a_pod()) == ""


@pytest.mark.parametrize("value", [7, -1.5, True, "x", [7], [[]], {"x": 7}, {"": {}}, None], ids=repr)
def test_a_pod_with_a_value_of_another_type_anywhere_is_answered_without_a_defect(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for path in PLACES:
        request = {"uid": "1", "operation": "CREATE", "namespace": "team-a", "object": with_value(path, value)}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        asked = parse_review(json.dumps(review).encode())
        answered, outcome = answer(asked, lambda one: admit(one.data, CONFIG, refusal_image="busybox:1"))
        assert answered["response"]["allowed"] is True
        assert outcome.verdict != "defect", (path, value)
        assert (outcome.verdict == Verdict.MISSHAPEN) == bool(asked.problem), (path, value)
        if asked.problem:
            assert "patch" not in answered["response"]
            assert len(asked.problem) < 300
    assert not caplog.records


@pytest.mark.parametrize("value", [7, "x", [7], {"x": 7}, None], ids=repr)
@pytest.mark.parametrize(
    "path", [("spec",), ("spec", "replicatedJobs"), ("spec", "replicatedJobs", 0), ("kind",)], ids=str
)
def test_a_set_of_jobs_with_a_value_of_another_type_is_answered_without_a_defect(value: Any, path: Any) -> None:
    template = {"spec": {"template": {"spec": a_pod()["spec"]}}}
    made: Any = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s", "annotations": dict(POLICY)},
        "spec": {"replicatedJobs": [{"name": "w", "template": template}]},
    }
    old, holder = json.loads(json.dumps(made)), made
    old["metadata"]["annotations"]["spotwright.dev/admitted"] = "{}"
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    for operation, before in (("CREATE", None), ("UPDATE", Update(old, "kubectl"))):
        request = {"uid": "1", "operation": operation, "namespace": "team-a", "object": made, "oldObject": old}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        asked = parse_review(json.dumps(review).encode())
        _, outcome = answer(asked, lambda one: admit(one.data, CONFIG, update=before, refusal_image="busybox:1"))  # noqa: B023
        assert outcome.verdict != "defect"


LONG = "9" * 5_000  # digits: Python refuses to read them as a number


@pytest.mark.parametrize(
    ("version", "kind", "spec"),
    [
        (
            "argoproj.io/v1alpha1",
            "Workflow",
            {
                "entrypoint": "a",
                "templates": [{"name": "a", "container": {"image": "x"}, "retryStrategy": {"limit": LONG}}],
            },
        ),
        (
            "sparkoperator.k8s.io/v1beta2",
            "SparkApplication",
            {"sparkVersion": f"{LONG}.{LONG}", "driver": {"memory": f"{LONG}m"}, "executor": {"memory": f"{LONG}g"}},
        ),
    ],
    ids=["a limit of tries", "versions and memory of Spark"],
)
def test_a_number_of_thousands_of_digits_is_answered_without_a_defect(version: str, kind: str, spec: Any) -> None:
    made = {"apiVersion": version, "kind": kind, "metadata": {"name": "a", "annotations": dict(POLICY)}, "spec": spec}
    request = {"uid": "1", "operation": "CREATE", "namespace": "team-a", "object": made}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    asked = parse_review(json.dumps(review).encode())
    _, outcome = answer(asked, lambda one: admit(one.data, CONFIG, refusal_image="busybox:1"))
    assert outcome.verdict != "defect"


def test_what_is_wrong_is_said() -> None:
    assert "$.spec.containers[0].env" in why_misshapen(with_value(("spec", "containers", 0, "env"), 7))
    assert why_misshapen({"apiVersion": "batch/v1", "kind": "Job", "metadata": []}).startswith("it cannot be read")
    assert why_misshapen([]).startswith("it cannot be read")
