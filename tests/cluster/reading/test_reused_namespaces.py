"""A namespace that was deleted and made again is another one: its owner reads nothing of what ran in the one before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.reading.recorded import record_two_teams
from tests.cluster.reading.served import Served, serving, spotwright

from spotwright.records.state_folder import StateFolder


@pytest.fixture
def again(certificates: Path, tmp_path: Path) -> Iterator[Served]:
    record_two_teams(tmp_path / "state")
    with serving(certificates, tmp_path / "state") as served:
        other = {"metadata": {"name": "team-a", "uid": "uid-of-the-second-team-a"}}
        served.kubernetes.objects["/api/v1/namespaces/team-a"] = other
        yield served


def names(served: Served) -> list[str]:
    runs = [folder.name for folder in StateFolder.existing(served.state).runs()]
    return [name for name in runs if name.startswith("team-a.")]


def test_runs_of_the_namespace_before_are_in_no_list(again: Served) -> None:
    assert names(again)
    listed = spotwright("runs", *again.options("anna"))
    assert not [name for name in names(again) if name in listed.out + listed.err]


@pytest.mark.parametrize("command", ["show", "logs", "report"])
def test_a_run_of_the_namespace_before_is_not_found(again: Served, command: str) -> None:
    for name in names(again):
        done = spotwright(command, name, *again.options("anna"))
        assert done.code != 0
        assert "no run" in done.err


def test_who_may_read_all_namespaces_reads_it(again: Served) -> None:
    listed = spotwright("runs", *again.options("admin"))
    assert listed.code == 0, listed.err
    for name in names(again):
        assert spotwright("show", name, *again.options("admin")).code == 0


def test_a_namespace_that_nobody_has_any_more_is_read_by_none_but_them(again: Served) -> None:
    again.kubernetes.objects["/api/v1/namespaces/team-a"] = {"metadata": {"name": "team-a"}}
    assert spotwright("show", names(again)[0], *again.options("anna")).code != 0


def test_a_namespace_that_is_not_served_any_more_keeps_nobody_from_reading_the_others(
    certificates: Path, tmp_path: Path
) -> None:
    """The rights of the chart are on the served namespaces by name."""
    record_two_teams(tmp_path / "state")
    with serving(certificates, tmp_path / "state") as served:
        served.kubernetes.served = ("team-b",)
        assert spotwright("runs", *served.options("anna")).code == 0
        assert spotwright("show", names(served)[0], *served.options("anna")).code != 0
