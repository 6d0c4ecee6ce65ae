"""EC2's metadata service, as documented: tokens, the interruption notice, the rebalance recommendation."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.notices.servers import Server, after, answer, json_answer

from spotwright.notices import SourceError
from spotwright.notices.http_client import Answer, format_http_date
from spotwright.notices.metadata_services import AwsSource

pytestmark = pytest.mark.usefixtures("patient_clients")

TTL = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"


def in_(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Ec2:
    """A metadata service of version 2; ``action`` and ``rebalance`` are set by the test."""

    def __init__(self, action: Any = None, rebalance: Any = None) -> None:
        self.action, self.rebalance = action, rebalance
        self.tokens: list[str] = []
        self.life = "21600"
        self.date: str | None = None

    def __call__(self, request: str) -> bytes:
        head = request.lower()
        if request.startswith("PUT /latest/api/token "):
            assert "x-aws-ec2-metadata-token-ttl-seconds: 21600" in head
            self.tokens.append(f"AQAEA-{len(self.tokens)}==")
            return answer(self.tokens[-1], 200, {TTL: self.life})
        if not self.tokens or f"x-aws-ec2-metadata-token: {self.tokens[-1].lower()}" not in head:
            return answer("", 401)
        path = request.split(" ", 2)[1]
        given = {
            "/latest/meta-data/spot/instance-action": self.action,
            "/latest/meta-data/events/recommendations/rebalance": self.rebalance,
        }[path]
        if isinstance(given, bytes):
            return given
        date = {"Date": self.date or format_http_date(time.time())}
        return answer("<html>404", 404) if given is None else json_answer(given, headers=date)


def test_a_404_is_no_notice() -> None:
    with Server(Ec2()) as server:
        assert AwsSource(server.url).wait(0) is None


@pytest.mark.parametrize("action", ["terminate", "stop"])
def test_an_interruption_comes_at_its_time(action: str) -> None:
    began = time.time()
    with Server(Ec2({"action": action, "time": in_(120)})) as server:
        notice = AwsSource(server.url).wait(0)
    assert notice is not None
    assert (notice.kind, notice.source, notice.certain) == ("interruption", "aws", True)
    assert notice.ends_at == after(began, 120)


def test_hibernation_begins_at_once() -> None:
    with Server(Ec2({"action": "hibernate", "time": in_(120)})) as server:
        notice = AwsSource(server.url).wait(0)
    assert notice is not None
    assert notice.certain
    assert notice.ends_at <= time.time()


def test_a_rebalance_recommendation_is_no_certainty_and_has_no_end() -> None:
    with Server(Ec2(rebalance={"noticeTime": in_(-5)})) as server:
        notice = AwsSource(server.url).wait(0)
    assert notice is not None
    assert (notice.kind, notice.certain, notice.ends_at) == ("rebalance", False, float("inf"))


def test_an_interruption_wins_over_a_recommendation() -> None:
    with Server(Ec2({"action": "terminate", "time": in_(120)}, {"noticeTime": in_(-60)})) as server:
        notice = AwsSource(server.url).wait(0)
    assert notice is not None
    assert notice.kind == "interruption"


def test_a_notice_that_is_withdrawn_is_none_any_more() -> None:
    ec2 = Ec2({"action": "terminate", "time": in_(120)})
    with Server(ec2) as server:
        source = AwsSource(server.url)
        assert source.wait(0) is not None
        ec2.action = None
        assert source.wait(0) is None


def test_a_token_is_used_again_while_it_lives() -> None:
    ec2 = Ec2()
    with Server(ec2) as server:
        source = AwsSource(server.url)
        source.wait(0)
        source.wait(0)
    assert len(ec2.tokens) == 1


def test_a_token_is_replaced_before_its_life_ends() -> None:
    ec2 = Ec2()
    ec2.life = "0"
    with Server(ec2) as server:
        source = AwsSource(server.url)
        source.wait(0)
        source.wait(0)
    assert len(ec2.tokens) > 2


def test_a_token_that_is_refused_is_replaced() -> None:
    """The service forgets tokens, after a restart of the instance for one."""
    ec2 = Ec2({"action": "terminate", "time": in_(120)})
    with Server(ec2) as server:
        source = AwsSource(server.url)
        source.wait(0)
        ec2.tokens.append("another")
        assert source.wait(0) is not None


@pytest.mark.parametrize("ahead", [-4000.0, 4000.0])
def test_a_clock_that_is_wrong_does_not_matter(ahead: float) -> None:
    ec2 = Ec2({"action": "terminate", "time": in_(ahead + 120)})
    ec2.date = format_http_date(time.time() + ahead)
    began = time.time()
    with Server(ec2) as server:
        notice = AwsSource(server.url).wait(0)
    assert notice is not None
    assert notice.certain
    assert notice.ends_at == after(began, 120)


@pytest.mark.parametrize(
    "action",
    [
        {"action": "terminate"},
        {"action": "terminate", "time": "soon"},
        {"action": "terminate", "time": "2017-09-18T08:22:00Z"},
        {"action": "explode", "time": in_(120)},
    ],
)
def test_a_notice_that_differs_from_the_documentation_is_uncertain(action: dict[str, str]) -> None:
    with Server(Ec2(action)) as server:
        notice = AwsSource(server.url).wait(0)
    assert notice is not None
    assert not notice.certain


@pytest.mark.parametrize(
    "action", [answer("<html>sign in"), answer("[]"), answer("{}"), answer("null"), answer("", 500), answer("", 403)]
)
def test_an_answer_that_is_no_notice_is_an_error(action: bytes) -> None:
    with Server(Ec2(action)) as server, pytest.raises(SourceError, match=r"^aws: "):
        AwsSource(server.url).wait(0)


@pytest.mark.parametrize(
    "rebalance", [answer("<html>"), answer("{}"), answer("", 500), answer('{"noticeTime": "now"}')]
)
def test_a_recommendation_that_cannot_be_read_is_an_error(rebalance: bytes) -> None:
    with Server(Ec2(rebalance=rebalance)) as server, pytest.raises(SourceError, match=r"^aws: "):
        AwsSource(server.url).wait(0)


@pytest.mark.parametrize(
    "answer_bytes",
    [
        answer("token", 200),
        answer("", 200, {TTL: "21600"}),
        answer("two\r\nX-Lines: 1", 200, {TTL: "21600"}),
        answer("a page with words", 200, {TTL: "21600"}),
        answer("t" * 5000, 200, {TTL: "21600"}),
        answer("token", 200, {TTL: "long"}),
        answer("", 403),
    ],
)
def test_a_malformed_token_is_an_error_and_is_never_sent(answer_bytes: bytes) -> None:
    with (
        Server(lambda _: answer_bytes) as server,
        pytest.raises(SourceError, match="the metadata service refused a token"),
    ):
        AwsSource(server.url).wait(0)
    assert len(server.requests) == 1


def test_a_service_that_refuses_every_token_is_an_error() -> None:
    def reply(request: str) -> bytes:
        return answer("token", 200, {TTL: "21600"}) if request.startswith("PUT") else answer("", 401)

    with Server(reply) as server, pytest.raises(SourceError, match="refuses all tokens"):
        AwsSource(server.url).wait(0)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=20) | st.just("terminate"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["action", "time"]), inner, max_size=2),
    max_leaves=8,
)


@given(_JSON.map(json.dumps).map(str.encode) | st.binary(max_size=100))
def test_no_garbage_is_ever_a_certain_notice(body: bytes) -> None:
    source = AwsSource()
    source._renew_at = float("inf")

    def request(*_: Any, **__: Any) -> Answer:
        return Answer(200, {}, body)

    source._http.request = request  # type: ignore[method-assign]
    try:
        notice = source.wait(0)
    except SourceError:
        return
    assert notice is not None
    assert not notice.certain
