"""The agent's server: long polls, and clients that cannot block others."""

from __future__ import annotations

import contextlib
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
from spotwright.notices import http_server as module
from spotwright.notices.agent import NoticeBoard
from spotwright.notices.http_client import Answer, HttpClient
from spotwright.notices.http_server import HttpServer, Request, parse_request
from spotwright.notices.sources import NodeAgentSource

pytestmark = pytest.mark.usefixtures("patient_clients")

SOME = Notice(2e9, "interruption", "azure", certain=True, reason="Azure takes this machine")


class Lab:
    """A loop in a thread that serves a board."""

    def __init__(self) -> None:
        self.problem = ""
        self.server = HttpServer()
        self.board = NoticeBoard(lambda: self.problem, self.server.wake)
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.server.listen(listener, self.board.handle)
        self.stopped = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.stopped:
            self.server.run_once()

    def close(self) -> None:
        self.stopped = True
        self.server.wake()
        self.thread.join()
        self.server.close()

    def ask(self, path: str = "/notice", method: str = "GET", timeout: float = 5.0) -> tuple[Answer, Any]:
        answer = HttpClient("test", f"http://127.0.0.1:{self.port}").request(path, method=method, timeout=timeout)
        return answer, json.loads(answer.body)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 120)

    def source(self) -> NodeAgentSource:
        return NodeAgentSource(f"http://127.0.0.1:{self.port}/notice")


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def test_without_a_notice_there_is_none(lab: Lab) -> None:
    answer, content = lab.ask()
    assert answer.status == 200
    assert content["notice"] is None


def test_a_notice_has_the_seconds_left(lab: Lab) -> None:
    ends_at = time.time() + 30
    lab.board.update(Notice(ends_at, "interruption", "azure", certain=True, reason="why"))
    asked = time.time()
    content = lab.ask()[1]["notice"]
    assert ends_at - time.time() - 0.1 <= content["seconds_left"] <= ends_at - asked + 0.1
    assert (content["kind"], content["source"], content["certain"], content["reason"]) == (
        "interruption",
        "azure",
        True,
        "why",
    )


def test_the_answer_has_nothing_else(lab: Lab) -> None:
    lab.board.update(SOME)
    content = lab.ask()[1]
    assert set(content) == {"format", "state", "notice"}
    assert set(content["notice"]) == {"ends_at", "seconds_left", "kind", "source", "certain", "reason"}


def test_the_source_reads_the_notice_of_the_board(lab: Lab) -> None:
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


def test_a_long_poll_is_answered_by_a_change(lab: Lab) -> None:
    source = lab.source()
    source.wait(0)
    asked = threading.Timer(0.1, lab.board.update, (SOME,))
    asked.start()
    began = time.monotonic()
    assert source.wait(120) is not None
    assert time.monotonic() - began < 60
    asked.join()


def test_a_long_poll_is_answered_when_its_time_is_over(lab: Lab) -> None:
    source = lab.source()
    source.wait(0)
    began = time.monotonic()
    assert source.wait(0.2) is None
    assert time.monotonic() - began > 0.15


def test_a_long_poll_with_an_old_state_does_not_wait(lab: Lab) -> None:
    state = lab.ask()[1]["state"]
    lab.board.update(SOME)
    assert lab.ask(f"/notice?wait=30&since={state}")[1]["notice"] is not None


def test_two_agents_never_have_the_same_state() -> None:
    assert NoticeBoard(str).state != NoticeBoard(str).state


def test_without_an_answer_of_its_source_the_agent_returns_503(lab: Lab) -> None:
    lab.problem = "azure: no answer"
    answer, content = lab.ask()
    assert (answer.status, content["problem"]) == (503, "azure: no answer")
    with pytest.raises(SourceError, match="azure: no answer"):
        lab.source().wait(0)


def test_a_notice_is_published_also_while_its_source_fails(lab: Lab) -> None:
    lab.board.update(SOME)
    lab.problem = "azure: no answer"
    assert lab.source().wait(0) is not None


def test_health_has_the_problem_of_the_source(lab: Lab) -> None:
    lab.problem = "azure: no answer"
    answer, content = lab.ask("/health")
    assert (answer.status, content["problem"]) == (200, "azure: no answer")


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


def test_an_open_request_counts_until_its_client_disconnects(lab: Lab) -> None:
    assert lab.board.idle_seconds() is None
    state = lab.ask()[1]["state"]
    with lab.connect() as client:
        client.sendall(f"GET /notice?wait=30&since={state} HTTP/1.1\r\n\r\n".encode())
        wait_until("the question", lambda: lab.board._open_requests)
        assert lab.board.idle_seconds() == 0.0
    wait_until("the end of the question", lambda: not lab.board._open_requests)
    idle = lab.board.idle_seconds()
    assert idle is not None
    assert 0 <= idle < 120


