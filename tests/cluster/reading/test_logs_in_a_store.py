"""Logs that lie in an object store are read through the controller as those that lie beside it, a log of before too."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.log_keeping.stores import write_whole
from tests.cluster.reading.recorded import LOGS
from tests.cluster.reading.served import Served, serving, spotwright

from spotwright.cluster.log_place import LogName
from spotwright.cluster.log_store import FolderRuns, LogStore
from spotwright.records.state_folder import RunFolder, StateFolder


def train_of(state: Path) -> RunFolder:
    return next(run for run in StateFolder.existing(state).runs() if run.name.startswith("team-a.train"))


@pytest.fixture(scope="module")
def stored(certificates: Path, recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A controller with the same runs; of the three logs of team-a's Job a store has two, the volume that of before."""
    folder = tmp_path_factory.mktemp("stored")
    state, url = folder / "state", f"file://{folder}/store"
    shutil.copytree(recorded, state)
    run = train_of(state)

    async def move() -> None:
        store = LogStore(url, 64 << 20, FolderRuns(StateFolder.existing(state)))
        for attempt in (2, 3):
            text, name = LOGS[attempt], LogName.of(run, "train", attempt)
            cuts = [0, 5, 9, len(text) // 2, len(text)]
            await write_whole(store, name, *(text[begin:end] for begin, end in itertools.pairwise(cuts)))
            shutil.rmtree(run.attempt("train", attempt))

    asyncio.run(move())
    with serving(certificates, state, url) as controller:
        yield controller


@pytest.mark.parametrize(
    "command",
    [
        ["logs", "RUN"],
        ["logs", "RUN", "--json"],
        ["logs", "RUN", "train", "2"],
        ["logs", "RUN", "train", "3", "--follow", "--json"],
        ["logs", "RUN", "train", "4"],
    ],
)
def test_a_command_prints_the_same_as_where_logs_lie_beside_the_controller(
    stored: Served, recorded: Path, command: list[str]
) -> None:
    named = [train_of(recorded).name if word == "RUN" else word for word in command]
    there, here = spotwright(*named, *stored.options("admin")), spotwright(*named, "--state", str(recorded))
    assert there._replace(out=there.out.replace(str(stored.state), str(recorded))) == here


def test_a_store_that_cannot_be_read_is_said_with_its_address_and_the_rest_is_shown(
    certificates: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "hidden-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-value")
    run = train_of(recorded).name
    with serving(certificates, recorded, "s3://logs/spot") as controller:
        printed = spotwright("logs", run, "train", "1", *controller.options("admin"))
        assert (printed.code, "hidden" in printed.err) == (2, False)
        assert "the log cannot be read now: s3://logs/spot: it does not answer" in printed.err
        assert spotwright("show", run, *controller.options("admin")).code == 0


def test_who_may_not_read_logs_reads_none_of_a_store(stored: Served, recorded: Path) -> None:
    printed = spotwright("logs", train_of(recorded).name, "train", "2", *stored.options("bert"))
    assert (printed.code, printed.out) == (2, "")
    assert "bert may not read logs in namespace team-a" in printed.err
