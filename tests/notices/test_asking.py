"""One question over HTTP has an end, whatever the other side does."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.notices.servers import Server as Other
from tests.notices.servers import answer

from spotwright.notices import SourceError
from spotwright.notices.asking import MOST, Answer, Server, _Reader, http_date, http_text


def ask(other: Other, patience: float = 5.0) -> Answer:
    return Server("who", other.url).ask("/path?x=1", patience=patience, headers={"Metadata": "true"})


def test_an_answer_is_its_status_headers_and_body() -> None:
    with Other(lambda _: answer("whole", 404, {"ETag": "a1"})) as other:
        said = ask(other)
    assert (said.status, said.body, said.headers["etag"]) == (404, b"whole", "a1")


def test_the_request_is_plain_http() -> None:
    with Other(lambda _: answer()) as other:
        ask(other)
    first, *lines = other.requests[0].split("\r\n")
    assert first == "GET /path?x=1 HTTP/1.1"
    assert {"Metadata: true", "Connection: close", f"Host: {other.url.removeprefix('http://')}"} <= set(lines)


def test_an_answer_in_chunks_is_put_together() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with Other(lambda _: chunked) as other:
        assert ask(other).body == b"abcde"


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    with Other(lambda _: b"HTTP/1.0 200 OK\r\n\r\nto the end") as other:
        assert ask(other).body == b"to the end"


def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with Other(lambda _: answer("proxy")) as proxy, Other(lambda _: answer("itself")) as other:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert ask(other).body == b"itself"
        assert not proxy.requests


def test_a_redirect_is_not_followed() -> None:
    with Other(lambda _: answer("", 302, {"Location": "http://127.0.0.1:9/"})) as other:
        assert ask(other).status == 302


def test_a_server_that_hangs_is_left_in_time() -> None:
    with Other(lambda _: None) as other:
        began = time.monotonic()
        with pytest.raises(SourceError, match=r"who: no answer from .* within 0\.2s"):
            ask(other, patience=0.2)
        assert time.monotonic() - began < 1.0


def test_a_server_that_sends_a_byte_now_and_then_is_left_in_time() -> None:
    def slowly() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
        for _ in range(100):
            other.closed.wait(0.05)
            yield b"x"

    with Other(lambda _: slowly()) as other:
        began = time.monotonic()
        with pytest.raises(SourceError, match="no answer from"):
            ask(other, patience=0.3)
        assert time.monotonic() - began < 1.0


def test_a_body_without_end_is_not_read() -> None:
    def for_ever() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            yield b"x" * 65536

    with Other(lambda _: for_ever()) as other, pytest.raises(SourceError, match="more than 256 KB"):
        ask(other)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MOST + 1),
        b"x" * 100_000,
    ],
)
def test_what_is_no_whole_answer_is_an_error_that_names_the_source(said: bytes) -> None:
    with Other(lambda _: said) as other, pytest.raises(SourceError, match=r"^who: http://127\.0\.0\.1:\d+ "):
        ask(other)


def test_nobody_there_is_an_error_that_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(SourceError, match=f"who: nothing answers at {url}"):
        Server("who", url).ask("/", patience=1.0)


@pytest.mark.parametrize(
    "url", ["", "http://", "https://host", "http://host:port", "http://host:99999", "http://a/b", "host"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(SourceError, match="no address of a server"):
        Server("who", url)


def test_an_address_of_version_6_needs_no_brackets_where_its_port_is_told() -> None:
    """As ``http://$(SPOTWRIGHT_HOST):8788`` gives it on a node of such a network."""
    server = Server("who", "http://fd00::7:8788")
    assert (server._host, server._port, server._name) == ("fd00::7", 8788, "[fd00::7]:8788")
    assert Server("who", "http://[fd00::7]:8788")._name == "[fd00::7]:8788"


@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda tail: b"HTTP/1.1 200 OK\r\n" + tail))
def test_any_bytes_are_an_answer_or_an_error(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        try:
            got = _Reader(ours, time.monotonic() + 5).answer()
        except Exception as error:  # noqa: BLE001
            assert type(error).__name__ == "_NoHttpError"  # noqa: PT017
        else:
            assert 0 <= got.status <= 999


@given(st.integers(0, 253_402_300_799))
def test_a_date_is_read_as_it_is_written(moment: int) -> None:
    assert http_date(http_text(moment)) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("Mon, 19 Sep 2016 18:29:47 GMT", 1474309787.0),
        ("Mon, 9 Sep 2016 18:29:47 UTC", 1473445787.0),
        ("Mon, 19 Sep 2016 18:29:47 PST", None),
        ("2016-09-19T18:29:47Z", None),
        ("Mon, 99 Sep 2016 18:29:47 GMT", None),
        ("Mon, 19 Foo 2016 18:29:47 GMT", None),
        ("Mon, 19 Sep 2016 18:29 GMT", None),
        ("", None),
    ],
)
def test_only_dates_of_http_are_dates(text: str, moment: float | None) -> None:
    assert http_date(text) == moment


@given(st.text(max_size=40))
def test_any_text_is_a_date_or_none(text: str) -> None:
    http_date(text)
