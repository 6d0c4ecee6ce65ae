"""A controller whose ledger is damaged goes on: it sets the file aside, and says so in its log and in an Event."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.cluster.admission_objects import a_job
from tests.cluster.controller.processes import a_cluster, review, running, until
from tests.cluster.watching.small_api_server import serving

EVENTS = "/api/v1/namespaces/spotwright/events"


def test_a_damaged_ledger_is_set_aside_with_an_event_and_reviews_are_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    folder = tmp_path / "controller"
    folder.mkdir(parents=True)
    (folder / "numbers.db").write_bytes(os.urandom(20_000))

    async def scenario() -> str:
        async with serving() as server:
            a_cluster(server)
            server.objects[EVENTS] = {}
            async with running(server, tmp_path):
                placed = await review(caplog, server, a_job())
                assert placed["spec"]["template"]["metadata"]["labels"]["spotwright.dev/spot"]
                told = await until(lambda: list(server.objects[EVENTS].values()))
                assert (told[0]["reason"], told[0]["type"]) == ("LedgerSetAside", "Warning")
                return str(told[0]["message"])

    message = asyncio.run(scenario())
    assert "was damaged" in message
    assert message in caplog.messages
    [aside] = folder.glob("numbers.db.corrupt-*")
    assert aside.stat().st_size == 20_000
