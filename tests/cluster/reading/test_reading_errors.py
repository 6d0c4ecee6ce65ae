"""A failure between a person and the controller is one sentence with a remedy, and a cut connection is reopened."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import plain_yaml
from tests.cluster.folder_records import FolderRuns
from tests.cluster.log_keeping.stores import write_whole
from tests.cluster.reading.cutting_proxy import CuttingProxy
from tests.cluster.reading.served import Served, serving, spotwright
from tests.cluster.records.record_server import login
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster.api_run_records import ApiRecord
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.log_place import LogName
from spotwright.cluster.log_store import LogStore
from spotwright.cluster.recorded_runs import open_runs
from spotwright.engine.events import RunFinished, RunStatus
from spotwright.records.reader import RunReader, follow_logs
from spotwright.records.state_folder import StateFolder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost connection is given up at once."""
    monkeypatch.setattr("spotwright.cluster.log_client._FIRST_PAUSE", 0.0)


def changed(options: list[str], name: str, value: str) -> list[str]:
    at = options.index(name) + 1
    return [*options[:at], value, *options[at + 1 :]]


def test_an_unknown_context_is_named(served: Served) -> None:
    told = spotwright("runs", *served.options(), "--context", "elsewhere")
    assert told.code == 2
    assert "elsewhere" in told.err


def test_a_login_is_sent_by_https_alone(served: Served) -> None:
    told = spotwright("logs", "job/train", *changed(served.options(), "--controller", "http://127.0.0.1:1"))
    expected = "--controller http://127.0.0.1:1: expected https://HOST:PORT, because your login is sent there"
    assert (told.code, told.err) == (2, f"spotwright: {expected}\n")


def test_a_server_with_another_certificate_gets_no_login(
    served: Served, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOTWRIGHT_CONTROLLER_CA", str(certificates / "stranger.crt"))
    told = spotwright("logs", "job/train", *served.options())
    assert told.code == 2
    assert "certificate mismatch" in told.err
    assert "the request was not sent. Name the file with its authority in SPOTWRIGHT_CONTROLLER_CA" in told.err


def test_a_token_that_has_expired_is_told_with_the_mend(served: Served) -> None:
    old = served.kubeconfig("late", token="an-old-token")
    told = spotwright("runs", *changed(served.options(), "--kubeconfig", str(old)))
    assert told.code == 2
    assert "context bed: the cluster does not accept the login, which may have expired: log in again" in told.err
    assert "an-old-token" not in told.err


def test_a_command_that_gets_tokens_is_asked_for_a_new_one(served: Served, tmp_path: Path) -> None:
    script = tmp_path / "login.py"
    script.write_text(
        "import json, pathlib\n"
        f"asked = pathlib.Path({str(tmp_path / 'asked')!r})\n"
        "token = 'anna-token' if asked.exists() else 'an-old-token'\n"
        "asked.write_text('once')\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': token}}))\n"
    )
    path = served.kubeconfig("plugin")
    document = plain_yaml.load(path.read_text())
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(script)]}
    document["users"][0]["user"] = {"exec": command}
    path.write_text(plain_yaml.dump(document))
    assert spotwright("logs", "job/train", *changed(served.options(), "--kubeconfig", str(path))).code == 0


def test_a_certificate_of_another_authority_is_no_login(served: Served, certificates: Path) -> None:
    files = {"client-certificate": "stranger.crt", "client-key": "stranger.key"}
    stranger = served.kubeconfig("stranger", **{key: str(certificates / file) for key, file in files.items()})
    told = spotwright("logs", "job/train", *changed(served.options(), "--kubeconfig", str(stranger)))
    assert told.code == 2
    assert "and whether your client certificate is of this cluster and has not expired" in told.err


def test_nobody_reads_while_the_api_server_cannot_be_asked(certificates: Path, recorded: Path) -> None:
    with serving(certificates, recorded) as served:
        served.kubernetes.is_down = True
        told = spotwright("logs", "job/train", *served.options())
    assert told.code == 2
    assert "the controller cannot check permissions with the API server" in told.err


def test_a_controller_that_is_gone_is_named(served: Served, quick: None) -> None:
    told = spotwright("logs", "job/train", *changed(served.options(), "--controller", "https://127.0.0.1:1"))
    assert told.code == 2
    assert "the controller at https://127.0.0.1:1: does not answer (ConnectionRefusedError" in told.err


def test_options_of_the_other_place_are_refused(served: Served, recorded: Path) -> None:
    both = spotwright("runs", "--state", str(recorded), *served.options())
    assert (both.code, "choose one" in both.err) == (2, True)
    alone = spotwright("runs", "-n", "team-a")
    assert (alone.code, "add --cluster" in alone.err) == (2, True)


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Cluster]:
    """A Job of which one pod runs."""
    cluster = Cluster(tmp_path / "state")
    train = job(backoffLimit=3)
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    yield cluster
    cluster.store.close()


def test_a_followed_log_has_no_gaps_and_no_repeats_after_cuts(
    growing: Cluster, certificates: Path, tmp_path: Path
) -> None:
    (run,) = StateFolder.existing(growing.folder).runs()
    wanted = "".join(f"line {number} ü\n" for number in range(20_000)).encode()
    half, url = len(wanted) // 2, f"file://{tmp_path}/store"

    async def write(*texts: bytes, is_over: bool = False) -> None:
        store = LogStore(url, 64 << 20, FolderRuns(StateFolder.existing(growing.folder)))
        await write_whole(store, LogName.of(run, "train", 1), *texts, is_over=is_over)

    asyncio.run(write(wanted[: half - 1]))
    with (
        serving(certificates, growing.folder, url) as served,
        CuttingProxy(served.port, [3_000, 6_000, 9_000]) as proxy,
    ):
        seen: list[str] = []
        half_seen = threading.Event()
        thread = threading.Thread(target=follow, args=(served, proxy.port, seen, half_seen, half // 10))
        thread.start()
        assert half_seen.wait(60)
        served.do(served.stop())
        asyncio.run(write(wanted[half - 1 :], is_over=True))
        served.do(served.start())
        with login(served.kubeconfig("controller", token="t")) as kubernetes:
            end = RunFinished(growing.now, status=RunStatus.SUCCEEDED)
            record = ApiRecord(kubernetes, run, "team-a")
            record.open()
            state = record.source()
            record.append([end], RunReader(run, state).state)
        thread.join(60)
        assert not thread.is_alive()
        assert proxy.cuts == 3
    assert "".join(seen) == wanted.decode()


def follow(served: Served, port: int, seen: list[str], half_seen: threading.Event, half: int) -> None:
    options = served.options()
    kubernetes = Kubernetes(kubeconfig=options[options.index("--kubeconfig") + 1])
    with open_runs(kubernetes, f"https://127.0.0.1:{port}") as runs:
        for _, text in follow_logs(runs.open("last")):
            seen.append(text)
            if sum(map(len, seen)) >= half:
                half_seen.set()
    kubernetes.close()
