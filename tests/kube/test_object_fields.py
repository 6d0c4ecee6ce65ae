"""Fields of Kubernetes' objects: times, owners, and what is malformed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.cluster.signals import event_time, transition
from spotwright.cluster.workloads import attempts_of, outcome_of
from spotwright.kube.object_fields import Owner, controller_of, seconds
from spotwright.notices.node_event import event_of as event_of_notice
from spotwright.notices.node_event import notice_in
from spotwright.notices.notice import Notice

ZERO = "0001-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "value", [ZERO, "0001-01-01T00:00:00+14:00", "1970-01-01T00:00:00Z", None, "", "soon", 20261129, [], {}]
)
def test_a_missing_a_malformed_and_a_zero_time_are_no_time(value: Any) -> None:
    assert seconds(value) is None


@given(
    st.datetimes(datetime.fromisoformat("1970-01-02"), datetime.fromisoformat("9999-12-30")),
    st.integers(-14 * 60, 14 * 60),
)
def test_a_time_means_the_same_in_each_form(at: datetime, offset: int) -> None:
    moment = at.replace(tzinfo=UTC)
    elsewhere = moment + timedelta(minutes=offset)
    sign, left = "-" if offset < 0 else "+", abs(offset)
    texts = [
        f"{at.isoformat()}Z",
        f"{elsewhere.replace(tzinfo=None).isoformat()}{sign}{left // 60:02d}:{left % 60:02d}",
        at.isoformat(),
    ]
    assert {seconds(each) for each in (*texts, at, moment)} == {moment.timestamp()}


def test_a_time_with_nanoseconds_is_read() -> None:
    assert seconds("2026-11-29T05:30:00.123456789Z") == pytest.approx(seconds("2026-11-29T05:30:00Z") + 0.123456)  # type: ignore[operator]


def test_a_zero_time_is_no_time_wherever_it_stands() -> None:
    condition = {"type": "Complete", "status": "True", "lastTransitionTime": ZERO}
    job = {"kind": "Job", "metadata": {}, "status": {"conditions": [condition]}}
    ended = {"finishedAt": ZERO, "startedAt": ZERO, "exitCode": 0}
    pod = {
        "metadata": {"uid": "u", "creationTimestamp": ZERO},
        "spec": {"nodeName": "n", "containers": [{"name": "main"}]},
        "status": {
            "phase": "Succeeded",
            "containerStatuses": [{"name": "main", "restartCount": 0, "state": {"terminated": ended}}],
        },
    }
    notice = event_of_notice(Notice(100.0, "interruption", "aws", certain=True, reason="taken", id="i"), "n", "b", 50.0)
    notice["metadata"]["creationTimestamp"] = ZERO
    outcome = outcome_of(job)
    assert outcome is not None
    assert outcome.at is None
    assert transition(job, "Complete") is None
    assert event_time({"lastTimestamp": ZERO, "eventTime": "2026-11-29T05:30:00Z"}) > 0
    assert [(each.made_at, each.ended_at) for each in attempts_of(pod, is_gone=False)] == [(None, None)]
    assert notice_in(notice) is None


def test_the_controller_alone_owns_an_object() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    other = {**job, "name": "other", "controller": False}
    assert controller_of({"metadata": {"ownerReferences": [None, other, job]}}) == Owner(
        "batch/v1", "Job", "train", "u"
    )
    assert Owner("batch/v1", "Job").group_kind == ("batch", "Job")
    assert Owner("v1", "Pod").group_kind == ("", "Pod")


@pytest.mark.parametrize("references", [None, [], "job", [None, 1], [{"controller": False}]])
def test_an_object_without_a_controller_has_no_owner(references: Any) -> None:
    assert controller_of({"metadata": {"ownerReferences": references}}) is None
