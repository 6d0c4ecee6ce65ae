"""A request ends in time, whatever the server does."""

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
from spotwright.notices.http_client import (
    MAX_BODY,
    Answer,
    HttpClient,
    _AnswerReader,
    format_http_date,
    parse_http_date,
)


def ask(other: Other, timeout: float = 5.0) -> Answer:
    return HttpClient("who", other.url).request("/path?x=1", timeout=timeout, headers={"Metadata": "true"})


def test_an_answer_is_its_status_headers_and_body() -> None:
    with Other(lambda _: answer("whole", 404, {"ETag": "a1"})) as other:
        received = ask(other)
    assert (received.status, received.body, received.headers["etag"]) == (404, b"whole", "a1")


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


def test_a_request_to_a_server_that_hangs_ends_in_time() -> None:
    with Other(lambda _: None) as other, pytest.raises(SourceError, match=r"who: no answer from .* within 0\.2s"):
        ask(other, timeout=0.2)


def test_a_request_to_a_server_that_sends_byte_by_byte_ends_in_time() -> None:
    def slowly() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
        while not other.closed.wait(0.05):
            yield b"x"

    with Other(lambda _: slowly()) as other, pytest.raises(SourceError, match="no answer from"):
        ask(other, timeout=0.3)


def test_a_body_without_end_is_not_read() -> None:
    def for_ever() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            yield b"x" * 65536

    with Other(lambda _: for_ever()) as other, pytest.raises(SourceError, match="more than 256 KB"):
        ask(other)


@pytest.mark.parametrize(
    "answer_bytes",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1),
        b"x" * 100_000,
    ],
)
def test_an_answer_that_is_not_whole_is_an_error_that_names_the_source(answer_bytes: bytes) -> None:
    with Other(lambda _: answer_bytes) as other, pytest.raises(SourceError, match=r"^who: http://127\.0\.0\.1:\d+ "):
        ask(other)


def test_a_missing_server_is_an_error_that_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(SourceError, match=f"who: no answer at {url}"):
        HttpClient("who", url).request("/", timeout=1.0)


@pytest.mark.parametrize(
    "url", ["", "http://", "https://host", "http://host:port", "http://host:99999", "http://a/b", "host"]
)
def test_a_wrong_address_is_refused(url: str) -> None:
    with pytest.raises(SourceError, match="is not a server address"):
        HttpClient("who", url)


def test_an_ipv6_address_with_a_port_needs_no_brackets() -> None:
    """As ``http://$(SPOTWRIGHT_HOST):8788`` gives it on a node of such a network."""
    server = HttpClient("who", "http://fd00::7:8788")
    assert (server._host, server._port, server._name) == ("fd00::7", 8788, "[fd00::7]:8788")
    assert HttpClient("who", "http://[fd00::7]:8788")._name == "[fd00::7]:8788"


@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda tail: b"HTTP/1.1 200 OK\r\n" + tail))
def test_any_bytes_are_an_answer_or_an_error(answer_bytes: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(answer_bytes)
        theirs.shutdown(socket.SHUT_WR)
        try:
            got = _AnswerReader(ours, time.monotonic() + 5).answer()
        except Exception as error:  # noqa: BLE001
            assert type(error).__name__ == "_NoHttpError"  # noqa: PT017
        else:
            assert 0 <= got.status <= 999


@given(st.integers(0, 253_402_300_799))
def test_a_date_is_read_as_it_is_written(moment: int) -> None:
    assert parse_http_date(format_http_date(moment)) == moment


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
    assert parse_http_date(text) == moment


@given(st.text(max_size=40))
def test_any_text_is_a_date_or_none(text: str) -> None:
    parse_http_date(text)
