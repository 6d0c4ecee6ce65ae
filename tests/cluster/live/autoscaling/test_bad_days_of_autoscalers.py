"""On the test bed: autoscalers that restart, lie, are not alone, or cannot be read; a pool that goes; a controller away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from testbed.settings import Settings
from tests.cluster.live.autoscaling.autoscaled import LIMIT, TIMES, Autoscaled, autoscaled
from tests.cluster.live.autoscaling.autoscaler import Autoscaler
from tests.cluster.live.autoscaling.limited_users import blind_user
from tests.cluster.live.autoscaling.machines import Cloud, Fault, aks_groups
from tests.cluster.live.autoscaling.recurring_cases import AKS_CPU, AKS_SPOT, WORK, Situation, aks_config
from tests.cluster.live.autoscaling.requests import Requests
from tests.cluster.live.autoscaling.scenarios import Case, Deed, Outcome, Play, job_of, play
from tests.cluster.live.controllers import controller
from tests.cluster.live.kube import Kube

pytestmark = pytest.mark.cluster

ORDERED = 5.0  # seconds after which the first node is ordered
SLOW = 10.0  # seconds of a boot that lasts well beyond pending_timeout
FOR_EVER = 1e6  # seconds
ORDERS = pytest.mark.parametrize("expander", ["priority", "least-waste"])
"""Where the pod is open to all pools, and where it is sent to one."""


def situation(expander: str, boot: float = SLOW, fault: str = "", pending_timeout: str = "5s") -> Situation:
    """One pod for spot or on-demand."""
    config = aks_config(pending_timeout)
    case = Case("a bad day", config, [job_of("work", WORK)], 1, seconds=90.0, settle=6.0)
    faults = {AKS_SPOT: Fault(fault)} if fault else {}
    return Situation(case, boot=boot, faults=faults, expander=expander)


def played(
    kube: Kube,
    api: Requests,
    bed: Settings,
    folder: Path,
    day: Situation,
    deed: Callable[[Autoscaled, Play], None] = lambda _, __: None,
    at: float = ORDERED,
) -> Outcome:
    """The result with the controller, with a deed when the first node is ordered."""
    with autoscaled(kube, api, folder, day) as made:
        deeds: list[Deed] = [(at, lambda playing: deed(made, playing))]
        return play(kube, bed, folder, day.case, controlled=True, options=LIMIT, deeds=deeds)


def came_on_spot_alone(outcome: Outcome) -> None:
    """There were no evictions, and one node was made."""
    assert outcome.taken_back == 0, outcome.text()
    assert outcome.running == outcome.made == {AKS_SPOT: 1}, outcome.text()


@ORDERS
def test_an_autoscaler_that_restarts_forgets_no_node_that_is_on_its_way(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path, expander: str
) -> None:
    came_on_spot_alone(played(kube, api, bed, tmp_path, situation(expander), lambda made, _: made.restart()))


@ORDERS
def test_events_that_are_gone_change_nothing(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path, expander: str
) -> None:
    def expire(_: Autoscaled, playing: Play) -> None:
        kube.run("delete", "events", "--all", "-n", playing.namespace)

    came_on_spot_alone(played(kube, api, bed, tmp_path, situation(expander), expire))


def test_without_its_events_the_status_alone_tells_a_new_controller_that_a_node_is_ordered(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path
) -> None:
    day = situation("least-waste")
    with contextlib.ExitStack() as stack:

        def begin_anew(_: Autoscaled, playing: Play) -> None:
            kube.run("delete", "events", "--all", "-n", playing.namespace)
            start_again(stack, kube, bed, day, playing)

        outcome = played(kube, api, bed, tmp_path, day, begin_anew)
    came_on_spot_alone(outcome)


def start_again(stack: contextlib.ExitStack, kube: Kube, bed: Settings, day: Situation, playing: Play) -> None:
    """End the controller, and start another one."""
    assert playing.controller is not None
    playing.controller.end()
    stack.enter_context(controller(kube, bed, playing.controller.folder, day.case.config, *LIMIT))


@pytest.mark.parametrize("fault", ["error", ""])
def test_a_controller_that_was_away_goes_on_where_it_was(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path, fault: str
) -> None:
    day = situation("least-waste", fault=fault)
    with contextlib.ExitStack() as stack:
        outcome = played(
            kube, api, bed, tmp_path, day, lambda _, playing: start_again(stack, kube, bed, day, playing), at=1.0
        )
    if not fault:
        came_on_spot_alone(outcome)
        return
    assert outcome.taken_back == 1, outcome.text()
    assert outcome.running == outcome.made == {AKS_CPU: 1}, outcome.text()


@ORDERS
def test_a_node_that_never_comes_is_waited_for_until_the_autoscaler_gives_it_up(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path, expander: str
) -> None:
    outcome = played(kube, api, bed, tmp_path, situation(expander, boot=1.0, fault="silent"))
    assert outcome.running == {AKS_CPU: 1}, outcome.text()
    assert outcome.seconds is not None
    assert outcome.seconds > TIMES.provision, outcome.text()
    assert outcome.taken_back == (expander != "priority"), outcome.text()


def test_an_autoscaler_that_never_gives_up_is_given_up_by_the_controller(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path
) -> None:
    day = situation("least-waste", boot=1.0, fault="silent")
    with autoscaled(kube, api, tmp_path, day, provision=FOR_EVER):
        outcome = play(kube, bed, tmp_path, day.case, controlled=True, options=LIMIT)
    assert outcome.running == {AKS_CPU: 1}, outcome.text()
    assert outcome.taken_back == 1, outcome.text()
    assert outcome.seconds is not None
    assert outcome.seconds > TIMES.provision, outcome.text()


@ORDERS
@pytest.mark.parametrize("status_map", ["cluster-autoscaler-status", "second-autoscaler-status"])
def test_a_second_autoscaler_that_has_no_group_for_a_pod_talks_nobody_out_of_its_node(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path, expander: str, status_map: str
) -> None:
    """Two of them write the same ConfigMap in turn, unless somebody has given the second one another name."""
    others = [replace(group, name=f"second-{group.name}", max=0) for group in aks_groups()]
    second_cloud = Cloud(api, others)
    second = Autoscaler(kube, api, second_cloud, TIMES, status_map=status_map)
    try:
        outcome = played(kube, api, bed, tmp_path, situation(expander))
    finally:
        second.end()
        second_cloud.end()
        kube.run("delete", "configmap", status_map, "-n", "kube-system", "--ignore-not-found")
    came_on_spot_alone(outcome)


def test_an_autoscaler_whose_status_nobody_may_read_is_heard_by_its_events(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path
) -> None:
    day = situation("priority")
    with blind_user(kube, bed, tmp_path) as kubeconfig, autoscaled(kube, api, tmp_path, day):
        outcome = play(kube, bed, tmp_path, day.case, controlled=True, options=LIMIT, kubeconfig=kubeconfig)
    came_on_spot_alone(outcome)


def test_without_its_status_a_pool_that_cannot_grow_is_left_as_well(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path
) -> None:
    day = situation("priority", boot=1.0, fault="error", pending_timeout="10m")
    with blind_user(kube, bed, tmp_path) as kubeconfig, autoscaled(kube, api, tmp_path, day):
        outcome = play(kube, bed, tmp_path, day.case, controlled=True, options=LIMIT, kubeconfig=kubeconfig)
    assert outcome.running == outcome.made == {AKS_CPU: 1}, outcome.text()


@ORDERS
def test_a_pool_that_is_deleted_while_its_node_is_ordered_is_left(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path, expander: str
) -> None:
    outcome = played(kube, api, bed, tmp_path, situation(expander), lambda made, _: made.cloud.forget(AKS_SPOT))
    assert outcome.running == outcome.made == {AKS_CPU: 1}, outcome.text()
    assert outcome.taken_back == (expander != "priority"), outcome.text()
