"""Requests that the page refuses, and the headers of every answer. Requests are bytes, because libraries would not send them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.page.made_runs import Kind, make_run
from tests.page.served import TOKEN, Served, serving

from spotwright.page import page_server
from spotwright.page.identity import LocalToken

HEADERS = (
    "content-security-policy",
    "x-content-type-options",
    "referrer-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A page of one run, at the name ``spot.example.org`` too."""
    folder = tmp_path_factory.mktemp("page")
    make_run(folder / "state", "r", Kind(1))
    with serving({"state": str(folder / "state")}, folder / "assets", host_names=("spot.example.org",)) as served:
        yield served


GOOD = {"Host": "127.0.0.1:PORT", "Cookie": "OWN"}

REFUSED = [  # what is wrong, method, target, headers in place of the good ones (None: without it), status
    ("POST", "POST", "/api/v1/runs", {}, 405),
    ("PUT", "PUT", "/", {}, 405),
    ("DELETE", "DELETE", "/runs/r", {}, 405),
    ("PATCH", "PATCH", "/api/v1/runs/r", {}, 405),
    ("OPTIONS, as before a request of another site", "OPTIONS", "/api/v1/runs", {"Origin": "http://evil.example"}, 405),
    ("TRACE", "TRACE", "/", {}, 405),
    ("CONNECT", "CONNECT", "/", {}, 405),
    ("no Host", "GET", "/", {"Host": None}, 400),
    ("two Hosts", "GET", "/", {"Host": "127.0.0.1:PORT\r\nHost: evil.example"}, 400),
    ("an empty Host", "GET", "/", {"Host": ""}, 403),
    ("a foreign name that points here", "GET", "/api/v1/runs", {"Host": "evil.example:PORT"}, 403),
    ("a name that begins as ours", "GET", "/", {"Host": "127.0.0.1.evil.example"}, 403),
    ("a name that begins as localhost", "GET", "/", {"Host": "localhost.evil.example"}, 403),
    ("a name that ends as ours", "GET", "/", {"Host": "notlocalhost"}, 403),
    ("a name that ends as ours with --host-name", "GET", "/", {"Host": "evil.spot.example.org"}, 403),
    ("every address of the machine", "GET", "/", {"Host": "0.0.0.0:PORT"}, 403),
    ("an address of the network", "GET", "/", {"Host": "192.168.0.7:PORT"}, 403),
    ("a number for an address", "GET", "/", {"Host": "2130706433"}, 403),
    ("a user in the Host", "GET", "/", {"Host": "127.0.0.1@evil.example"}, 403),
    ("a path in the Host", "GET", "/", {"Host": "127.0.0.1/evil"}, 403),
    ("a port that is none", "GET", "/", {"Host": "127.0.0.1:http"}, 403),
    ("another origin", "GET", "/api/v1/runs", {"Origin": "http://evil.example"}, 403),
    ("an origin without a name", "GET", "/api/v1/runs", {"Origin": "null"}, 403),
    ("the origin of another port", "GET", "/api/v1/runs", {"Origin": "http://127.0.0.1:1"}, 403),
    ("the origin of the same name", "GET", "/api/v1/runs", {"Origin": "http://localhost:PORT"}, 403),
    ("its own origin and another", "GET", "/api/v1/runs", {"Origin": "http://127.0.0.1:PORT\r\nOrigin: http://e"}, 403),
    ("another site", "GET", "/api/v1/runs", {"Sec-Fetch-Site": "cross-site"}, 403),
    ("another port of this machine", "GET", "/api/v1/runs", {"Sec-Fetch-Site": "same-site"}, 403),
    (
        "a link elsewhere to an answer",
        "GET",
        "/api/v1/runs",
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        403,
    ),
    (
        "a frame of another site",
        "GET",
        "/",
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        403,
    ),
    ("its own site and another", "GET", "/", {"Sec-Fetch-Site": "none\r\nSec-Fetch-Site: cross-site"}, 403),
    ("something else that is expected", "GET", "/", {"Expect": "<script>"}, 417),
    ("something else that is expected of a refusal", "POST", "/", {"Expect": "<script>"}, 417),
    ("a script of another site", "GET", "/assets/DIGEST/app.js", {"Sec-Fetch-Site": "cross-site"}, 403),
    ("an address with another site", "GET", "http://evil.example/api/v1/runs", {}, 400),
    ("an address with this site", "GET", "http://127.0.0.1:PORT/api/v1/runs", {}, 400),
    ("dots", "GET", "/../etc/passwd", {}, 400),
    ("dots among the files", "GET", "/assets/DIGEST/../../secret", {}, 400),
    ("dots that are written otherwise", "GET", "/assets/DIGEST/%2e%2e/%2e%2e/vendor.json", {}, 400),
    ("dots and slashes that are written otherwise", "GET", "/api/v1/runs/..%2f..%2fsecret", {}, 400),
    ("dots and backslashes", "GET", "/assets/DIGEST/..%5c..%5csecret", {}, 400),
    ("a sign without its code", "GET", "/runs/100%", {}, 400),
    ("bytes that are no text", "GET", "/runs/%ff", {}, 400),
    ("a NUL", "GET", "/runs/r%00", {}, 400),
    ("a line break", "GET", f"/runs/r%0d%0aSet-Cookie:%20a=b?token={TOKEN}", {}, 400),
    ("a text that turns around", "GET", "/runs/r%E2%80%AEx", {}, 400),
    ("a long address", "GET", "/runs/" + "x" * 4000 + "?q=" + "x" * 189, {}, 414),
    ("a longer address", "GET", "/runs/" + "x" * 20_000, {}, 400),
    ("large headers", "GET", "/", {"X": "x" * 20_000}, 400),
    ("a header that is none", "GET", "/", {"X y": "1"}, 400),
    ("no cookie", "GET", "/api/v1/runs", {"Cookie": None}, 401),
    ("no cookie on a page", "GET", "/runs/r", {"Cookie": None}, 401),
    ("no cookie for a file", "GET", "/assets/DIGEST/app.js", {"Cookie": None}, 401),
    ("no cookie on a stream", "GET", "/api/v1/stream?run=r", {"Cookie": None}, 401),
    ("a wrong cookie", "GET", "/api/v1/runs", {"Cookie": "spotwright-PORT=wrong"}, 401),
    ("an empty cookie", "GET", "/api/v1/runs", {"Cookie": "spotwright-PORT="}, 401),
    ("a cookie that is no text", "GET", "/api/v1/runs", {"Cookie": "spotwright-PORT=\xff\xfe"}, 401),
    ("the token as a cookie", "GET", "/api/v1/runs", {"Cookie": f"spotwright-PORT={TOKEN}"}, 401),
    ("the cookie of another port", "GET", "/api/v1/runs", {"Cookie": "spotwright-1=VALUE"}, 401),
    ("the token in an address of the API", "GET", f"/api/v1/runs?token={TOKEN}", {"Cookie": None}, 401),
    ("the token as a login", "GET", "/api/v1/runs", {"Cookie": None, "Authorization": f"Bearer {TOKEN}"}, 401),
    ("an address that is none", "GET", "/nothing", {}, 404),
    ("a page below a page", "GET", "/runs/r/tasks/deeper", {}, 404),
    ("an answer that is none", "GET", "/api/v1/nothing", {}, 404),
    ("a question that is none", "GET", "/api/v1/runs/r/nothing", {}, 404),
    ("another version", "GET", "/api/v2/runs", {}, 404),
    ("files of another start", "GET", "/assets/0123456789abcdef/app.js", {}, 404),
    ("a file that is no part of the page", "GET", "/assets/DIGEST/index.html", {}, 404),
    ("a run that is none", "GET", "/api/v1/runs/nobody", {}, 404),
    ("a run elsewhere", "GET", "/api/v1/runs/%2fetc%2fpasswd", {}, 404),
    ("a stream of nothing", "GET", "/api/v1/stream", {}, 400),
    ("a stream from nowhere", "GET", "/api/v1/stream?run=r&after=1.x", {}, 400),
    ("a limit that is none", "GET", "/api/v1/runs?limit=-1", {}, 400),
    ("an order that is none", "GET", "/api/v1/runs?sort=name;drop", {}, 400),
    ("a status that is none", "GET", "/api/v1/runs?status='", {}, 400),
]


