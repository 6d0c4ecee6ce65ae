"""The keeper follows the logs of pods over HTTP: through cut streams, refusals and a new keeper, and ends where the pod ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web
from tests.cluster.log_keeping.container_log import START, Line, stamped
from tests.cluster.log_keeping.keepers import (
    ENDED,
    LINES,
    PODS,
    RUNNING,
    WHOLE,
    Body,
    Endpoint,
    keeping,
    log_of,
    pod,
    seen,
    until,
    until_complete,
    until_kept,
)
from tests.cluster.log_keeping.stores import FailingStore
from tests.cluster.watching.small_api_server import SmallApiServer

from spotwright.cluster import log_follower, log_keeper, log_store
from spotwright.cluster.log_follower import Pace
from spotwright.cluster.log_keeper import LogKeeper
from spotwright.records.state_folder import StateFolder


@pytest.fixture
def body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Body:
    """Where logs lie; parts are written at once."""
    monkeypatch.setattr(log_store, "_PAUSE", 0.02)
    return Body(StateFolder.open(tmp_path / "state"))


def test_a_log_is_followed_through_cut_streams_and_refusals_to_its_end(body: Body) -> None:

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown, endpoint.cuts = 20, [37, 250, 333]
        running = pod(server, RUNNING)
        server.answers = [web.Response(status=429, headers={"Retry-After": "0"}), web.Response(status=500)]
        keeper.follow(seen(running))
        await until_kept(body, log_of(running), b"line 19")
        endpoint.shown = len(LINES)
        keeper.follow(seen(pod(server, ENDED)))
        assert await until_complete(body, log_of(running)) == WHOLE

    keeping(test, body)


def test_a_new_keeper_goes_on_where_the_one_before_was(body: Body) -> None:

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        running = pod(server, RUNNING)
        keeper.follow(seen(running))
        await until_kept(body, log_of(running), b"line 19")
        endpoint.shown = len(LINES)
        pod(server, ENDED)
        start()  # nobody tells it: the run may be over
        assert await until_complete(body, log_of(running)) == WHOLE

    keeping(test, body)


def test_where_the_node_goes_the_log_ends_with_what_it_had_sent(body: Body) -> None:

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        running = pod(server, RUNNING)
        keeper.follow(seen(running))
        await until_kept(body, log_of(running), b"line 19")
        keeper.follow(seen(running, is_lost=True))
        text = await until_complete(body, log_of(running))
        our_line = b"[spotwright: the log ends here: its node no longer reports; its last line is from "
        assert text.startswith(b"".join(line.text for line in LINES[:20]) + our_line)

    keeping(test, body)


def test_a_container_that_failed_beside_the_main_one_is_read_after_the_end(body: Body) -> None:
    failed = {"name": "wait", "restartCount": 0, "state": {"terminated": {"exitCode": 1}}}
    quiet = {"name": "istio-proxy", "restartCount": 0, "state": ENDED}

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server, lines=LINES[:1]), start()
        ended = pod(server, ENDED, beside=[quiet, failed])
        keeper.follow(seen(ended))
        text = await until_complete(body, log_of(ended))
        assert text == b"line 0\n==> container wait, which exited with 1 <==\nline 0\n"
        assert endpoint.asked == ["main", "wait"]

    keeping(test, body)


WRAPPED = ["python3 train.py 1>/var/log/katib/metrics.log 2>&1 && echo completed > /var/log/katib/$$$$.pid"]
COLLECTOR = "metrics-logger-and-collector"


def a_trial_s_pod(server: SmallApiServer, state: dict[str, Any], policy: str = "Never") -> dict[str, Any]:
    """A pod of a trial as Katib's webhook makes it for the collector StdOut."""
    made = pod(server, state, beside=[{"name": COLLECTOR, "restartCount": 0, "state": state}])
    made["spec"]["restartPolicy"] = policy
    made["spec"]["containers"][0]["args"] = WRAPPED
    return made


def test_the_lines_of_a_trial_are_read_while_they_come_from_the_container_that_prints_them(body: Body) -> None:

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        running = a_trial_s_pod(server, RUNNING)
        keeper.follow(seen(running))
        await until_kept(body, log_of(running), b"line 19")
        assert endpoint.asked == [COLLECTOR]
        endpoint.shown, endpoint.lines = 2, LINES[:2]
        keeper.follow(seen(a_trial_s_pod(server, ENDED)))
        text = await until_complete(body, log_of(running))
        first, *_, last = [line for line in text.splitlines() if line.startswith(b"==>")]
        assert (
            first
            == b"==> container metrics-logger-and-collector, which prints what main writes: Katib redirects it <=="
        )
        assert last == b"==> container main, the output that Katib does not redirect <=="

    keeping(test, body)


