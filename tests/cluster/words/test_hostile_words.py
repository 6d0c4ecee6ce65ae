"""Many users can forge an autoscaler's messages: none stops the watcher, and the stored ones are bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cluster.watching.watched_objects import at
from tests.cluster.words import said
from tests.cluster.words.said import AKS, KARPENTERS, event, hear, means, no_offering, pools, status, triggered

from spotwright.cluster import autoscaler_status
from spotwright.cluster.autoscaler_status import PROVISIONER, AutoscalerStatus, is_word, slim_word
from spotwright.engine.waits import NODE_ORDERED

LONG = "x" * 1_000_000
ODD: list[Any] = [None, 3, True, "text", [], ["a"], {}, {"a": []}, [[{}]], LONG]


def test_only_words_of_autoscalers_in_enabled_namespaces_are_taken() -> None:
    assert is_word(triggered(), {"team-a"})
    assert not is_word(triggered(), {"team-b"})
    assert not is_word(event("FailedScheduling", source="default-scheduler"), {"team-a"})
    assert not is_word(event("TriggeredScaleUp", source=PROVISIONER), {"team-a"})
    assert not is_word(event("Nominated"), {"team-a"})
    assert is_word(event("Nominated", source=PROVISIONER), {"team-a"})


def test_events_about_node_pools_count_in_the_namespace_alone_in_which_karpenter_writes_them() -> None:
    assert is_word(no_offering(), set())
    assert not is_word(no_offering(namespace="team-a"), {"team-a"})


@pytest.mark.parametrize("reason", ["", "Deleted"])
def test_no_other_reason_about_a_node_pool_is_taken(reason: str) -> None:
    assert not is_word({**no_offering(), "reason": reason}, set())


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "field", ["involvedObject", "reason", "message", "source", "reportingComponent", "lastTimestamp", "series"]
)
def test_an_event_with_an_odd_field_is_no_fault(field: str, odd: Any) -> None:
    made = {**triggered(), field: odd}
    is_word(made, {"team-a"})
    words = hear(triggered(5))
    words.put_event(slim_word(made))
    words.put_event(made)
    means(words, ["cpuspot"], pools(AKS))


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("path", ["metadata.labels", "metadata.name", "status", "status.conditions"])
def test_a_node_claim_with_an_odd_field_is_no_fault(path: str, odd: Any) -> None:
    made: Any = said.claim()
    *above, last = path.split(".")
    inner = made
    for name in above:
        inner = inner[name]
    inner[last] = odd
    words = AutoscalerStatus()
    words.put_claim(made)
    means(words, ["cpu-spot"], pools(KARPENTERS))


@pytest.mark.parametrize("odd", ODD)
def test_a_status_with_an_odd_part_is_no_fault(odd: Any) -> None:
    known = pools(AKS)
    for text in (odd, json.dumps(odd), json.dumps({"nodeGroups": odd}), json.dumps({"nodeGroups": [odd]})):
        words = AutoscalerStatus()
        words.put_status({"data": {"status": text}})
        means(words, ["cpuspot"], known)
    for parts in ({"health": odd}, {"scaleUp": odd}, {"health": {"nodeCounts": odd, "maxSize": odd}}, {"name": odd}):
        words = AutoscalerStatus()
        words.put_status({"data": {"status": json.dumps({"nodeGroups": [{"name": said.SPOT_GROUP, **parts}]})}})
        means(words, ["cpuspot"], known)
    words = AutoscalerStatus()
    words.put_status({"data": odd})
    assert words.problem


def test_a_long_message_is_cut_before_it_is_kept_and_before_it_is_told() -> None:
    long = f"all available instance types exceed limits for nodepool {LONG}"
    slim = slim_word(said.of_karpenter("FailedScheduling", long))
    assert len(slim["message"]) == 2000
    told = means(hear(said.of_karpenter("FailedScheduling", long)), ["cpu-spot"], pools(KARPENTERS))
    assert told is not None
    assert len(told.words) <= 400
    told = means(hear(triggered(group=LONG)), ["cpuspot"], pools(AKS))
    assert told is not None
    assert len(told.words) <= 400


def test_a_message_with_many_groups_is_told_in_short() -> None:
    message = " ".join(f"{{group-{number} 0->1 (max: 10)}}" for number in range(50_000))
    told = means(hear(event("TriggeredScaleUp", message)), ["cpuspot"], pools(AKS))
    assert told is not None
    assert len(told.words) <= 400


def test_a_name_with_control_characters_stays_in_one_line() -> None:
    for heard in (
        triggered(group="aks-cpuspot\x1b[31m-1"),
        said.of_karpenter("FailedScheduling", "exceed limits for nodepool\ntwo\x1b[2J\x07three"),
        status({**said.group(target=1), "name": "aks-cpuspot-\n\x1b[31m"}),
        status(
            {
                **said.group(state="Backoff"),
                "scaleUp": {"status": "Backoff", "moved": 0, "backoffInfo": {"errorCode": "a\nb\x1b"}},
            }
        ),
    ):
        known = pools(AKS, KARPENTERS)
        told = means(hear(heard), ["cpuspot"], known) or means(hear(heard), ["cpu-spot"], known)
        assert told is not None
        assert told.words.isprintable(), repr(told.words)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoscaler_status, "_KEPT", 100)
    monkeypatch.setattr(autoscaler_status, "_KEPT_OF_NAMESPACE", 100)
    words = AutoscalerStatus()
    for number in range(500):
        words.put_event(event("TriggeredScaleUp", about={"kind": "Pod", "uid": f"uid-{number}"}))
        words.put_event(no_offering(f"pool-{number}"))
    (of_namespace,) = words._words.values()
    assert len(of_namespace) == len(words._refusals) == 100
    assert ("uid-499", autoscaler_status.SCALER) in of_namespace


@pytest.mark.long
def test_many_groups_are_read_up_to_a_limit() -> None:
    groups = [said.group(f"aks-cpuspot-{number}", target=1) for number in range(6_000)]
    assert len(str(status(*groups)["data"]["status"])) > 1_000_000
    words = hear(status(*groups))
    assert "more than 1000000 characters" in words.problem
    assert means(words, ["cpuspot"], pools(AKS)) is None


def test_times_in_the_future_or_before_all_time_are_no_fault() -> None:
    for when in ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", at(10)[:-1], "yesterday"):
        words = hear({**triggered(), "lastTimestamp": when})
        means(words, ["cpuspot"], pools(AKS))
    words = hear({**triggered(), "lastTimestamp": "9999-12-31T23:59:59Z"})
    told = means(words, ["cpuspot"], pools(AKS))
    assert told is None or told.kind == NODE_ORDERED