@pytest.mark.parametrize(
    ("method", "target", "headers", "status"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_request_is_refused(
    page: Served,
    method: str,
    target: str,
    headers: dict[str, str | None],
    status: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    values = {
        "PORT": str(page.port),
        "OWN": page.cookie,
        "VALUE": page.cookie.partition("=")[2],
        "DIGEST": page.files.digest,
    }

    def filled(text: str) -> str:
        for name, value in values.items():
            text = text.replace(name, value)
        return text

    sent = {name: value for name, value in {**GOOD, **headers}.items() if value is not None}
    lines = [f"{method} {filled(target)} HTTP/1.1", *(f"{name}: {filled(value)}" for name, value in sent.items())]
    with caplog.at_level(logging.DEBUG):
        answer = page.send("\r\n".join([*lines, "", ""]).encode("latin-1"))
    assert answer.status == status, answer
    assert [name for name in HEADERS if name not in answer.headers] == []
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "set-cookie" not in answer.headers
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert TOKEN not in caplog.text
    if answer.headers["content-type"].startswith("application/json"):
        assert {"error", "message"} <= answer.json().keys()


BROKEN = {
    "no words": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "no version": f"GET /?token={TOKEN}\r\n\r\n".encode(),
    "another version": f"GET /?token={TOKEN} HTTP/9.9\r\nHost: localhost\r\n\r\n".encode(),
    "a header without a colon": f"GET /?token={TOKEN} HTTP/1.1\r\nHost localhost\r\n\r\n".encode(),
    "two lengths": b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a length and pieces": b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
    "a NUL in a header": b"GET / HTTP/1.1\r\nHost: local\0host\r\n\r\n",
}


@pytest.mark.parametrize("request_", BROKEN.values(), ids=BROKEN)
def test_what_is_no_request_gets_an_answer_with_all_headers_and_is_in_no_log(
    page: Served, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = page.send(request_)
    assert 400 <= answer.status < 500
    assert [name for name in HEADERS if name not in answer.headers] == []
    assert TOKEN not in caplog.text
    assert TOKEN.encode() not in answer.body


def test_a_fault_is_told_without_its_details(
    page: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_name: str) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(page.files, "file", fails)
    answer = page.ask(f"/assets/{page.files.digest}/app.js?token={TOKEN}")
    assert answer.status == 500
    assert [name for name in HEADERS if name not in answer.headers] == []
    assert b"secret" not in answer.body
    assert "a secret" in caplog.text  # the terminal has the details
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    "path",
    ["/", "/runs/r", "/runs/r/tasks", "/api/v1/about", "/api/v1/runs", "/api/v1/runs/r/tasks", "/api/v1/stream?run=r"],
)
def test_head_is_answered_as_get_without_a_body(page: Served, path: str) -> None:
    answer = page.ask(path, "HEAD")
    assert answer.status == 200
    assert answer.body == b""
    assert [name for name in HEADERS if name not in answer.headers] == []


def test_a_stream_and_a_file_have_all_headers(page: Served) -> None:
    file = page.ask(f"/assets/{page.files.digest}/app.js")
    assert file.status == 200
    stream = page.ask("/api/v1/stream?run=r")
    assert stream.headers["content-type"] == "text/event-stream"
    for answer in (file, stream):
        assert [name for name in HEADERS if name not in answer.headers] == []


def test_the_page_has_a_policy_with_trusted_types(page: Served) -> None:
    policy = page.ask("/").headers["content-security-policy"]
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "host",
    [
        "localhost:PORT",
        "LOCALHOST",
        "spot.localhost",
        "127.0.0.1",
        "127.8.8.8:1",
        "[::1]:PORT",
        "spot.example.org",
        "localhost.",
    ],
)
def test_names_of_this_machine_and_those_that_were_given_are_served(page: Served, host: str) -> None:
    assert page.ask("/api/v1/about", Host=host.replace("PORT", str(page.port))).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "none"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"},
    ],
)
def test_the_page_opens_from_itself_a_bookmark_and_a_link_elsewhere(page: Served, headers: dict[str, Any]) -> None:
    assert page.ask("/runs/r", **headers).status == 200


