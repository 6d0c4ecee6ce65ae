"""Google's metadata server, as documented: the header in both directions, the question that waits, preemption, maintenance."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.notices.servers import Server, after, answer

from spotwright.notices import SourceError
from spotwright.notices.http_client import Answer
from spotwright.notices.metadata_services import GcpSource

pytestmark = pytest.mark.usefixtures("patient_clients")

GOOGLE = {"Metadata-Flavor": "Google", "Content-Type": "application/text"}


class Google:
    """A metadata server whose values a test sets; it answers a question that waits at once."""

    def __init__(self, preempted: str = "FALSE", maintenance: str = "NONE") -> None:
        self.preempted, self.maintenance = preempted, maintenance
        self.status = 200

    def __call__(self, request: str) -> bytes:
        assert "\r\nMetadata-Flavor: Google" in request
        path = request.split(" ", 2)[1]
        assert path.startswith("/computeMetadata/v1/instance/")
        value = self.preempted if "/preempted" in path else self.maintenance
        return answer(value, self.status, {**GOOGLE, "ETag": "7c5f2bd7ce5f3c0d"})


def test_not_preempted_is_no_notice() -> None:
    with Server(Google()) as server:
        assert GcpSource(server.url).wait(0) is None


def test_preempted_leaves_thirty_seconds() -> None:
    began = time.time()
    with Server(Google("TRUE\n")) as server:
        notice = GcpSource(server.url).wait(0)
    assert notice is not None
    assert (notice.kind, notice.source, notice.certain) == ("interruption", "gcp", True)
    assert notice.ends_at == after(began, 30)


def test_a_longer_preemption_notice_can_be_configured() -> None:
    began = time.time()
    with Server(Google("TRUE")) as server:
        notice = GcpSource(server.url, notice=120.0).wait(0)
    assert notice is not None
    assert notice.ends_at == after(began, 120)


def test_the_seconds_count_from_when_it_was_first_seen() -> None:
    with Server(Google("TRUE")) as server:
        source = GcpSource(server.url)
        first = source.wait(0)
        assert source.wait(0) is first


def test_the_second_request_waits_for_a_change() -> None:
    with Server(Google()) as server:
        source = GcpSource(server.url)
        source.wait(10)
        source.wait(10)
    asked = [request.split(" ", 2)[1] for request in server.requests if "/preempted" in request]
    assert asked == [
        "/computeMetadata/v1/instance/preempted",
        "/computeMetadata/v1/instance/preempted?wait_for_change=true&timeout_sec=10&last_etag=7c5f2bd7ce5f3c0d",
    ]


def test_maintenance_that_ends_the_machine_is_an_interruption_in_a_minute() -> None:
    began = time.time()
    with Server(Google(maintenance="TERMINATE_ON_HOST_MAINTENANCE")) as server:
        notice = GcpSource(server.url).wait(0)
    assert notice is not None
    assert notice.kind == "interruption"
    assert notice.ends_at == after(began, 60)


def test_a_migration_is_no_notice() -> None:
    with Server(Google(maintenance="MIGRATE_ON_HOST_MAINTENANCE")) as server:
        assert GcpSource(server.url).wait(0) is None


def test_the_earlier_of_preemption_and_maintenance_counts() -> None:
    with Server(Google("TRUE", "TERMINATE_ON_HOST_MAINTENANCE")) as server:
        notice = GcpSource(server.url).wait(0)
    assert notice is not None
    assert "is preempting" in notice.reason


def test_maintenance_that_is_called_off_is_no_notice_any_more() -> None:
    google = Google(maintenance="TERMINATE_ON_HOST_MAINTENANCE")
    with Server(google) as server:
        source = GcpSource(server.url)
        assert source.wait(0) is not None
        google.maintenance = "NONE"
        assert source.wait(0) is None


def test_a_server_without_googles_header_is_not_believed() -> None:
    with Server(lambda _: answer("TRUE")) as server, pytest.raises(SourceError, match="not Google's metadata server"):
        GcpSource(server.url).wait(0)


@pytest.mark.parametrize(
    ("preempted", "maintenance"), [("yes", "NONE"), ("", "NONE"), ("true", "NONE"), ("FALSE", "soon")]
)
def test_a_value_that_is_not_documented_is_an_error(preempted: str, maintenance: str) -> None:
    with Server(Google(preempted, maintenance)) as server, pytest.raises(SourceError, match=r"^gcp: "):
        GcpSource(server.url).wait(0)


@pytest.mark.parametrize("status", [404, 500, 503])
def test_an_answer_that_is_not_ok_is_an_error(status: int) -> None:
    google = Google("TRUE")
    google.status = status
    with Server(google) as server, pytest.raises(SourceError, match=f"answered {status}"):
        GcpSource(server.url).wait(0)


def test_after_an_error_the_next_request_does_not_wait() -> None:
    google = Google()
    with Server(google) as server:
        source = GcpSource(server.url)
        source.wait(0)
        google.preempted = "?"
        with pytest.raises(SourceError):
            source.wait(0)
        google.preempted = "FALSE"
        server.requests.clear()
        source.wait(10)
    assert not any("wait_for_change" in request for request in server.requests)


@given(st.text(max_size=20), st.dictionaries(st.sampled_from(["metadata-flavor", "etag"]), st.text(max_size=8)))
def test_no_garbage_is_ever_a_notice(body: str, headers: dict[str, str]) -> None:
    source = GcpSource()

    def request(*_: Any, **__: Any) -> Answer:
        return Answer(200, headers, body.encode())

    source._http.request = request  # type: ignore[method-assign]
    with pytest.raises(SourceError):
        source.wait(0)
