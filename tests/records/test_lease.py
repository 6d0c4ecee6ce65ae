"""Leases with expiry, as a cluster needs them, and requests to an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotwright.engine.events import NoteAdded
from spotwright.engine.ports import Holder
from spotwright.errors import Fenced, RunBusy
from spotwright.records.journal import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Journal:
    Journal.create(path).close()
    return Journal.open(path)


def dead(_holder: Holder) -> bool:
    return False


def alive(_holder: Holder) -> bool:
    return True


def test_a_lease_with_expiry_is_held_until_then_even_if_its_holder_is_dead(path: Path, journal: Journal) -> None:
    journal.take({"name": "one"}, dead, now=100.0, lasts=30.0)
    with pytest.raises(RunBusy, match=r"driven by another engine \(one\)"):
        Journal.open(path).take({"name": "two"}, dead, now=129.0, lasts=30.0)
    assert Journal.open(path).take({"name": "two"}, alive, now=131.0, lasts=30.0) == 2


def test_renewing_moves_the_end_of_a_lease(path: Path, journal: Journal) -> None:
    journal.take({"name": "one"}, dead, now=100.0, lasts=30.0)
    assert journal.renew(105.0) == 110.0  # a third of its time has not passed yet
    assert journal.renew(110.0) == 120.0
    lease = journal.lease()
    assert lease is not None
    assert (lease.renewed_at, lease.expires_at) == (110.0, 140.0)


def test_an_engine_that_lost_its_lease_cannot_renew_it(path: Path, journal: Journal) -> None:
    journal.take({"name": "one"}, dead, now=100.0, lasts=30.0)
    Journal.open(path).take({"name": "two"}, dead, now=131.0, lasts=30.0)
    with pytest.raises(Fenced):
        journal.renew(131.0)


def test_a_lease_without_expiry_needs_no_renewal(journal: Journal) -> None:
    assert journal.renew(1e9) is None


def test_only_known_requests_are_taken(journal: Journal) -> None:
    with pytest.raises(ValueError, match="cancel or detach, not 'pause'"):
        journal.request("pause", 1.0)


# Requests of other processes


def test_a_request_is_taken_once(path: Path, journal: Journal) -> None:
    Journal.open(path).request("cancel", 1.0)
    assert (journal.take_requests(), journal.take_requests()) == (["cancel"], [])


def test_a_request_to_an_earlier_engine_is_not_for_the_next_one(path: Path, journal: Journal) -> None:
    journal.take({"name": "one"}, dead)
    Journal.open(path).request("cancel", 1.0)
    journal.take({"name": "two"}, dead)
    assert journal.take_requests() == []


def test_a_request_needs_no_lease_and_takes_none(path: Path, journal: Journal) -> None:
    Journal.open(path).request("cancel", 1.0)
    journal.take({"name": "one"}, dead)
    Journal.open(path).request("cancel", 2.0)
    journal.append([NoteAdded(1.5, text="still mine")])
    lease = journal.lease()
    assert lease is not None
    assert lease.holder == {"name": "one"}
