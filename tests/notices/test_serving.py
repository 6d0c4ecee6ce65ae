"""The agent's server: questions that wait, and clients that cannot hold it up."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.notices.servers import wait_until

from spotwright.notices import Notice, SourceError
from spotwright.notices import serving as module
from spotwright.notices.asking import Answer, Server
from spotwright.notices.board import Board
from spotwright.notices.node_agent import NodeAgentSource
from spotwright.notices.serving import Loop, Request, _request

SOME = Notice(2e9, "interruption", "azure", certain=True, reason="Azure takes this machine")


class Lab:
    """A loop in a thread that serves a board."""

    def __init__(self) -> None:
        self.problem = ""
        self.loop = Loop()
        self.board = Board(lambda: self.problem, self.loop.wake)
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.loop.listen(listener, self.board.handle)
        self.stopped = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.stopped:
            self.loop.turn()

    def close(self) -> None:
        self.stopped = True
        self.loop.wake()
        self.thread.join(5)
        self.loop.close()

    def ask(self, path: str = "/notice", method: str = "GET", patience: float = 5.0) -> tuple[Answer, Any]:
        answer = Server("test", f"http://127.0.0.1:{self.port}").ask(path, method=method, patience=patience)
        return answer, json.loads(answer.body)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 5)

    def source(self) -> NodeAgentSource:
        return NodeAgentSource(f"http://127.0.0.1:{self.port}/notice")


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def test_without_a_notice_there_is_none(lab: Lab) -> None:
    answer, said = lab.ask()
    assert answer.status == 200
    assert said["notice"] is None


def test_a_notice_is_told_with_the_time_that_is_left(lab: Lab) -> None:
    lab.board.update(Notice(time.time() + 30, "interruption", "azure", certain=True, reason="why"))
    said = lab.ask()[1]["notice"]
    assert said["seconds_left"] == pytest.approx(30, abs=1)
    assert (said["kind"], said["source"], said["certain"], said["reason"]) == ("interruption", "azure", True, "why")


def test_it_tells_nothing_else(lab: Lab) -> None:
    lab.board.update(SOME)
    said = lab.ask()[1]
    assert set(said) == {"format", "state", "notice"}
    assert set(said["notice"]) == {"ends_at", "seconds_left", "kind", "source", "certain", "reason"}


def test_the_source_reads_what_the_board_says(lab: Lab) -> None:
    source = lab.source()
    assert source.wait(0) is None
    lab.board.update(SOME)
    notice = source.wait(0)
    assert notice is not None
    assert notice.same_as(SOME)
    lab.board.update(None)
    assert source.wait(0) is None


def test_a_notice_without_an_end_stays_without_one(lab: Lab) -> None:
    lab.board.update(Notice(float("inf"), "rebalance", "aws", certain=False, reason="risk"))
    assert lab.ask()[1]["notice"]["seconds_left"] is None
    notice = lab.source().wait(0)
    assert notice is not None
    assert notice.ends_at == float("inf")


def test_a_question_that_waits_is_answered_by_a_change(lab: Lab) -> None:
    source = lab.source()
    source.wait(0)
    asked = threading.Timer(0.1, lab.board.update, (SOME,))
    asked.start()
    began = time.monotonic()
    assert source.wait(30) is not None
    assert time.monotonic() - began < 1.0
    asked.join()


def test_a_question_that_waits_is_answered_when_its_time_is_over(lab: Lab) -> None:
    source = lab.source()
    source.wait(0)
    began = time.monotonic()
    assert source.wait(0.2) is None
    assert 0.15 < time.monotonic() - began < 1.5


def test_a_question_about_an_old_state_does_not_wait(lab: Lab) -> None:
    state = lab.ask()[1]["state"]
    lab.board.update(SOME)
    assert lab.ask(f"/notice?wait=30&since={state}")[1]["notice"] is not None


def test_two_agents_never_have_the_same_state() -> None:
    assert Board(str)._state() != Board(str)._state()


def test_what_it_cannot_know_it_says(lab: Lab) -> None:
    lab.problem = "azure: no answer"
    answer, said = lab.ask()
    assert (answer.status, said["problem"]) == (503, "azure: no answer")
    with pytest.raises(SourceError, match="azure: no answer"):
        lab.source().wait(0)


def test_a_notice_is_told_also_when_its_source_fails(lab: Lab) -> None:
    lab.board.update(SOME)
    lab.problem = "azure: no answer"
    assert lab.source().wait(0) is not None


def test_health_says_whether_the_source_answers(lab: Lab) -> None:
    lab.problem = "azure: no answer"
    answer, said = lab.ask("/health")
    assert (answer.status, said["problem"]) == (200, "azure: no answer")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/notice", 405),
        ("PUT", "/notice", 405),
        ("DELETE", "/", 405),
        ("GET", "/", 404),
        ("GET", "/metadata/instance", 404),
    ],
)
def test_everything_else_is_refused(lab: Lab, method: str, path: str, status: int) -> None:
    assert lab.ask(path, method)[0].status == status


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "soon", "1e999", ""])
def test_a_wait_that_is_no_number_does_not_wait(lab: Lab, wait: str) -> None:
    state = lab.ask()[1]["state"]
    assert lab.ask(f"/notice?wait={wait}&since={state}")[0].status == 200


def test_who_has_a_question_open_is_known_until_it_goes(lab: Lab) -> None:
    assert lab.board.quiet() is None
    state = lab.ask()[1]["state"]
    with lab.connect() as client:
        client.sendall(f"GET /notice?wait=30&since={state} HTTP/1.1\r\n\r\n".encode())
        wait_until("the question", lambda: lab.board._open)
        assert lab.board.quiet() == 0.0
    wait_until("the end of the question", lambda: not lab.board._open)
    quiet = lab.board.quiet()
    assert quiet is not None
    assert quiet < 5


def test_a_client_that_never_finishes_its_request_holds_up_nobody(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.3)
    with lab.connect() as slow:
        slow.sendall(b"GET /notice HT")
        assert lab.ask()[0].status == 200
        slow.settimeout(5)
        assert slow.recv(100) == b""


@pytest.mark.parametrize("limit", ["_most", "_most_of_one"])
def test_more_clients_than_there_is_room_for_are_turned_away_and_later_served(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(lab.loop, limit, 2)
    with lab.connect() as first, lab.connect() as second:
        first.sendall(b"G")
        second.sendall(b"G")
        wait_until("both", lambda: len(lab.loop._connections) == 2)
        with pytest.raises(SourceError):
            lab.ask()
    wait_until("the end of both", lambda: not lab.loop._connections)
    assert lab.ask()[0].status == 200


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET notice HTTP/1.1\r\n\r\n",
        b"GET /notice SIP/2.0\r\n\r\n",
        b"GET //[ HTTP/1.1\r\n\r\n",
        b"POST /notice HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
        b"POST /notice HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /notice HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"x" * 20_000,
    ],
)
def test_what_is_no_request_is_refused(lab: Lab, request_bytes: bytes) -> None:
    with lab.connect() as client:
        client.sendall(request_bytes)
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")


@given(st.binary(max_size=300) | st.binary(max_size=200).map(lambda tail: b"GET /" + tail + b"\r\n\r\n"))
def test_any_bytes_are_a_request_or_refused_or_not_whole(data: bytes) -> None:
    read = _request(bytearray(data))
    if isinstance(read, Request):
        assert Board(str).handle(read)
    else:
        assert read is None or read.status == 400


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=10) | st.just("interruption"),
        lambda inner: st.dictionaries(
            st.sampled_from(["ends_at", "seconds_left", "kind", "source", "certain", "reason"]), inner, max_size=6
        ),
        max_leaves=8,
    )
)
def test_what_another_server_answers_is_a_whole_notice_or_an_error(notice: Any) -> None:
    source = NodeAgentSource("http://127.0.0.1:1/notice")
    body = json.dumps({"format": "spotwright-notice/1", "state": "a", "notice": notice}).encode()
    source._server.ask = lambda *_, **__: Answer(200, {}, body)  # type: ignore[method-assign]
    try:
        read = source.wait(0)
    except SourceError:
        return
    assert read is None or (isinstance(notice, dict) and notice["certain"] is read.certain)


def test_a_socket_that_is_closed_while_somebody_knocks_is_left_alone() -> None:
    loop = Loop()
    server = socket.create_server(("127.0.0.1", 0))
    signal, trigger = socket.socketpair()
    handled: list[str] = []

    def close_it() -> None:
        signal.recv(1)
        if server.fileno() >= 0:
            loop.unlisten(server)
        handled.append("closed")

    try:
        loop.watch(signal, close_it)
        loop.listen(server, Board(lambda: "", loop.wake).handle)
        trigger.send(b"x")  # first, so that it is looked at first
        with socket.create_connection(server.getsockname()):
            loop.turn()
        assert handled == ["closed"]
        assert server.fileno() < 0
    finally:
        loop.close()
        signal.close()
        trigger.close()
