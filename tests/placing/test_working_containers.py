"""Variables and mounts go to the containers that do the work of a pod, and not to the sidecars beside them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.placing.placed import place

from spotwright.placing.environment import working_containers

POLICY = "{default: {spot: prefer, checkpoint: 'pvc://saves'}}"
GPU = {"limits": {"nvidia.com/gpu": 1}}


def a_container(name: str, image: str = "app:1", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": image, **fields}


@pytest.mark.parametrize(
    ("containers", "working"),
    [
        ([a_container("anything")], [0]),
        ([a_container("nginx")], [0]),
        ([a_container("istio-proxy"), a_container("train")], [1]),
        ([a_container("train"), a_container("logs", "fluent/fluent-bit:3")], [0]),
        ([a_container("helper"), a_container("pytorch")], [1]),
        ([a_container("helper"), a_container("model", resources=GPU)], [1]),
        ([a_container("left"), a_container("right")], [0, 1]),
        ([a_container("main"), a_container("watch", command=["sh", "-c", "curl $SPOTWRIGHT_NOTICE_URL"])], [0, 1]),
        ([a_container("main"), a_container("watch", args=["-c", "import spotwright"])], [0, 1]),
        ([a_container("envoy"), a_container("nginx")], [0, 1]),
        ([None, a_container("main")], [1]),
    ],
)
def test_the_containers_that_do_the_work(containers: list[Any], working: list[int]) -> None:
    assert working_containers(containers) == working


def test_a_sidecar_gets_no_variable_and_no_mount() -> None:
    job = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n"
        "      containers:\n      - {name: train, image: train:1}\n      - {name: proxy, image: envoy:1}\n"
    )
    train, proxy = place(job, POLICY).value["spec"]["template"]["spec"]["containers"]
    assert {one["name"] for one in train["env"]} >= {"SPOTWRIGHT_CHECKPOINT", "SPOTWRIGHT_NOTICE_URL"}
    assert proxy == {"name": "proxy", "image": "envoy:1"}
