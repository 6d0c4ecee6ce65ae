"""A first attempt is open to all its rungs if the autoscaler keeps their order; otherwise it is pinned to one."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from tests.cluster.admission_objects import a_config
from tests.cluster.admitted_pods import PREFER, PREFERRED, REQUIRED, a_pod, conditions, precise, taken
from tests.placing.placed import at_path

from spotwright import config as configuration
from spotwright.clouds.cluster_autoscaler import Group, Status, read_priorities
from spotwright.clouds.pool_order import UNKNOWN, Autoscalers
from spotwright.cluster.admit_pods import OPEN_ANNOTATION, RUNG_ANNOTATION, WHY_ANNOTATION, AdmissionContext
from spotwright.cluster.task_objects import Content, agree_in
from spotwright.config import Config
from spotwright.model.attempts import Cause
from spotwright.scheduling.next_attempt import PastAttempt

EVERY = "spot-a,spot-b,regular"
NOTHING_SCALES = Autoscalers(False, None, False, None, {})
IN_ORDER = Autoscalers(True, None, True, read_priorities({20: ["^aks-spot.*"], 10: [".*"]}), {})
IGNORED = Autoscalers(True, None, False, None, {})


def ordered(seen: Autoscalers, **more: Any) -> AdmissionContext:
    return AdmissionContext(autoscalers=seen, **more)


def marks_of(pod: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"]["annotations"]
    return found


def is_open(pod: dict[str, Any]) -> bool:
    marked = OPEN_ANNOTATION in marks_of(pod)
    assert marked == (marks_of(pod).get(RUNG_ANNOTATION) == EVERY)
    return marked


def configured(provider: str, policy: str = PREFER, **more: Any) -> Config:
    """Three pools of one provider, under the policy."""
    pools = {
        name: {"capacity": capacity, "provider": provider, **more}
        for name, capacity in (("spot-a", "spot"), ("spot-b", "spot"), ("regular", "on-demand"))
    }
    return replace(a_config(policy), pools=configuration.from_mapping({"pools": pools}).pools)


def test_an_open_pod_keeps_the_affinity_that_place_wrote_and_has_the_tolerations_of_all_rungs() -> None:
    given = a_pod()
    pod, _ = precise(given, ordered(NOTHING_SCALES))
    assert is_open(pod)
    assert pod["spec"]["affinity"] == given["spec"]["affinity"]
    assert at_path(pod, PREFERRED)
    assert at_path(pod, REQUIRED) == at_path(given, REQUIRED)
    keys = {one.get("key") for one in pod["spec"]["tolerations"]}
    assert "kubernetes.azure.com/scalesetpriority" in keys


def test_an_open_pod_gets_the_tolerations_of_rungs_that_came_after_its_object_was_placed() -> None:
    given = a_pod()
    del given["spec"]["tolerations"]
    pod, _ = precise(given, ordered(NOTHING_SCALES))
    assert "kubernetes.azure.com/scalesetpriority" in {one.get("key") for one in pod["spec"]["tolerations"]}


def test_an_open_pod_says_who_keeps_the_order() -> None:
    found = marks_of(precise(a_pod(), ordered(NOTHING_SCALES))[0])
    assert found[OPEN_ANNOTATION] == "open to all its rungs: no autoscaler adds nodes to these pools"
    assert found[RUNG_ANNOTATION] == EVERY
    assert found[WHY_ANNOTATION] == "first attempt, open to all its rungs: no autoscaler adds nodes to these pools"


def test_a_pod_for_one_rung_says_why_it_is_not_open() -> None:
    pod, _ = precise(a_pod(), ordered(IGNORED))
    assert not is_open(pod)
    assert marks_of(pod)[WHY_ANNOTATION].startswith("first attempt, only on spot-a: the cluster autoscaler reads no")
    assert len(conditions(pod)["kubernetes.azure.com/agentpool"]) == 1


@pytest.mark.parametrize(
    ("provider", "seen", "expected"),
    [
        ("aks", UNKNOWN, False),
        ("aks", IGNORED, False),
        ("aks", NOTHING_SCALES, True),
        ("aks", IN_ORDER, True),
        ("aks", IN_ORDER._replace(priorities=read_priorities({10: [".*"]})), False),
        ("aks", IN_ORDER._replace(priorities=read_priorities({10: ["^aks-spot.*"], 20: [".*regular.*"]})), False),
        ("aks", Autoscalers(True, None, True, None, {}), False),  # its ConfigMap cannot be understood
        ("eks", Autoscalers(True, None, True, read_priorities({9: ["spot"], 1: ["."]}), None), True),
        ("gke", IN_ORDER, False),
        ("gke", NOTHING_SCALES, True),
        ("karpenter", Autoscalers(False, None, False, None, {"spot-a": 9, "spot-b": 8, "regular": 1}), True),
        ("karpenter", Autoscalers(False, None, False, None, {"spot-a": 9, "spot-b": 9, "regular": 1}), True),
        ("karpenter", Autoscalers(False, None, False, None, {"spot-a": 9, "spot-b": 9, "regular": 9}), False),
        ("karpenter", Autoscalers(False, None, False, None, {"spot-a": 1, "spot-b": 8, "regular": 9}), False),
        ("karpenter", Autoscalers(False, None, False, None, None), False),
        ("karpenter", NOTHING_SCALES, True),
    ],
)
def test_who_keeps_an_order_of_pools(provider: str, seen: Autoscalers, expected: bool) -> None:
    config = configured(provider)
    assert is_open(precise(a_pod(config), ordered(seen), config)[0]) is expected


def test_pools_of_a_fixed_size_are_open_whatever_is_known() -> None:
    config = configured("aks", min_nodes=2, max_nodes=2)
    assert is_open(precise(a_pod(config), ordered(UNKNOWN), config)[0])


def test_pools_of_one_compute_class_are_open_whatever_is_known() -> None:
    config = configured("gke", labels={"cloud.google.com/compute-class": "spot-first"})
    pod, _ = precise(a_pod(config), ordered(UNKNOWN), config)
    assert is_open(pod)
    assert "ComputeClass spot-first" in marks_of(pod)[OPEN_ANNOTATION]


def test_groups_that_cannot_grow_now_do_not_break_the_order() -> None:
    config = configured("eks")
    groups = {
        name: Group(name, scale_up="Backoff" if "spot" in name else "")
        for name in ("eks-spot-a-1", "eks-spot-b-1", "eks-regular-1")
    }
    seen = IGNORED._replace(status=Status(groups))
    assert is_open(precise(a_pod(config), ordered(seen), config)[0])
    seen = IGNORED._replace(status=Status({name: Group(name) for name in groups}))
    assert not is_open(precise(a_pod(config), ordered(seen), config)[0])


@pytest.mark.parametrize(
    "facts", [taken("spot-a"), AdmissionContext([PastAttempt(waited_in_vain=True, pools=("spot-a",))])]
)
def test_after_an_interruption_or_a_wait_in_vain_the_ladder_decides(facts: AdmissionContext) -> None:
    known = AdmissionContext(facts.history, autoscalers=NOTHING_SCALES)
    pod, _ = precise(a_pod(), known)
    assert marks_of(pod)[RUNG_ANNOTATION] == "spot-b"
    assert not is_open(pod)


def test_an_attempt_that_was_open_and_interrupted_is_followed_by_the_rung_after_that_of_its_node() -> None:
    past = PastAttempt(Cause.INTERRUPTED, tuple(EVERY.split(",")), "spot-b")
    pod, _ = precise(a_pod(), AdmissionContext([past], autoscalers=NOTHING_SCALES))
    assert marks_of(pod)[RUNG_ANNOTATION] == "spot-a"


STAYS = "its Job would count it against backoffLimit 6"


def test_a_pod_that_nobody_takes_back_is_open_whatever_keeps_the_order() -> None:
    for facts in (AdmissionContext(stays=STAYS), AdmissionContext(taken("spot-a").history, stays=STAYS)):
        pod, _ = precise(a_pod(), facts)
        assert is_open(pod)
        assert marks_of(pod)[OPEN_ANNOTATION].endswith(STAYS)


def test_on_the_fall_back_nothing_is_open() -> None:
    pod, _ = precise(
        a_pod(), AdmissionContext(taken("spot-a", "spot-b").history, stays=STAYS, autoscalers=NOTHING_SCALES)
    )
    assert marks_of(pod)[RUNG_ANNOTATION] == "regular"
    assert not is_open(pod)


def test_work_with_one_rung_is_open_to_nothing_else() -> None:
    config = a_config("{default: {spot: require, ladder: [spot-a]}}")
    pod, _ = precise(a_pod(config), AdmissionContext(stays=STAYS, autoscalers=NOTHING_SCALES), config)
    assert marks_of(pod)[RUNG_ANNOTATION] == "spot-a"
    assert OPEN_ANNOTATION not in marks_of(pod)


def test_work_that_stays_off_spot_is_not_open_to_it() -> None:
    config = a_config("{default: {spot: never}}")
    pod, _ = precise(a_pod(config), AdmissionContext(stays=STAYS, autoscalers=NOTHING_SCALES), config)
    assert marks_of(pod)[RUNG_ANNOTATION] == "regular"


def test_a_second_look_at_an_open_pod_changes_nothing() -> None:
    pod, _ = precise(a_pod(), ordered(NOTHING_SCALES))
    for facts in (ordered(IGNORED), taken("spot-a")):
        assert precise(pod, replace(facts, is_admitted=True))[0] == pod


def test_under_kueue_no_pod_is_marked_as_open() -> None:
    given = a_pod()
    given["metadata"].setdefault("labels", {})["kueue.x-k8s.io/podset"] = "main"
    pod, _ = precise(given, ordered(NOTHING_SCALES))
    assert OPEN_ANNOTATION not in marks_of(pod)
    assert RUNG_ANNOTATION not in marks_of(pod)
    assert pod["spec"]["affinity"] == given["spec"]["affinity"]


@pytest.mark.parametrize(
    ("first", "second"), [(NOTHING_SCALES, IGNORED), (IGNORED, NOTHING_SCALES), (UNKNOWN, IN_ORDER)]
)
def test_the_pods_of_a_set_have_one_answer_whatever_each_sees(first: Autoscalers, second: Autoscalers) -> None:
    content, pods = Content(), []
    for seen in (first, second, first):
        facts = ordered(seen, agree=lambda rungs, pools: agree_in(content, "set/0", str(rungs), pools))
        pods.append(precise(a_pod(), facts)[0])
    assert len({marks_of(pod)[RUNG_ANNOTATION] for pod in pods}) == 1
    assert len({is_open(pod) for pod in pods}) == 1
    assert len({str(pod["spec"]["affinity"]) for pod in pods}) == 1
    assert is_open(pods[0]) is (first is NOTHING_SCALES)


def test_a_pod_of_a_set_that_could_not_be_taken_back_follows_its_set() -> None:
    pod, _ = precise(a_pod(), AdmissionContext(stays=STAYS, agree=lambda *_: ("spot-b",)))
    assert marks_of(pod)[RUNG_ANNOTATION] == "spot-b"
    pod, _ = precise(a_pod(), ordered(IGNORED, agree=lambda rungs, _: tuple(name for one in rungs for name in one)))
    assert is_open(pod)
    assert "as the first pod of its set" in marks_of(pod)[WHY_ANNOTATION]


def test_conditions_that_only_the_run_decides_leave_a_pod_as_place_wrote_it() -> None:
    given = a_pod()
    given["spec"]["nodeSelector"] = {"pool": "{{inputs.parameters.pool}}"}
    before = copy.deepcopy(given["spec"].get("affinity"))
    pod, _ = precise(given, ordered(NOTHING_SCALES))
    assert pod["spec"].get("affinity") == before
    assert OPEN_ANNOTATION not in marks_of(pod)