def test_a_client_that_never_finishes_its_request_blocks_no_other(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with lab.connect() as slow:
        slow.sendall(b"GET /notice HT")
        assert lab.ask()[0].status == 200
    monkeypatch.setattr(module, "_TIMEOUT", 0.3)
    with lab.connect() as slow:
        slow.sendall(b"GET /notice HT")
        assert slow.recv(100) == b""


@pytest.mark.parametrize("limit", ["_max_connections", "_max_per_peer"])
def test_clients_above_the_limit_are_closed_and_served_later(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(lab.server, limit, 2)
    with lab.connect() as first, lab.connect() as second:
        first.sendall(b"G")
        second.sendall(b"G")
        wait_until("both", lambda: len(lab.server._connections) == 2)
        with pytest.raises(SourceError):
            lab.ask()
    wait_until("the end of both", lambda: not lab.server._connections)
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
        b"POST /notice HTTP/1.1\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n",
        b"POST /notice HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"x" * 20_000,
    ],
)
def test_a_malformed_request_is_refused(lab: Lab, request_bytes: bytes) -> None:
    with lab.connect() as client:
        client.sendall(request_bytes)
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")


@given(st.binary(max_size=300) | st.binary(max_size=200).map(lambda tail: b"GET /" + tail + b"\r\n\r\n"))
def test_any_bytes_are_a_request_or_refused_or_not_whole(data: bytes) -> None:
    read = parse_request(bytearray(data))
    if isinstance(read, Request):
        assert NoticeBoard(str).handle(read)
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
def test_any_answer_of_another_server_is_a_whole_notice_or_an_error(notice: Any) -> None:
    source = NodeAgentSource("http://127.0.0.1:1/notice")
    body = json.dumps({"format": "spotwright-notice/1", "state": "a", "notice": notice}).encode()
    source._http.request = lambda *_, **__: Answer(200, {}, body)  # type: ignore[method-assign]
    try:
        read = source.wait(0)
    except SourceError:
        return
    assert read is None or (isinstance(notice, dict) and notice["certain"] is read.certain)


def test_a_listener_closed_in_the_same_turn_accepts_nothing() -> None:
    loop = HttpServer()
    server = socket.create_server(("127.0.0.1", 0))
    signal, trigger = socket.socketpair()
    handled: list[str] = []

    def close_it() -> None:
        signal.recv(1)
        if server.fileno() >= 0:
            loop.unlisten(server)
        handled.append("closed")

    try:
        loop.add_reader(signal, close_it)
        loop.listen(server, NoticeBoard(lambda: "", loop.wake).handle)
        trigger.send(b"x")  # first, so that it is looked at first
        with socket.create_connection(server.getsockname()):
            loop.run_once()
        assert handled == ["closed"]
        assert server.fileno() < 0
    finally:
        loop.close()
        signal.close()
        trigger.close()


def connect_from(lab: Lab, peer: int) -> socket.socket:
    """A connection of one of several pods of the node."""
    made = socket.socket()
    made.settimeout(120)
    made.bind((f"127.0.1.{peer}", 0))
    made.connect(("127.0.0.1", lab.port))
    return made


def test_pods_that_hold_all_places_do_not_silence_the_server_for_others(lab: Lab) -> None:
    """Five pods open as many connections as they may, in two ways: without a request, or with one that waits forever."""
    state = lab.ask()[1]["state"]
    wait = f"GET /notice?wait=300&since={state} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    held = [connect_from(lab, 1 + number % 5) for number in range(300)]
    try:
        for number, one in enumerate(held):
            with contextlib.suppress(OSError):
                one.sendall(wait if number % 2 else b"G")
        for _ in range(20):
            assert lab.ask()[0].status == 200
        assert len(lab.server._connections) <= 256
    finally:
        for one in held:
            one.close()


def test_a_body_that_comes_byte_by_byte_has_its_head_read_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def read(received: bytearray) -> Any:
        reads.append(len(received))
        return parse_request(received)

    monkeypatch.setattr(module, "parse_request", read)
    with lab.connect() as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        slow.sendall(b"POST /notice HTTP/1.1\r\nHost: a\r\nContent-Length: 400\r\n\r\n")
        for _ in range(400):
            slow.sendall(b"x")
        assert slow.recv(100).startswith(b"HTTP/1.1 405 ")
    assert len(reads) <= 2
