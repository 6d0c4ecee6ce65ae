"""The node agent tells Kubernetes of a notice by one Event, and the watcher reads the same notice from it."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spotwright.errors import InputError
from spotwright.notices import Notice
from spotwright.notices.agent import NodeEvents
from spotwright.notices.node_event import event_of, notice_in, withdrawal_in

NOTICE = Notice(1_800_000_030.0, "interruption", "azure", certain=True, reason="Azure takes this machine", id="event-7")
STORED = {"metadata": {"creationTimestamp": "2027-01-15T08:10:00Z"}}  # by a server whose clock is 600 s ahead


def stored(event: dict[str, Any]) -> dict[str, Any]:
    """An Event as the API server stores it: with the time of the server's clock."""
    return {**event, "metadata": {**event["metadata"], **STORED["metadata"]}}


def test_an_event_tells_the_notice_in_the_time_of_the_server() -> None:
    told = notice_in(stored(event_of(NOTICE, "n2", "boot", 1_800_000_000.0)))
    assert told is not None
    assert (told.id, told.at, told.notice.ends_at) == ("event-7", 1_800_000_600.0, 1_800_000_630.0)
    assert (told.notice.kind, told.notice.source, told.notice.certain) == ("interruption", "azure", True)


def test_a_notice_has_one_name_however_often_it_is_told() -> None:
    first, again = (event_of(NOTICE, "n2", boot, now)["metadata"]["name"] for boot, now in (("a", 1.0), ("b", 2.0)))
    assert first == again
    assert event_of(NOTICE, "n3", "a", 1.0)["metadata"]["name"] != first


def test_a_notice_without_an_id_is_new_after_the_machine_has_started_again() -> None:
    without = Notice(1_800_000_030.0, "interruption", "gcp", certain=True, reason="Google is preempting this machine")
    names = {event_of(without, "n2", boot, 0.0)["metadata"]["name"] for boot in ("a", "a", "b")}
    assert len(names) == 2


def test_a_notice_without_an_end_has_none_in_its_event() -> None:
    endless = Notice(float("inf"), "rebalance", "aws", certain=False, reason="EC2 recommends to leave")
    told = notice_in(stored(event_of(endless, "n2", "boot", 0.0)))
    assert told is not None
    assert told.notice.ends_at == float("inf")


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"reason": "NodeNotReady", "metadata": {}},
        {"reason": "SpotInterruptionNotice", "metadata": {"annotations": {"spotwright.dev/notice-kind": "x"}}},
        {
            "reason": "SpotInterruptionNotice",
            "metadata": {
                "annotations": {"spotwright.dev/notice-kind": "interruption", "spotwright.dev/notice-id": "1"},
                "creationTimestamp": "never",
            },
        },
    ],
)
def test_other_events_tell_no_notice(event: dict[str, Any]) -> None:
    assert notice_in(event) is None


class Server:
    """A server over TLS that stores posts, and answers with the next of its statuses."""

    def __init__(self, folder: Path) -> None:
        self.posts: list[tuple[str, str, dict[str, Any]]] = []
        self.statuses: list[int] = []
        self.lines: list[str] = []
        names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "ca.crt")]
        options = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        subprocess.run(["openssl", "req", *options, *names, *files], check=True, capture_output=True)
        (folder / "token").write_text("the-token\n", encoding="ascii")
        kept = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                kept.posts.append((self.path, self.headers["Authorization"], body))
                self.send_response(kept.statuses.pop(0) if kept.statuses else 201)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Do not log: the posts are stored."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "ca.crt", folder / "tls.key")
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.thread = threading.Thread(target=self.http.serve_forever)
        self.thread.start()
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.http.server_address[1]),
        }
        self.events = NodeEvents("n2", self.lines.append, account=folder, environment=environment)

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def until(self, words: str, count: int = 1) -> None:
        deadline = time.monotonic() + 60
        while sum(words in line for line in self.lines) < count:
            assert time.monotonic() < deadline, self.lines
            time.sleep(0.01)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


def test_a_notice_is_posted_with_the_account_of_the_pod(server: Server) -> None:
    server.events.tell(NOTICE)
    server.until("posted as Event default/n2.")
    ((path, login, event),) = server.posts
    assert (path, login) == ("/api/v1/namespaces/default/events", "Bearer the-token")
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n2", "uid": "n2"}
    assert "the-token" not in "".join(server.lines)


def test_a_notice_that_an_earlier_agent_posted_is_told_already(server: Server) -> None:
    server.statuses = [409]
    server.events.tell(NOTICE)
    server.until("posted as Event")
    assert len(server.posts) == 1


def test_a_server_that_fails_is_asked_again(server: Server) -> None:
    server.statuses = [503]
    later = Notice(time.time() + 600, "interruption", "azure", certain=True, reason="Azure takes this machine", id="8")
    server.events.tell(later)
    server.until("posted as Event")
    assert len(server.posts) == 2


def test_a_refused_agent_says_so_and_stops(server: Server) -> None:
    server.statuses = [403]
    server.events.tell(NOTICE)
    server.until("not posted as an Event: the API server answers 403")
    assert len(server.posts) == 1


def test_a_notice_that_was_withdrawn_is_posted_once_and_only_where_there_was_one(server: Server) -> None:
    server.events.tell(None)
    server.events.tell(NOTICE)
    server.until("posted as Event")
    server.events.tell(None)
    server.until("posted as Event", 2)
    server.events.tell(None)
    notice, withdrawal = (stored(event) for _, _, event in server.posts)
    assert notice_in(withdrawal) is None
    assert withdrawal_in(notice) is None
    assert withdrawal_in(withdrawal) == ("event-7", 1_800_000_600.0)
    assert notice["metadata"]["name"] != withdrawal["metadata"]["name"]


def test_an_agent_outside_a_pod_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="automountServiceAccountToken: true"):
        NodeEvents("n2", print, account=tmp_path, environment={})
