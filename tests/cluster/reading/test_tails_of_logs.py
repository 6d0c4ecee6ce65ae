"""Where no store keeps logs their ends are read from the attempts' objects, with the caller's rights and without a controller."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.reading.served import spotwright
from tests.cluster.records.record_server import RecordServer, login, recording_server
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import done, job, pod

from spotwright.cluster.api_run_records import ApiRecords
from spotwright.cluster.followed_run import FollowedRun, TailText
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.recorded_runs import RecordedRuns
from spotwright.cluster.run_objects import ATTEMPT, RUN, records_path
from spotwright.cluster.shown_runs import LogsKept
from spotwright.records.reader import follow_logs

TRAIN = job(backoffLimit=3)


class Recorded:
    """A Job of which one pod runs, in the API."""

    def __init__(self, folder: Path, server: RecordServer, kubeconfig: Path, kubernetes: Kubernetes) -> None:
        self.server, self.kubeconfig, self.kubernetes = server, kubeconfig, kubernetes
        self.cluster = Cluster(folder / "unused", ApiRecords(kubernetes))
        self.cluster.look(TRAIN, pod("one", TRAIN, node="n1", phase="Running"))

    def say(self, kept: LogsKept | None) -> None:
        """Publish where logs are stored, as the recorder does; None: it has not said so yet."""
        (found,) = self.server.kept(RUN)
        shown = [] if kept is None else [{"type": kept.condition.type, "reason": kept.value, "status": "True"}]
        path = records_path(RUN, "team-a", found["metadata"]["name"])
        operations = [{"op": "add", "path": "/status/conditions", "value": shown}]
        self.kubernetes.call(self.kubernetes.api.send("PATCH", path, operations))

    def write(self, tail: str, size: int, *, attempt: int = 1, is_over: bool = False) -> None:
        """Write the end of the log, as the recorder does."""
        (found,) = [each for each in self.server.kept(ATTEMPT) if each["spec"]["attempt"] == attempt]
        told = {"logTail": tail, "logBytes": size, "logComplete": is_over}
        operations = [{"op": "add", "path": f"/status/{name}", "value": value} for name, value in told.items()]
        path = records_path(ATTEMPT, "team-a", found["metadata"]["name"])
        self.kubernetes.call(self.kubernetes.api.send("PATCH", path, operations))

    def end(self) -> None:
        """The Job succeeds."""
        train = {**TRAIN, "status": done()}
        self.cluster.look(train, pod("one", train, node="n1", phase="Succeeded", exit_code=0))

    def read(self, *words: str) -> Any:
        return spotwright(*words, "--cluster", "-n", "team-a", "--kubeconfig", str(self.kubeconfig))


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        yield Recorded(tmp_path, server, kubeconfig, kubernetes)


def test_the_end_of_a_log_is_shown_with_what_is_left_out(recorded: Recorded) -> None:
    recorded.write("lä\nlast\n", 5000)
    found = recorded.read("logs", "job/train", "train", "1")
    said = "[spotwright: 4,991 bytes are missing here: whole logs are not stored]\n"
    assert (found.code, found.out, found.err) == (0, f"{said}lä\nlast\n", "")
    recorded.end()
    recorded.write("all\n", 4, is_over=True)
    assert json.loads(recorded.read("logs", "job/train", "--json").out)[0]["text"] == "all\n"


def test_an_attempt_that_has_written_nothing_asks_no_controller(recorded: Recorded) -> None:
    recorded.write("", 0, is_over=True)
    found = recorded.read("logs", "job/train", "train", "1")
    assert (found.code, found.out, found.err) == (0, "", "")


@pytest.mark.parametrize("kept", [LogsKept.OBJECT_STORE, LogsKept.VOLUME, None])
def test_for_a_log_in_a_store_the_controller_is_asked_and_missed(recorded: Recorded, kept: LogsKept | None) -> None:
    recorded.say(kept)
    found = recorded.read("logs", "job/train", "train", "1")
    assert found.code == 2
    assert "no Spotwright controller in namespace spotwright" in found.err


@pytest.mark.parametrize("kept", [LogsKept.TAIL_ONLY, LogsKept.NONE])
def test_where_no_store_keeps_logs_an_attempt_without_an_end_has_none(recorded: Recorded, kept: LogsKept) -> None:
    recorded.say(kept)
    found = recorded.read("logs", "job/train", "train", "1")
    assert (found.code, found.out, found.err) == (0, "", "")


def test_each_attempt_is_read_from_where_its_own_log_is(recorded: Recorded) -> None:
    recorded.cluster.look(
        TRAIN,
        pod("one", TRAIN, node="n1", phase="Failed", exit_code=1),
        pod("two", TRAIN, node="n1", phase="Running"),
    )
    recorded.write("the end\n", 8, is_over=True)
    recorded.say(LogsKept.OBJECT_STORE)
    whole = {2: b"second\n"}
    run = FollowedRun(
        recorded.kubernetes,
        "team-a",
        recorded.server.kept(RUN)[0]["metadata"]["name"],
        read_log=lambda _task, attempt, _environment, offset, at_most: whole.get(attempt, b"")[offset:][
            : at_most if at_most >= 0 else None
        ],
        others=lambda _: None,
        is_recorded=lambda _: True,
    )
    run.read_all()
    assert [run.read_log("train", attempt, "", 0) for attempt in (1, 2)] == [b"the end\n", b"second\n"]
    assert run.read_log("train", 2, "", 3, 2) == b"on"
    recorded.write("cond\n", 7, attempt=2)
    run.read_all()
    assert run.read_log("train", 2, "", 0) == b"second\n", "a store has taken it over since"
    whole.clear()
    assert run.read_log("train", 2, "", 0) == b"", "a reader stays with what it has begun"


def test_a_followed_log_grows_as_soon_as_its_end_is_written_and_nothing_is_listed_meanwhile(recorded: Recorded) -> None:
    recorded.write("one\n", 4)
    seen: list[tuple[float, str]] = []

    def follow() -> None:
        kubernetes = Kubernetes(kubeconfig=str(recorded.kubeconfig))
        for _, text in follow_logs(RecordedRuns(kubernetes).open("job/train")):
            seen.append((time.monotonic(), text))
        kubernetes.close()

    def until_seen(text: str) -> None:
        deadline = time.monotonic() + 20
        while text not in "".join(each for _, each in seen):
            assert time.monotonic() < deadline, seen
            time.sleep(0.01)

    thread = threading.Thread(target=follow)
    thread.start()
    until_seen("one\n")
    while not any("watch=true" in each for each in recorded.server.asked):
        time.sleep(0.01)
    listed = len([each for each in recorded.server.asked if "limit=" in each])
    recorded.write("one\ntwo\n", 8)
    until_seen("two\n")
    recorded.write("after\n", 100)
    until_seen("after\n")
    recorded.write("after\nend\n", 104, is_over=True)
    recorded.end()
    thread.join(20)
    assert not thread.is_alive()
    assert "".join(text for _, text in seen) == (
        "one\ntwo\n[spotwright: 86 bytes are missing here: whole logs are not stored]\nafter\nend\n"
    )
    asked = [each for each in recorded.server.asked if "limit=" in each and "spotruns" not in each]
    assert len(asked) - listed <= 1, "what is heard is not listed again"


def test_a_watch_that_ends_is_opened_again_after_all_was_read(recorded: Recorded) -> None:
    kubernetes, server = Kubernetes(kubeconfig=str(recorded.kubeconfig)), recorded.server
    assert server.loop is not None
    try:
        reader = RecordedRuns(kubernetes).open("job/train")
        recorded.write("", 0)
        reader.refresh()
        whole = ""
        for number in range(3):
            reader.source.pause(0.0)
            asyncio.run_coroutine_threadsafe(server.cut(), server.loop).result(20)
            whole += f"{number}\n"
            recorded.write(whole, len(whole))
            deadline = time.monotonic() + 20
            while reader.source.read_log("train", 1, "", 0).decode() != whole:
                assert time.monotonic() < deadline
                reader.source.pause(0.0)
                reader.refresh()
    finally:
        kubernetes.close()


def test_the_text_of_an_end_only_grows() -> None:
    text = TailText()
    steps = [("ab\n", 3, "ab\n"), ("ab\n", 3, "ab\n"), ("b\nc", 4, "ab\nc"), ("", 0, "ab\nc"), ("xyz", 10, None)]
    for tail, size, expected in steps:
        text.take({"logTail": tail, "logBytes": size})
        assert expected is None or text.text.decode() == expected
    assert text.text.decode() == "ab\nc\n[spotwright: 3 bytes are missing here: whole logs are not stored]\nxyz"
