"""Python objects: the placed object has the same type, and the unplaced one is equal to the original."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kubernetes import client

import spotwright as spot
from spotwright.errors import InputError

POLICY: dict[str, Any] = {
    "pools": {
        "spotpool": {"capacity": "spot", "provider": "aks"},
        "agentpool": {"capacity": "on-demand", "provider": "aks"},
    },
    "policy": {"default": {"spot": "require"}},
}
KEY = "kubernetes.azure.com/scalesetpriority"


def a_pod() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train"},
        "spec": {"containers": [{"name": "main", "image": "python:3.11"}]},
    }


pytestmark = pytest.mark.filterwarnings("ignore:.*a bare Pod is not scheduled again")


def test_what_a_person_should_know_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="use a Job"):
        spot.place(a_pod(), POLICY)


def test_a_dict_comes_back_placed_and_the_given_one_is_not_changed() -> None:
    given = a_pod()
    before = copy.deepcopy(given)
    placed = spot.place(given, POLICY)
    assert placed["spec"]["tolerations"][0]["key"] == KEY
    assert given == before


def test_a_placed_dict_comes_out_equal() -> None:
    assert spot.unplace(spot.place(a_pod(), POLICY)) == a_pod()


def test_placing_a_dict_twice_is_placing_it_once() -> None:
    once = spot.place(a_pod(), POLICY)
    assert spot.unplace(spot.place(once, POLICY)) == a_pod()


def test_a_model_of_the_kubernetes_client_comes_back_as_one() -> None:
    container = client.V1Container(name="main", image="python:3.11")
    pod = client.V1Pod(
        api_version="v1",
        kind="Pod",
        metadata=client.V1ObjectMeta(name="train"),
        spec=client.V1PodSpec(containers=[container]),
    )
    placed = spot.place(pod, POLICY)
    assert isinstance(placed, client.V1Pod)
    assert placed.spec.tolerations[0].key == KEY
    assert spot.unplace(placed) == pod


def test_something_else_is_refused_with_what_was_expected() -> None:
    with pytest.raises(InputError, match="int: expected a dict, or a model"):
        spot.place(3, POLICY)


def test_a_misspelt_pattern_of_the_policy_is_a_warning_with_the_nearest_name() -> None:
    misspelt = {**POLICY, "policy": {"default": {"spot": "require"}, "tasks": {"trian": {"timeout": "1h"}}}}

    with pytest.warns(UserWarning, match="'trian' matches no placed task: did you mean 'train'"):
        spot.place(a_pod(), misspelt)


def test_a_dict_of_another_kind_is_placed_at_the_given_paths() -> None:
    crew = {"name": "red", "template": {"spec": {"containers": [{"name": "crew", "image": "crew"}]}}}
    fleet: dict[str, Any] = {"apiVersion": "example.com/v1", "kind": "Fleet", "spec": {"crews": [crew]}}
    fleet["metadata"] = {"name": "f"}

    with pytest.warns(UserWarning, match="only its pods are placed"):
        placed = spot.place(fleet, POLICY, pod_paths=["spec.crews[*].template.spec"])

    assert placed["spec"]["crews"][0]["template"]["spec"]["tolerations"][0]["key"] == KEY
    assert spot.unplace(placed) == fleet
