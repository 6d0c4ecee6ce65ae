"""Failures of a log store are reported with its address, and people without the right to read logs read none of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.reading.served import Served, serving, spotwright

from spotwright.records.state_folder import RunFolder, StateFolder


def train_of(state: Path) -> RunFolder:
    return next(run for run in StateFolder.existing(state).runs() if run.name.startswith("team-a.train"))


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
        assert "the store cannot be read: s3://logs/spot: it does not answer" in printed.err
        assert spotwright("show", run, *controller.options("admin")).code == 0


def test_who_may_not_read_logs_reads_none_of_a_store(served: Served, recorded: Path) -> None:
    printed = spotwright("logs", train_of(recorded).name, "train", "2", *served.options("bert"))
    assert (printed.code, printed.out) == (2, "")
    assert "bert may not read logs in namespace team-a" in printed.err
