"""An attempt whose machine lost its power ended after the last proof that it lived, and before its absence was known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.watching.days import NODES, PODS, Day, day
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import BEGIN, SPOT, at, job, node, pod
from tests.views.builders import START, Story, a_plan, a_task

from spotwright.cluster.last_proofs import last_proof
from spotwright.engine.state import AttemptState
from spotwright.model.attempts import Cause
from spotwright.views.account import account
from spotwright.views.account_report import money_lines, report_json
from spotwright.views.run_json import run_view
from spotwright.views.run_rows import run_title
from spotwright.views.run_text import show_text
from spotwright.views.text import span

Object = dict[str, Any]

CUT = 22.4
"""The moment of the cut, in seconds after the begin: what the program itself knows."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    made.now = BEGIN + 5.0
    yield made
    made.store.close()


TRAIN = job(backoffLimit=3)
RUNNING = pod("one", TRAIN, made=0, node="n1", phase="Running")


def log_ends(cluster: Cluster, second: float) -> None:
    """Let the last line of each log be of a moment."""
    cluster.view.last_line = lambda _key: BEGIN + second


def fall_silent(cluster: Cluster, second: float, heartbeat: float | None = None) -> None:
    """Let the node controller mark the node, which it does 50 s after its last Lease by default."""
    silent = node("n1", ready="Unknown", **SPOT)
    silent["status"]["conditions"][0] |= {"lastTransitionTime": at(second)}
    if heartbeat is not None:
        silent["status"]["conditions"][0] |= {"lastHeartbeatTime": at(heartbeat)}
    cluster.view.put_node(silent)


def given_up(second: float, reason: str = "DeletionByTaintManager", phase: str = "Running", **more: Any) -> Object:
    """The pod, marked and deleted by Kubernetes at a time: its container runs by the kubelet's last status."""
    made = pod("one", TRAIN, made=0, node="n1", phase=phase, **more)
    mark = {"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": at(second)}
    not_ready = {"type": "Ready", "status": "False", "lastTransitionTime": at(second)}
    made["status"]["conditions"] += [mark, not_ready]
    made["status"]["startTime"] = at(1)
    return made


approx: Any = pytest.approx  # so that a tuple with it may equal one of numbers


def end_of(cluster: Cluster) -> tuple[float, float, str]:
    """The earliest and the latest end of the first attempt, in seconds after the begin, and the last proof of its life."""
    first: AttemptState = cluster.state().tasks["train"].attempts[0]
    assert first.ended is not None
    assert first.ended_at is not None
    assert first.ended.ended_by is not None
    return first.ended_at - BEGIN, first.ended.ended_by - BEGIN, first.ended.proof


def test_a_node_that_falls_silent_first(cluster: Cluster) -> None:
    cluster.look(TRAIN, RUNNING)
    log_ends(cluster, 22.1)
    fall_silent(cluster, 72)
    cluster.now = BEGIN + 372.0
    cluster.look(TRAIN, given_up(372, deletionTimestamp=at(402), deletionGracePeriodSeconds=30))

    assert end_of(cluster) == (approx(22.1), 72, "the last line of its log")
    assert cluster.state().tasks["train"].last.cause is Cause.LOST


def test_a_node_object_that_is_deleted_within_a_second(cluster: Cluster) -> None:
    """Garbage collection marks the pod as Failed, without its container's end: it was recorded with 0.0 s."""
    cluster.look(TRAIN, RUNNING)
    log_ends(cluster, 22.1)
    cluster.now = BEGIN + 23.0
    cluster.view.delete_node(node("n1", **SPOT))
    cluster.look(TRAIN, RUNNING)
    cluster.now = BEGIN + 74.0
    cluster.look(TRAIN, given_up(74, "DeletionByPodGC", phase="Failed"), gone=("one",))

    assert end_of(cluster) == (approx(22.1), 23, "the last line of its log")
    (attempt,) = run_view(cluster.state(), "train", cluster.now)["tasks"][0]["attempts"]
    assert attempt["seconds"] == approx(21.1)
    assert attempt["cost"]["money"] > 0.0
    assert (attempt["ended_by"], attempt["last_proof"]) == (BEGIN + 23, "the last line of its log")