def test_a_trial_whose_lines_were_not_read_says_where_they_are(body: Body) -> None:

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        _, keeper = Endpoint(server, lines=LINES[:1]), start()
        ended = a_trial_s_pod(server, ENDED, policy="OnFailure")
        keeper.follow(seen(ended))
        text = await until_complete(body, log_of(ended))
        assert text.endswith(
            b"[spotwright: Katib redirects what main writes, and container metrics-logger-and-collector prints it, whose log was "
            b"not read]\n"
        )

    keeping(test, body)


def test_values_of_variables_that_are_secrets_by_name_are_hidden(body: Body) -> None:
    lines = [Line(START, b"login with hunter2-hunter2 at /run/token\n")]
    env = [{"name": "API_TOKEN", "value": "hunter2-hunter2"}, {"name": "TOKEN_PATH", "value": "/run/token"}]

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        Endpoint(server, lines=lines)
        ended = pod(server, ENDED, env=env)
        start().follow(seen(ended))
        assert await until_complete(body, log_of(ended)) == b"login with *** at /run/token\n"

    keeping(test, body)


def test_hundreds_of_attempts_are_followed_at_once(body: Body) -> None:
    count = 150

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        keeper = start()
        pods = []
        for number in range(count):
            Endpoint(server, f"train-{number}", LINES[:5])
            pods.append(pod(server, ENDED, f"train-{number}"))
            keeper.follow(seen(pods[-1]))
        for each in pods:
            assert await until_complete(body, log_of(each)) == b"".join(line.text for line in LINES[:5])
        assert keeper.open_logs == 0

    keeping(test, body)


