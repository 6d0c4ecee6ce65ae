"""The watching thread calls back once for each change, and outlives every failure of a source."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.notices.servers import Callback, Server, answer, json_answer, wait_until

from spotwright.local.attempt_orders import NOTICE, write_notice
from spotwright.notices import Notice, NoticeWatch, Source, SourceError, from_environment
from spotwright.notices.sources import PORT, FileSource, NodeAgentSource

pytestmark = pytest.mark.usefixtures("patient_clients")

SOME = Notice(2e9, "interruption", "fake", certain=True, reason="x")


class Fake:
    """A source that gives one answer after another; the last one forever, slowly."""

    name = "fake"

    def __init__(self, *says: Callable[[], Notice | None] | Notice | None) -> None:
        self.says = list(says)
        self.asked = 0

    def wait(self, timeout: float) -> Notice | None:
        assert timeout > 0
        self.asked += 1
        reply = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        return reply() if callable(reply) else reply


def fails() -> Notice | None:
    raise SourceError("fake: cannot be asked")


@pytest.fixture
def watching() -> Iterator[Callable[[Source, Callback], NoticeWatch]]:
    watches: list[NoticeWatch] = []

    def start(source: Source, callback: Callback) -> NoticeWatch:
        watch = NoticeWatch(source, callback)
        watches.append(watch)
        watch.start()
        return watch

    yield start
    for watch in watches:
        watch.stop(120)


Watching = Callable[[Source, Callback], NoticeWatch]


def test_a_change_calls_back_once(watching: Watching) -> None:
    callback = Callback()
    source = Fake(None, SOME, SOME, SOME, None, None)
    watching(source, callback)
    wait_until("everything was reply", lambda: source.asked > 5)
    assert callback.notices == [SOME, None]


def test_the_present_notice_can_be_read(watching: Watching) -> None:
    watch = watching(Fake(SOME), Callback())
    wait_until("the notice", lambda: watch.current is SOME)
    assert watch.answered
    assert not watch.problem


def test_a_source_that_fails_is_asked_again(watching: Watching) -> None:
    callback = Callback()
    watch = watching(Fake(fails, fails, SOME), callback)
    wait_until("the notice", lambda: callback.notices)
    assert watch.current is SOME


def test_a_notice_stays_while_its_source_cannot_be_asked(watching: Watching) -> None:
    """A node that is reclaimed takes its metadata server with it."""
    callback = Callback()
    watch = watching(Fake(SOME, fails), callback)
    wait_until("the failure", lambda: watch.problem)
    assert watch.current is SOME
    assert callback.notices == [SOME]
    assert watch.problem == "fake: cannot be asked"


def test_a_source_that_does_not_wait_uses_little_processor_time(watching: Watching) -> None:
    source = Fake(None)
    began = time.monotonic()
    watching(source, Callback())
    wait_until("a few questions", lambda: source.asked >= 4)
    assert time.monotonic() - began > 0.5


def test_an_error_in_the_callback_is_shown_and_the_next_notice_still_comes(capsys: pytest.CaptureFixture[str]) -> None:
    record = Callback()

    def callback(notice: Notice | None) -> None:
        record(notice)
        raise ValueError("of the user's own")

    watch = NoticeWatch(Fake(SOME, None), callback)
    watch.start()
    wait_until("both", lambda: len(record.notices) == 2)
    watch.stop(120)
    assert "ValueError: of the user's own" in capsys.readouterr().err


def test_after_stop_the_callback_is_not_called() -> None:
    callback, held = Callback(), threading.Event()

    def late() -> Notice | None:
        held.wait(10)
        return SOME

    watch = NoticeWatch(Fake(late), callback)
    watch.start()
    watch.stop()
    held.set()
    watch.stop(120)
    assert callback.notices == []


def test_its_thread_does_not_keep_a_program_alive() -> None:
    watch = NoticeWatch(Fake(None), Callback())
    watch.start()
    assert watch._thread is not None
    assert watch._thread.daemon
    watch.stop(120)


def test_a_file_calls_back_and_is_read_several_times_a_second(watching: Watching, tmp_path: Path) -> None:
    callback = Callback()
    source = FileSource(tmp_path / NOTICE)
    watch = watching(source, callback)
    wait_until("the first look", lambda: watch.answered)
    at = time.time()
    write_notice(tmp_path, at, at + 30, "why")
    wait_until("the notice", lambda: callback.notices)
    assert source.interval < 0.5


def test_a_clock_that_is_set_while_it_watches_is_followed(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that is left is callback, so that after a jump the end is another moment of the same distance."""
    left = {"format": "spotwright-notice/1", "state": "a1", "notice": notice_json(seconds_left=30.0)}
    callback = Callback()
    with Server(lambda _: json_answer(left)) as server:
        watching(NodeAgentSource(f"{server.url}/notice"), callback)
        wait_until("the notice", lambda: callback.notices)
        first, began, real = latest_end(callback), callback.at[0], time.time
        monkeypatch.setattr("spotwright.notices.sources.time.time", lambda: real() + 3600)
        wait_until("the notice after the jump", lambda: latest_end(callback) - first >= 3600)
        monkeypatch.undo()
    assert latest_end(callback) - first <= 3600 + time.time() - began


