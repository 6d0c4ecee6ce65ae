"""When a node may go early: somebody was there, and nobody that is known is there any more."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.notices.servers import wait_until

from spotwright.agent.approval import QUIET, Approval, nothing_runs
from spotwright.notices import Notice, SourceError
from spotwright.notices.board import Board
from spotwright.notices.serving import Later, Request

SOME = Notice(2e9, "interruption", "azure", certain=True, reason="x")


class Lab:
    def __init__(self, leases: Path | None = None) -> None:
        self.board = Board(str)
        self.said: list[str] = []
        self.approved = 0
        self.error = ""
        self.approval = Approval(self.board, self._approve, self.said.append, leases)

    def _approve(self) -> bool:
        if self.error:
            raise SourceError(self.error)
        self.approved += 1
        return True

    def ask(self) -> Later:
        """Somebody opens a question."""
        query = {"wait": "60", "since": self.board._state()}
        later = self.board.handle(Request("GET", "/notice", query, {}, b""))
        assert isinstance(later, Later)
        return later

    def look(self) -> None:
        self.approval.look()
        if self.approval._thread is not None:
            self.approval._thread.join(5)

    def be_quiet(self, seconds: float = QUIET + 1) -> None:
        assert self.board._last_open is not None
        self.board._last_open -= seconds


@pytest.fixture
def asked() -> Lab:
    """Somebody asked, went, and it has been quiet since."""
    made = Lab()
    made.ask().gone()
    made.be_quiet()
    return made


def test_a_notice_is_approved_when_whoever_asked_has_gone(asked: Lab) -> None:
    asked.board.update(SOME)
    asked.look()
    assert asked.approved == 1
    assert asked.said == ["approved: nothing runs here any more"]


def test_it_is_approved_once(asked: Lab) -> None:
    asked.board.update(SOME)
    asked.look()
    asked.look()
    assert asked.approved == 1


def test_an_approved_event_that_starts_is_not_approved_again(asked: Lab) -> None:
    asked.board.update(SOME)
    asked.look()
    asked.board.update(Notice(1.0, "interruption", "azure", certain=True, reason="x"))
    asked.look()
    assert asked.approved == 1


def test_after_a_withdrawal_the_next_notice_can_be_approved(asked: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotwright.agent.approval._AGAIN", 0.0)
    asked.board.update(SOME)
    asked.look()
    asked.board.update(None)
    asked.look()
    asked.board.update(SOME)
    asked.look()
    assert asked.approved == 2


def test_without_a_notice_there_is_nothing_to_approve(asked: Lab) -> None:
    asked.look()
    assert asked.approved == 0


@pytest.mark.parametrize(
    "notice",
    [
        Notice(2e9, "interruption", "azure", certain=False, reason="x"),
        Notice(2e9, "disruption", "azure", certain=True, reason="x"),
        Notice(float("inf"), "rebalance", "azure", certain=False, reason="x"),
    ],
)
def test_only_a_certain_interruption_is_approved(asked: Lab, notice: Notice) -> None:
    asked.board.update(notice)
    asked.look()
    assert asked.approved == 0


def test_nothing_is_approved_while_somebody_asks(asked: Lab) -> None:
    asked.ask()
    asked.be_quiet()
    asked.board.update(SOME)
    asked.look()
    assert asked.approved == 0


def test_nothing_is_approved_just_after_somebody_asked(asked: Lab) -> None:
    asked.ask().gone()
    asked.board.update(SOME)
    asked.look()
    assert asked.approved == 0


def test_where_nobody_ever_asked_nothing_is_known_and_nothing_approved() -> None:
    lab = Lab()
    lab.board.update(SOME)
    lab.look()
    assert lab.approved == 0


def test_an_approval_that_fails_is_tried_again(asked: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotwright.agent.approval._AGAIN", 0.0)
    asked.error = "azure: the approval was refused with 400"
    asked.board.update(SOME)
    asked.look()
    asked.error = ""
    asked.look()
    assert asked.approved == 1
    assert asked.said[0] == "not approved: azure: the approval was refused with 400"


def test_a_lease_says_that_something_runs(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lease = tmp_path / "train-7"
    lease.touch()
    assert not nothing_runs(lab.board, tmp_path)
    lease.unlink()
    assert nothing_runs(lab.board, tmp_path)


def test_a_folder_of_leases_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert not nothing_runs(Board(str), tmp_path / "none")


def test_asking_and_leases_count_both(tmp_path: Path, asked: Lab) -> None:
    (tmp_path / "train-7").touch()
    assert not nothing_runs(asked.board, tmp_path)


def test_it_looks_again_soon_while_there_is_a_notice(asked: Lab) -> None:
    assert asked.approval.look() is None
    asked.board.update(SOME)
    began = time.monotonic()
    assert asked.approval.look() == 0.5
    assert time.monotonic() - began < 0.5
    wait_until("the approval", lambda: asked.approved)
