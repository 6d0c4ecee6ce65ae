"""The metrics of a replica: evictions, waiting pods, skipped pools, results of reviews."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import ClientSession
from tests.cluster.admission_objects import a_job
from tests.cluster.controller.processes import a_cluster, review, running
from tests.cluster.watching.small_api_server import serving

from spotwright.cluster.controller_settings import Settings
from spotwright.cluster.health import Health
from spotwright.cluster.metrics import Metrics, serve_metrics
from spotwright.cluster.unavailable_pools import LeftOut, Tally
from spotwright.errors import InputError
from spotwright.scheduling.budgets import Pause


def values(text: str) -> dict[str, float]:
    """The samples of a text in Prometheus' format; every other line is a comment."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def a_metrics(tally: Tally, *pauses: LeftOut) -> Metrics:
    return Metrics(
        tally=tally,
        pauses=lambda: pauses,
        verdicts=lambda: {"placed": 3, "too late": 1},
        aside=lambda: [("team-b", "webhook")],
    )


def test_moves_waits_and_pools_that_are_left_out_are_told() -> None:
    tally = Tally()
    tally.begin()
    for move in ("taken-back", "evicted", "evicted", "deleted"):
        tally.moved(move)
    for uid, reason in (("1", "Unschedulable"), ("2", "Unschedulable"), ("3", ""), ("4", "Unschedulable")):
        tally.waits(uid, "team-a", reason)
    tally.waits_no_more("4")
    tally.unplaced, tally.defects, tally.unread = 7, 2, 1
    tally.archives["archived"] += 4
    tally.kinds = {"Job": True, "TrainJob": False}
    text = a_metrics(tally, LeftOut("k", "", "gpu-spot", Pause(2, 1_000.0, 1_800_000_600.0))).text()
    assert values(text) == {
        "spotwright_leading": 1,
        "spotwright_not_recorded": 0,
        'spotwright_moves_total{move="taken-back"}': 1,
        'spotwright_moves_total{move="evicted"}': 2,
        'spotwright_moves_total{move="deleted"}': 1,
        'spotwright_pods_waiting{namespace="team-a",reason="Unschedulable"}': 2,
        'spotwright_pods_waiting{namespace="team-a",reason="NotScheduledYet"}': 1,
        'spotwright_pool_left_out_until_seconds{namespace="",pool="gpu-spot"}': 1_800_000_600,
        'spotwright_pool_left_out_times{namespace="",pool="gpu-spot"}': 2,
        "spotwright_pods_unplaced_total": 7,
        'spotwright_runs_archived_total{outcome="archived"}': 4,
        'spotwright_runs_archived_total{outcome="failed"}': 0,
        'spotwright_runs_archived_total{outcome="lost"}': 0,
        "spotwright_workloads_set_aside_total": 2,
        "spotwright_runs_unread": 1,
        'spotwright_kind_read{kind="Job"}': 1,
        'spotwright_kind_read{kind="TrainJob"}': 0,
        'spotwright_reviews_total{verdict="placed"}': 3,
        'spotwright_reviews_total{verdict="too late"}': 1,
        'spotwright_set_aside{by="webhook",namespace="team-b"}': 1,
    }
    assert "# TYPE spotwright_moves_total counter\n" in text


def test_a_replica_that_leads_no_more_says_nothing_of_what_waits() -> None:
    tally = Tally()
    tally.begin()
    tally.waits("1", "team-a", "Unschedulable")
    tally.moved("evicted")
    tally.end()
    told = values(a_metrics(tally).text())
    assert told["spotwright_leading"] == 0
    assert not [name for name in told if name.startswith("spotwright_pods_waiting")]
    assert told['spotwright_moves_total{move="evicted"}'] == 1, "a counter never goes back"


def test_names_with_quotes_and_line_ends_are_escaped() -> None:
    text = a_metrics(Tally(), LeftOut("k", "team-a", 'a"b\\c\nd', Pause(1, 0.0, 1.0))).text()
    assert r'spotwright_pool_left_out_times{namespace="team-a",pool="a\"b\\c\nd"} 1' in text.splitlines()


def test_a_port_that_is_taken_is_an_error_only_where_somebody_asked_for_it() -> None:
    async def scenario(*, is_asked: bool) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            settings = Settings(
                authority_folder=Path("unused"), metrics_port=taken.getsockname()[1], metrics_are_asked=is_asked
            )
            async with AsyncExitStack() as stack:
                await serve_metrics(a_metrics(Tally()), settings, Health(), lambda: True, stack)

    asyncio.run(scenario(is_asked=False))
    with pytest.raises(InputError, match=r"cannot listen there .* see --metrics-listen"):
        asyncio.run(scenario(is_asked=True))


def test_a_webhook_serves_what_its_own_reviews_came_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario() -> tuple[str, str]:
        async with serving() as server:
            a_cluster(server)
            async with running(server, tmp_path), ClientSession() as session:
                await review(caplog, server, a_job())
                address = next(
                    line.split(" at ")[1] for line in caplog.messages if line.startswith("metrics are served")
                )
                async with session.get(address) as answer:
                    return await answer.text(), answer.headers["Content-Type"]

    text, kind = asyncio.run(scenario())
    assert kind.startswith("text/plain; version=0.0.4")
    told = values(text)
    assert told['spotwright_reviews_total{verdict="placed"}'] == 1
    assert "spotwright_leading" not in told, "the recorder tells that"


def test_probes_are_answered_beside_the_metrics(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    now = 100.0
    health, is_ready = Health(10.0, lambda: now), [False]
    settings = Settings(authority_folder=Path("unused"), metrics_port=0)

    async def scenario() -> list[tuple[int, str]]:
        nonlocal now
        async with AsyncExitStack() as stack, ClientSession() as session:
            await serve_metrics(a_metrics(Tally()), settings, health, lambda: is_ready[0], stack)
            address = caplog.messages[-1].split(" at ")[1].removesuffix("/metrics")

            async def asked(path: str) -> tuple[int, str]:
                async with session.get(f"{address}{path}") as answer:
                    return answer.status, await answer.text()

            answers = [await asked("/healthz"), await asked("/readyz")]
            is_ready[0], now = True, 111.0
            answers += [await asked("/readyz"), await asked("/healthz")]
            health.alive()
            health.failure = "the recording has failed 3 times in a row"
            return [*answers, await asked("/healthz")]

    assert asyncio.run(scenario()) == [
        (200, "ok"),
        (503, "not ready yet"),
        (200, "ready"),
        (500, "no progress for 11 s"),
        (500, "the recording has failed 3 times in a row"),
    ]