def test_a_token_becomes_a_cookie_and_leaves_the_address(page: Served) -> None:
    answer = page.ask(f"/runs/r?sort=cost&token={TOKEN}", cookie=False)
    assert answer.status == 303
    assert answer.headers["location"] == "./r?sort=cost"
    assert answer.headers["set-cookie"].startswith(f"spotwright-{page.port}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(answer.headers["set-cookie"].split("; "))
    assert TOKEN not in str(answer.headers)


def test_the_token_of_a_browser_that_is_opened_is_right_once() -> None:
    identity = LocalToken(1, TOKEN)
    token = identity.once()
    assert [identity.enter(each, "127.0.0.1") for each in (token, token, "", TOKEN)] == [True, False, False, True]


def test_it_is_right_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = LocalToken(1, TOKEN)
    token, later = identity.once(), time.monotonic() + 61
    monkeypatch.setattr("spotwright.page.identity.time.monotonic", lambda: later)
    assert identity.enter(token, "127.0.0.1") is False


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: "])
def test_a_connection_without_a_request_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    assert page_server._LIMITS.arrival <= 60
    monkeypatch.setattr(page_server, "_LIMITS", page_server._LIMITS._replace(arrival=0.5))
    (tmp_path / "state/runs").mkdir(parents=True)
    with serving({"state": str(tmp_path / "state")}, tmp_path / "assets") as page, page.connect() as connection:
        connection.sendall(begun)
        connection.settimeout(20)
        assert connection.recv(100) == b""


def test_after_ten_wrong_tokens_in_a_second_the_next_waits(page: Served) -> None:
    began = time.monotonic()
    for _ in range(10):
        assert page.ask("/?token=wrong", cookie=False).status == 401
    assert time.monotonic() - began < 1.0
    began = time.monotonic()
    assert page.ask("/?token=wrong", cookie=False).status == 401
    assert time.monotonic() - began >= 1.0


def test_below_a_path_and_behind_a_proxy_that_strips_it(tmp_path: Path) -> None:
    make_run(tmp_path / "state", "r", Kind(1))
    with serving({"state": str(tmp_path / "state")}, tmp_path / "assets", base="/spot") as page:
        assert page.ask("/spot", cookie=False).status == 401
        assert page.ask("/spot").headers["location"] == "spot/"
        entered = page.ask(f"/spot/runs/r?token={TOKEN}", cookie=False)
        assert entered.headers["location"] == "./r"
        assert "Path=/spot/" in entered.headers["set-cookie"]
        assert b'data-root="../../"' in page.ask("/spot/runs/r/tasks").body
        assert b'data-root="./"' in page.ask("/spot/").body
        assert page.ask("/spot/api/v1/runs").json()["lines"][0]["run"] == "r"
        assert page.ask("/spot/api/v1/runs", cookie=False).status == 401
        for outside in ("/", "/api/v1/runs", "/spotless", "/runs/r"):
            assert page.ask(outside).status == 404
    with serving({"state": str(tmp_path / "state")}, tmp_path / "assets", host_names=("team.example",)) as page:
        entered = page.ask(f"/runs/r?token={TOKEN}", cookie=False, Host="team.example")  # asked for as /spot/runs/r
        assert entered.headers["location"] == "./r"  # which a browser takes for /spot/runs/r
        origin: dict[str, Any] = {"Host": "team.example", "Origin": "https://team.example"}
        assert page.ask("/api/v1/runs", **origin).status == 200
