"""Two controllers for one namespace: the second one leaves objects placed by the first unchanged, and says so."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.admission_objects import a_config, a_job
from tests.cluster.controller.processes import a_cluster, review, running, until
from tests.cluster.json_patches import apply_patch
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster import attempt_lookup, controller_events
from spotwright.cluster.admit_objects import Verdict, admit_object
from spotwright.cluster.admit_updates import Update, restore_object

FIRST, SECOND = "one/spotwright", "two/spotwright"
EVENTS = "/api/v1/namespaces/team-a/events"
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"


def placed_by(name: str) -> dict[str, Any]:
    job = a_job()
    placed: dict[str, Any] = apply_patch(copy.deepcopy(job), list(admit_object(job, a_config(), by=name).patch))
    return placed


def test_what_another_controller_has_placed_is_left_and_its_creator_is_told() -> None:
    outcome = admit_object(placed_by(FIRST), a_config("{default: {spot: never}}"), by=SECOND)
    assert (outcome.verdict, outcome.patch, outcome.rival) == (Verdict.ALREADY_PLACED, (), FIRST)
    text = " ".join(outcome.warnings)
    assert "two controllers serve this namespace" in text
    assert FIRST in text
    assert SECOND in text
    assert "spotwright controller unregister" in text


def test_an_object_that_comes_a_second_time_to_its_own_controller_is_nothing_new() -> None:
    outcome = admit_object(placed_by(FIRST), a_config(), by=FIRST)
    assert (outcome.verdict, outcome.warnings, outcome.rival) == (Verdict.ALREADY_PLACED, (), "")


def test_an_update_of_what_another_controller_has_placed_is_left_to_that_one() -> None:
    placed = placed_by(FIRST)
    applied = copy.deepcopy(placed)
    applied["spec"] = a_job()["spec"]  # a client-side apply takes the placement away

    outcome = restore_object(applied, Update(placed), a_config(), by=SECOND)
    assert (outcome.verdict, outcome.patch, outcome.rival) == (Verdict.NOTHING_TO_DO, (), FIRST)
    assert restore_object(applied, Update(placed), a_config(), by=FIRST).verdict == Verdict.RESTORED


def test_marks_that_name_no_controller_are_no_rivals() -> None:
    job = placed_by("")
    assert "by" not in json.loads(job["metadata"]["annotations"]["spotwright.dev/admitted"])
    assert admit_object(job, a_config(), by=SECOND).rival == ""
    job["metadata"]["annotations"]["spotwright.dev/admitted"] = "by hand"
    assert admit_object(job, a_config(), by=SECOND).rival == ""


def test_a_controller_tells_once_of_another_one_whose_object_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(controller_events, "_MADE_AFTER", 0.05)
    monkeypatch.setattr(attempt_lookup, "_FRESH", 0.0)

    async def scenario() -> SmallApiServer:
        async with serving() as server:
            a_cluster(server)
            server.objects[EVENTS] = {}
            async with running(server, tmp_path):
                placed = placed_by("elsewhere/spotwright")
                with pytest.raises(KeyError):  # there is no patch
                    await review(caplog, server, placed)  # of an object that does not come to be: anybody may send it
                await asyncio.sleep(0.2)
                assert server.objects[EVENTS] == {}
                server.put(JOBS, "train", **placed)
                for _ in range(2):
                    with pytest.raises(KeyError):
                        await review(caplog, server, placed)
                await until(lambda: server.objects[EVENTS])
            return server

    server = asyncio.run(scenario())
    [event] = server.objects[EVENTS].values()
    assert event["reason"] == "TwoControllers"
    assert "elsewhere/spotwright also serves namespace team-a, beside spotwright/spotwright" in event["message"]
    assert sum("TwoControllers" in line or "serves namespace team-a" in line for line in caplog.messages) == 1
