"""A tenant's records in the API are bounded, its own recording is cut, and others are always recorded."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.records.flooding_tenant import FORMS, HOSTILE, QUIET
from tests.cluster.records.record_server import RecordServer, login, recording_server
from tests.cluster.watching.silent_watcher import SilentWatcher
from tests.cluster.watching.watched_objects import BEGIN, done, job, pod

from spotwright.cluster.api_client import Api, EventWriter, connect, find_cluster
from spotwright.cluster.api_run_records import ApiRecords
from spotwright.cluster.record_shares import NAMESPACE_LIMIT, Shares
from spotwright.cluster.retention import Retention

MEMORY = 192 << 20
WHOLE = 512 << 20
KINDS = ("SpotRun", "SpotTask", "SpotAttempt")


def told(kubeconfig: Path, folder: Path, form: str, count: int, share: int) -> dict[str, Any]:
    arguments = [str(kubeconfig), str(folder), form, str(count), str(share)]
    command = [sys.executable, "-m", "tests.cluster.records.flooding_tenant", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def size_of(server: RecordServer, namespace: str) -> int:
    """The bytes of all objects of a namespace."""
    objects = [each for kind in KINDS for each in server.kept(kind) if each["metadata"]["namespace"] == namespace]
    return len(json.dumps(objects))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "count", "share"),
    [("gated_pods", 60, 150_000), ("distinct_steps", 500, 600_000), ("live_runs", 299, 600_000)],
)
def test_a_tenant_that_fills_its_share_pays_alone_and_is_told(
    tmp_path: Path, form: str, count: int, share: int
) -> None:
    with recording_server(tmp_path) as (server, kubeconfig):
        found = told(kubeconfig, tmp_path / "state", form, count, share)
        assert found["rss"] < MEMORY
        assert found["cut"]
        assert all(name.startswith(f"{HOSTILE}.") for name in found["cut"])
        assert set(found["aside"]) <= {HOSTILE}
        assert found["kept"] <= share
        assert size_of(server, HOSTILE) <= share
        events = [
            each for where, known in server.objects.items() if where.endswith("/events") for each in known.values()
        ]
        assert {each["metadata"]["namespace"] for each in events} == {HOSTILE}
        assert "RecordingCut" in {each["reason"] for each in events}
        quiet = [each["status"] for each in server.kept("SpotRun") if each["metadata"]["namespace"] == QUIET]
        assert [(each["phase"], each["attempts"]) for each in quiet] == [("succeeded", 1)] * quiet_jobs(form, count)
        assert told(kubeconfig, tmp_path / "state", "nothing", 0, share)["rss"] < MEMORY


def quiet_jobs(form: str, count: int) -> int:
    """How many Jobs the other tenant has made meanwhile."""
    return sum(number % 10 == 0 for number, _ in enumerate(FORMS[form](count)))


@pytest.mark.slow
@pytest.mark.many
def test_a_pipeline_of_5_000_distinct_steps_is_recorded_whole(tmp_path: Path) -> None:
    with recording_server(tmp_path) as (server, kubeconfig):
        for form, count in (("distinct_steps", 5_000), ("nothing", 0)):
            found = told(kubeconfig, tmp_path / "state", form, count, NAMESPACE_LIMIT)
            assert found["rss"] < WHOLE
            assert not found["cut"]
            assert not found["aside"]
        assert size_of(server, HOSTILE) < NAMESPACE_LIMIT
        assert len([each for each in server.kept("SpotAttempt") if each["metadata"]["namespace"] == HOSTILE]) == 5_000


# Deleted runs


def finished(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A Job that has ended so many minutes after the begin, and its pod, both of which stay in the cluster."""
    root = job(f"old-{number}", uid=f"{f'old-{number}':*<36}", status=done())
    return root, pod(f"old-{number}-0", root, node="n1", phase="Succeeded", exit_code=0, ended=60 * number)


def test_what_was_deleted_for_its_size_is_not_recorded_again_by_a_recorder_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(Api, "now", lambda _self: clock[0])
    shares = Shares(20_000)

    async def look(kubeconfig: Path) -> None:
        api = Api(connect(find_cluster(None, kubeconfig=str(kubeconfig))))
        await Retention(api, EventWriter(api), shares=shares).look()
        await api.close()

    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:

        def recorder() -> SilentWatcher:
            return SilentWatcher(tmp_path / "state", ApiRecords(kubernetes), shares)

        def names() -> set[str]:
            return {str(each["metadata"]["name"]).split(".")[1].partition("-old")[0] for each in server.kept("SpotRun")}

        made = recorder()
        for number in range(1, 10):
            clock[0] = BEGIN + 60.0 * number + 2
            for kind, data in zip(("Job", "Pod"), finished(number), strict=True):
                made.put(kind, data)
        asyncio.run(look(kubeconfig))
        left = names()
        assert left
        assert left == {f"old-{number}" for number in range(10 - len(left), 10)}
        made.close()
        made = recorder()
        clock[0] += 60.0
        for number in range(1, 11):  # the last one ended while nobody recorded
            for kind, data in zip(("Job", "Pod"), finished(number), strict=True):
                made.put(kind, data)
        assert names() == {*left, "old-10"}
        made.close()