def test_a_stream_that_ends_at_once_is_opened_again_when_its_pod_has_changed(
    body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container ends a second or so before its pod says so; until then every stream of its log ends at once."""
    monkeypatch.setattr(log_follower, "_SHORT", 60.0)

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        running = pod(server, RUNNING)
        keeper.follow(seen(running))
        await until_kept(body, log_of(running), WHOLE)
        async with httpx2.AsyncClient(base_url=server.url) as other:
            for _ in range(30):  # as long as thirty answers take
                await other.get(PODS)
        assert len(endpoint.asked) == 1
        keeper.follow(seen(pod(server, ENDED)))
        assert await until_complete(body, log_of(running)) == WHOLE
        assert len(endpoint.asked) == 2

    keeping(test, body)


@pytest.mark.parametrize("told", ["a notice", "a deletion"])
def test_what_comes_of_a_pod_that_was_told_to_go_is_written_without_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    monkeypatch.setattr(log_store, "_PAUSE", 3600.0)
    monkeypatch.setattr(log_store, "_SEALED", 0.02)
    body = Body(StateFolder.open(tmp_path / "state"))

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        running = pod(server, RUNNING)
        keeper.follow(seen(running))
        await until(lambda: (keeper.last_line(seen(running).key) or 0) >= LINES[19].stamp / 1e9)
        assert await body.read(log_of(running)) == b""
        if told == "a deletion":
            running = {**running, "metadata": {**running["metadata"], "deletionTimestamp": "2026-05-28T20:26:40Z"}}
        keeper.follow(seen(running, is_noticed=told == "a notice"))
        await until_kept(body, log_of(running), b"line 19")
        endpoint.shown = len(LINES)
        await until_kept(body, log_of(running), b"line 39")

    keeping(test, body)


def test_what_waits_is_written_when_the_keeper_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_store, "_PAUSE", 3600.0)
    body = Body(StateFolder.open(tmp_path / "state"))

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        running = pod(server, RUNNING)
        keeper.follow(seen(running))
        await until(lambda: (keeper.last_line(seen(running).key) or 0) >= LINES[19].stamp / 1e9)
        start()  # it ends the one before
        await until_kept(body, log_of(running), b"line 19")

    keeping(test, body)


def test_what_comes_while_the_store_is_away_is_written_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: str, failing: FailingStore
) -> None:
    monkeypatch.setattr(log_store, "_PAUSE", 0.02)
    monkeypatch.setattr(log_store, "_FIRST_WAIT", 0.05)
    body = Body(StateFolder.open(tmp_path / "state"), bucket)

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        running = pod(server, RUNNING)
        keeper.follow(seen(running))
        await until_kept(body, log_of(running), b"line 19")
        failing.fault = (503, "SlowDown")
        endpoint.shown = len(LINES)
        keeper.follow(seen(pod(server, ENDED)))
        refused = len(failing.asked)
        await until(lambda: sum(each.startswith("PUT") for each in failing.asked[refused:]) > 3)
        assert keeper.open_logs == 1
        failing.fault = None
        assert await until_complete(body, log_of(running)) == WHOLE

    keeping(test, body)


@pytest.mark.parametrize("told", ["its run was cut", "its pod was forgotten"])
def test_where_the_watcher_says_nothing_any_more_the_keeper_asks_for_the_pod(
    body: Body, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    monkeypatch.setattr(log_keeper, "_UNTOLD", 0.02)

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        Endpoint(server)
        keeper, waiting = start(), pod(server, {"waiting": {}})
        waiting["status"]["phase"] = "Pending"
        keeper.follow(seen(waiting))
        if told == "its run was cut":
            keeper.leave([seen(waiting).key])
        else:
            keeper.forget(waiting["metadata"]["uid"])
        pod(server, ENDED)
        assert await until_complete(body, log_of(waiting)) == WHOLE
        await until(lambda: keeper.open_logs == 0)

    keeping(test, body)


def test_where_streams_end_at_once_the_keeper_asks_for_the_pod(body: Body, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_keeper, "_UNTOLD", 0.02)

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        Endpoint(server)
        keeper, running = start(), pod(server, RUNNING)
        keeper.follow(seen(running))
        pod(server, ENDED)
        assert await until_complete(body, log_of(running)) == WHOLE

    keeping(test, body)


def test_a_stream_that_ends_at_once_is_opened_again_later_each_time(
    body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "_SHORT", 0.3)

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        keeper.follow(seen(pod(server, RUNNING)))
        await asyncio.sleep(3.0)
        assert 2 <= len(endpoint.asked) <= 6

    keeping(test, body)


def test_a_log_of_a_forgotten_pod_is_not_kept_in_mind(body: Body) -> None:
    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        ended = pod(server, ENDED)
        for _ in range(2):
            keeper.follow(seen(ended))
            await until(lambda: keeper.open_logs == 0)
            assert keeper.last_line(seen(ended).key) is not None or len(endpoint.asked) == 1
            keeper.forget(ended["metadata"]["uid"])
            assert keeper.last_line(seen(ended).key) is None
        assert len(endpoint.asked) == 1, "it is complete for whoever asks the store"
        assert not keeper._complete
        assert not keeper._of_pod

    keeping(test, body)


def test_each_namespace_has_its_pace_and_many_that_print_share_one() -> None:
    now = 100.0
    pace = Pace(lambda: now)
    at_once = int(log_follower._BURST * log_follower._A_SECOND)
    assert pace.wait_after("a", at_once) == 0.0
    assert pace.wait_after("a", log_follower._A_SECOND) == pytest.approx(1.0)
    assert pace.wait_after("b", 1000) == 0.0, "others are not slowed"
    now += 1.0 + log_follower._BURST
    assert pace.wait_after("a", at_once) == 0.0
    share = log_follower._ALL // log_follower._A_SECOND
    for number in range(2 * share):
        pace.wait_after(f"c{number}", 2 * at_once)
    before = pace.wait_after("c0", 0)
    assert pace.wait_after("c0", log_follower._A_SECOND) - before == pytest.approx(2.0)


def test_a_pod_that_prints_without_end_is_read_at_the_pace_of_its_namespace(
    body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "_A_SECOND", 1000)

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        async def print_on(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            text = b"".join(stamped(Line(START, b"again\n")) for _ in range(100))
            with contextlib.suppress(ConnectionError):
                while True:
                    await response.write(text)
            return response

        server.pages[f"{PODS}/flood/log"] = print_on
        others = PODS.replace("/a/", "/b/")
        Endpoint(server, pods=others)
        keeper, flood = start(), pod(server, RUNNING, "flood")
        keeper.follow(seen(flood))
        await until_kept(body, log_of(flood), b"again")
        quiet = pod(server, ENDED)
        quiet["metadata"]["namespace"] = "b"
        keeper.follow(seen(quiet))
        assert await until_complete(body, log_of(quiet)) == WHOLE
        await asyncio.sleep(1.0)
        assert len(await body.read(log_of(flood))) < 64 << 10

    keeping(test, body)