def latest_end(callback: Callback) -> float:
    return max(notice.ends_at for notice in callback.notices if notice is not None)


def notice_json(**changes: object) -> dict[str, object]:
    return {
        "ends_at": 2e9, "seconds_left": 30.0, "kind": "interruption", "source": "azure", "certain": True, "reason": "x",
        **changes,
    }  # fmt: skip


@pytest.mark.parametrize("bad", [answer("", 500), answer("<html>"), b"", b"garbage\r\n\r\n", answer("{}")])
def test_a_server_that_fails_for_a_while_is_believed_afterwards(watching: Watching, bad: bytes) -> None:
    good = json_answer({"format": "spotwright-notice/1", "state": "a1", "notice": notice_json()})
    callback = Callback()
    with Server(lambda _: bad) as server:
        watch = watching(NodeAgentSource(f"{server.url}/notice"), callback)
        wait_until("a failure", lambda: watch.problem)
        assert callback.notices == []
        server.reply = lambda _: good
        wait_until("the notice", lambda: callback.notices)
    assert watch.current is not None


def test_a_server_that_hangs_for_a_while_is_believed_afterwards(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # here the limit of a request is what matters
    monkeypatch.setattr("spotwright.notices.sources._TIMEOUT", 0.1)
    monkeypatch.setattr("spotwright.notices.notice._WAIT", 0.1)
    good = json_answer({"format": "spotwright-notice/1", "state": "a1", "notice": notice_json()})
    callback = Callback()
    with Server(lambda _: None) as server:
        watch = watching(NodeAgentSource(f"{server.url}/notice"), callback)
        wait_until("the failure", lambda: "no answer" in watch.problem)
        server.reply = lambda _: good
        wait_until("the notice", lambda: callback.notices)


def test_the_environment_names_no_source() -> None:
    assert from_environment({}) is None


def test_an_agent_is_asked_before_a_file(tmp_path: Path) -> None:
    write_notice(tmp_path, time.time(), time.time() + 30, "why")
    nothing = {"format": "spotwright-notice/1", "state": "a1", "notice": None}
    with Server(lambda _: json_answer(nothing)) as server:
        environ = {"SPOTWRIGHT_NOTICE_URL": f"{server.url}/notice", "SPOTWRIGHT_NOTICE_FILE": str(tmp_path / NOTICE)}
        source = from_environment(environ)
        assert source is not None
        assert source.wait(0) is None
        assert source.name == "node-agent"


def test_if_the_agent_cannot_be_asked_the_file_counts(tmp_path: Path) -> None:
    environ = {"SPOTWRIGHT_NOTICE_URL": "http://127.0.0.1:1/notice", "SPOTWRIGHT_NOTICE_FILE": str(tmp_path / NOTICE)}
    source = from_environment(environ)
    assert source is not None
    with pytest.raises(SourceError, match="node-agent"):
        source.wait(0)
    write_notice(tmp_path, time.time(), time.time() + 30, "why")
    notice = source.wait(0)
    assert notice is not None
    assert notice.source == "file"


@pytest.mark.parametrize("name", ["plain", "with a blank", "ümläut%41", "100%"])
def test_a_file_address_is_its_path(tmp_path: Path, name: str) -> None:
    source = from_environment({"SPOTWRIGHT_NOTICE_URL": (tmp_path / name).as_uri()})
    assert isinstance(source, FileSource)
    assert source.path == tmp_path / name


def test_a_file_alone_is_enough(tmp_path: Path) -> None:
    source = from_environment({"SPOTWRIGHT_NOTICE_FILE": str(tmp_path / "n")})
    assert isinstance(source, FileSource)


@pytest.mark.parametrize(
    "url", ["https://h/notice", "notice", "file://host/path", "file:///a%zz", "http://host", "http://h/a?b"]
)
def test_another_address_is_refused_with_what_is_expected(url: str) -> None:
    with pytest.raises(SourceError, match=r"expected|use http"):
        from_environment({"SPOTWRIGHT_NOTICE_URL": url})


def test_importing_it_brings_nothing_heavy(tmp_path: Path) -> None:
    import subprocess
    import sys

    heavy = {"http", "http.client", "urllib.request", "email", "ssl", "asyncio", "socket", "json", "subprocess"}
    code = f"import sys; before = set(sys.modules); import spotwright.notices; print(({heavy!r} & set(sys.modules)) - before)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(("host", "server"), [("10.0.0.7", "10.0.0.7"), ("fd00::7", "fd00::7")])
def test_with_the_nodes_address_alone_its_agent_is_asked_at_the_usual_port(host: str, server: str) -> None:
    """Kubeflow Pipelines gives pods the address, and cannot put it into another value."""
    source = from_environment({"SPOTWRIGHT_HOST": host})
    assert isinstance(source, NodeAgentSource)
    assert (source._http._host, source._http._port, source._path) == (server, PORT, "/notice")
