"""Devices that no request counts, pools of unknown size, and systems: what a ladder makes of what is not known."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.builders import a_policy, a_pool

from spotwright.kube.devices import devices_asked
from spotwright.model.scheduling_terms import Constraints
from spotwright.placing.pod_spec import pod_requests
from spotwright.scheduling.ladder import Ladder, PodRequirements, build

_CPU = a_pool("cpu", spot=False, node={"cpu": 8000})
_GPU = a_pool("gpu", node={"cpu": 8000, "nvidia.com/gpu": 1})
_UNKNOWN = a_pool("unknown", spot=False, node=None)


def ladder(work: PodRequirements, *pools: Any) -> Ladder:
    return build(work, a_policy(spot="prefer"), {pool.name: pool for pool in pools})


def pools_of(made: Ladder) -> list[str]:
    return [name for rung in made.rungs for name in rung.pools]


def limits(name: str, amount: int) -> dict[str, Any]:
    return {"containers": [{"resources": {"limits": {name: amount}}}]}


@pytest.mark.parametrize(
    ("spec", "metadata"),
    [
        ({"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "gpu"}]}, {}),
        ({"resourceClaims": [{"name": "g", "resourceClaimName": "gpu"}]}, {}),
        ({}, {"annotations": {"gpu-fraction": "0.5"}}),
        ({}, {"labels": {"gpu-fraction": "0.5"}}),
        ({"runtimeClassName": "nvidia"}, {}),
        (limits("nvidia.com/gpumem", 3000), {}),
        ({"containers": [{"resources": {"limits": {"volcano.sh/vgpu-number": 1}}}]}, {}),
        ({"containers": [{"resources": {"requests": {"aliyun.com/gpu-mem": 3}}}]}, {}),
    ],
)
def test_work_that_asks_for_a_device_otherwise_is_no_cpu_work(spec: dict[str, Any], metadata: dict[str, Any]) -> None:
    work = PodRequirements(pod_requests(spec), Constraints(), devices_asked(spec, metadata))
    made = ladder(work, _CPU, _GPU)

    assert work.devices
    assert pools_of(made) == ["gpu"]
    assert "no accelerators" in made.refusals["cpu"]
    assert list(made.maybe) == ["gpu"]
    assert "asks for a device by" in made.unstated


@pytest.mark.parametrize(
    "spec", [{"runtimeClassName": "gvisor"}, {"containers": [{"resources": {}}]}, {"resourceClaims": []}]
)
def test_other_work_asks_for_no_device(spec: dict[str, Any]) -> None:
    assert devices_asked(spec, {"annotations": {"team": "a"}}) == ()
    assert pools_of(ladder(PodRequirements(pod_requests(spec)), _CPU, _GPU)) == ["cpu"]


def test_the_resources_of_the_whole_pod_hold_and_those_of_its_containers_beside_them() -> None:
    spec = {**limits("cpu", 1), "resources": {"requests": {"cpu": 6, "memory": "1Gi"}}, "overhead": {"cpu": 1}}
    spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 2

    assert pod_requests(spec) == {"cpu": 7000, "memory": 2**30, "nvidia.com/gpu": 2}


@pytest.mark.parametrize(
    ("init", "cpu"),
    [
        ([], 2000),
        ([{"cpu": 5}], 5000),
        ([{"cpu": 1, "sidecar": True}], 3000),
        ([{"cpu": 1, "sidecar": True}, {"cpu": 5}], 6000),
        ([{"cpu": 5}, {"cpu": 1, "sidecar": True}, {"cpu": 1, "sidecar": True}], 5000),
    ],
)
def test_a_sidecar_runs_beside_all_that_starts_after_it(init: list[dict[str, Any]], cpu: int) -> None:
    always = {True: {"restartPolicy": "Always"}, False: {}}
    made = [{"resources": {"requests": {"cpu": each["cpu"]}}, **always["sidecar" in each]} for each in init]

    assert pod_requests({**limits("cpu", 2), "initContainers": made}) == {"cpu": cpu}


def test_a_pool_of_unknown_size_may_fit_and_is_said_not_to_be_judged() -> None:
    made = ladder(PodRequirements({"cpu": 1000}), _CPU, _UNKNOWN)

    assert made.maybe == {"unknown": "the node size is not known"}
    [left] = made.not_judged
    assert (left.subject.value, left.name) == ("pool", "unknown")
    assert "node:" in left.remedy
    assert not ladder(PodRequirements(), _UNKNOWN).maybe


@pytest.mark.parametrize(
    ("machine", "fits"),
    [("m6i.xlarge", False), ("Standard_D4s_v5", False), ("e2-standard-4", False), ("g5.xlarge", True), ("", True)],
)
def test_a_machine_without_accelerators_is_no_fallback_of_gpu_work(machine: str, fits: bool) -> None:
    made = ladder(PodRequirements({"nvidia.com/gpu": 4}), a_pool("base", spot=False, node=None, machine=machine))

    assert (pools_of(made) == ["base"]) is fits
    assert bool(made.unstated) is fits


def test_work_that_states_no_system_is_kept_off_windows() -> None:
    windows = a_pool("windows", os="windows", node={"cpu": 8000})
    chosen = PodRequirements(constraints=Constraints(selector={"kubernetes.io/os": "windows"}))

    assert pools_of(ladder(PodRequirements(), windows, _CPU)) == ["cpu"]
    assert ladder(PodRequirements(), windows, _CPU).keeps_off_windows
    assert pools_of(ladder(PodRequirements(system="windows"), windows, _CPU)) == ["windows"]
    assert pools_of(ladder(chosen, windows, _CPU)) == ["windows"]


def test_pools_of_two_architectures_are_said_where_the_work_states_none() -> None:
    arm = a_pool("arm", provider="eks", machine="m7g.xlarge", node={"cpu": 4000})
    intel = a_pool("intel", provider="eks", machine="m6i.xlarge", node={"cpu": 4000}, spot=False)
    stated = PodRequirements(constraints=Constraints(selector={"kubernetes.io/arch": "arm64"}))

    assert "states no architecture" in ladder(PodRequirements(), arm, intel).unstated
    assert not ladder(stated, arm, intel).unstated