def test_show_and_the_account_name_the_range_and_its_proof(cluster: Cluster) -> None:
    cluster.look(TRAIN, RUNNING)
    log_ends(cluster, 22.1)
    fall_silent(cluster, 72)
    cluster.now = BEGIN + 372.0
    cluster.look(TRAIN, given_up(372, deletionTimestamp=at(402), deletionGracePeriodSeconds=30))
    view = run_view(cluster.state(), "train", cluster.now)
    shown = " ".join(show_text(view).split())

    says = "it ended 21s to 1m11s after its start: the last proof of its life is the last line of its log"
    assert f"its node stopped reporting; {says}" in shown
    made = account(cluster.state())
    assert report_json(made)["attempts_by_start"][0]["ended_by"] == BEGIN + 72
    (cost,) = made.attempts_by_start
    assert (float(cost.seconds), float(cost.uncounted.seconds)) == (approx(21.1), approx(49.9 / 2))
    told = " ".join(" ".join(money_lines(made)).split())
    assert "more, since the end of 1 attempt was not reported: counted up to the last proof of life" in told


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_no_duration_that_people_read_is_below_zero(seconds: float, since: float) -> None:
    """A clock that is set back by a day made a run that "failed after -23h59m"."""
    assert not span(seconds).startswith("-")
    story = Story(a_plan(a_task("train")))
    story.state.started_at = START + since
    view = run_view(story.state, "iris", START)
    assert view["seconds"] >= 0.0
    assert "-" not in run_title({**view, "seconds": seconds, "status": "failed"}).partition("after")[2]


@pytest.mark.parametrize("leaves", ["nothing", "marked"])
def test_a_cut_while_the_controller_is_away(cluster: Cluster, leaves: str) -> None:
    cluster.look(TRAIN, RUNNING)
    cluster.kill()
    log_ends(cluster, 20.7)
    fall_silent(cluster, 72)
    cluster.now = BEGIN + 500.0
    second = pod("two", TRAIN, made=78, node="n2", phase="Running")
    left = [] if leaves == "nothing" else [given_up(74, deletionTimestamp=at(104), deletionGracePeriodSeconds=30)]
    cluster.look(TRAIN, *left, second)

    earliest, latest, proof = end_of(cluster)
    assert earliest <= CUT <= latest
    assert (earliest, latest, proof) == (approx(20.7), 72, "the last line of its log")


def test_a_machine_that_boots_again_ended_its_container_before(cluster: Cluster) -> None:
    cluster.look(TRAIN, RUNNING)
    log_ends(cluster, 22.1)
    cluster.now = BEGIN + 60.0
    back = pod("one", TRAIN, made=0, node="n1", phase="Failed", exit_code=255, ended=50)
    back["status"]["containerStatuses"][0]["state"]["terminated"] |= {"reason": "Unknown", "startedAt": at(2)}
    cluster.look(TRAIN, back)

    assert end_of(cluster) == (approx(22.1), 50, "the last line of its log")


def test_without_a_log_the_lease_of_the_node_tells(cluster: Cluster) -> None:
    cluster.look(TRAIN, RUNNING)
    fall_silent(cluster, 72, heartbeat=9)
    cluster.view.put_lease("n1", BEGIN + 18.5)
    cluster.now = BEGIN + 372.0
    cluster.look(TRAIN, given_up(372, deletionTimestamp=at(402), deletionGracePeriodSeconds=30))

    assert end_of(cluster) == (18.5, 72, "the Lease of its node")


def test_without_a_lease_the_heartbeat_of_the_node_tells(cluster: Cluster) -> None:
    cluster.look(TRAIN, RUNNING)
    fall_silent(cluster, 72, heartbeat=9)
    cluster.now = BEGIN + 372.0
    cluster.look(TRAIN, given_up(372, deletionTimestamp=at(402), deletionGracePeriodSeconds=30))

    assert end_of(cluster) == (9, 72, "the heartbeat of its node")


def test_what_a_machine_says_after_its_boot_proves_nothing_of_before(cluster: Cluster) -> None:
    cluster.look(TRAIN, RUNNING)
    log_ends(cluster, 22.1)
    cluster.view.put_lease("n1", BEGIN + 58.0)
    cluster.now = BEGIN + 60.0
    back = pod("one", TRAIN, made=0, node="n1", phase="Failed", exit_code=255, ended=50)
    back["status"]["containerStatuses"][0]["state"]["terminated"] |= {"reason": "Unknown", "startedAt": at(2)}
    cluster.look(TRAIN, back)

    assert end_of(cluster)[0] == approx(22.1)


def test_an_end_that_its_kubelet_tells_is_a_moment(cluster: Cluster) -> None:
    cluster.look(TRAIN, RUNNING)
    log_ends(cluster, 8.0)
    cluster.now = BEGIN + 60.0
    cluster.look(TRAIN, pod("one", TRAIN, made=0, node="n1", phase="Failed", exit_code=1, ended=9))
    first = cluster.state().tasks["train"].attempts[0]
    assert first.ended is not None

    assert (first.ended_at, first.ended.ended_by, first.ended.proof) == (BEGIN + 9, None, "")


FORMS = ("silent", "deleted", "away")


@given(
    form=st.sampled_from(FORMS),
    cut=st.floats(5.0, 300.0),
    since_line=st.floats(0.0, 4.0) | st.none(),
    since_lease=st.floats(0.0, 10.0) | st.none(),
    grace=st.floats(12.0, 60.0),
    gone_after=st.floats(0.05, 3.0),
)
def test_whatever_is_known_the_range_contains_the_cut(
    form: str, cut: float, since_line: float | None, since_lease: float | None, grace: float, gone_after: float
) -> None:
    proofs = {
        "line": None if since_line is None else cut - since_line,
        "lease": None if since_lease is None else cut - since_lease,
    }
    silent, gone, given_up = cut + grace, cut + gone_after, cut + grace + 300.0
    absences = {"silent": (silent, given_up), "deleted": (None, given_up, gone), "away": (None, None)}[form]

    end = last_proof(0.0, proofs, absences, cut + 1000.0)
    assert end.by is not None
    assert end.at <= cut <= end.by
    assert end.by - end.at <= {"silent": grace, "deleted": gone_after, "away": 1000.0}[form] + (
        cut if not any(proofs.values()) else 10.0
    )


@given(st.lists(st.floats(-100, 400) | st.none(), max_size=4), st.lists(st.floats(-100, 400) | st.none(), max_size=4))
def test_whatever_clocks_say_an_end_is_between_the_begin_and_now(
    proofs: list[float | None], absences: list[float | None]
) -> None:
    end = last_proof(10.0, {str(number): each for number, each in enumerate(proofs)}, absences, 200.0)
    assert end.by is not None

    assert 10.0 <= end.at <= end.by <= 200.0


LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@pytest.mark.parametrize("how", ["silent", "deleted"])
def test_the_lease_of_a_node_is_read_once_when_it_is_lost_and_has_pods(tmp_path: Path, how: str) -> None:
    async def test(made: Day) -> None:
        made.server.put(LEASES, "n1", spec={"renewTime": "2027-01-15T08:00:18.500000Z"})
        made.put(NODES, node("n2", **SPOT))
        await made.start_with_a_running_job("train")
        reading = asyncio.create_task(made.watcher.read_leases())
        try:
            for name in ("n1", "n2"):
                if how == "silent":
                    made.put(NODES, node(name, ready="Unknown", **SPOT))
                else:
                    made.server.delete(NODES, name)
            await made.until(lambda: made.watcher._view.renewed_at("n1"), "the Lease")
        finally:
            reading.cancel()
        assert made.watcher._view.renewed_at("n1") == BEGIN + 18.5
        assert [each for each in made.server.asked if "leases" in each] == [f"GET {LEASES}/n1"]
        made.server.delete(PODS, "one")

    day(tmp_path / "state", test)


def test_where_leases_may_not_be_read_the_log_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.json_response({"message": "leases is forbidden"}, status=403)

    async def test(made: Day) -> None:
        made.server.pages = {f"{LEASES}/{name}": refuse for name in ("n1", "n2")}
        await made.start_with_a_running_job("train")
        leases = made.watcher._leases
        reading = asyncio.create_task(leases.run())
        try:
            leases.ask("n1")
            leases.ask("n2")
            await made.until(lambda: leases._is_refused, "the refusal")
            leases.ask("n1")
        finally:
            reading.cancel()

    day(tmp_path / "state", test)
    assert sum("until when lost nodes lived" in each.message for each in caplog.records) == 1
