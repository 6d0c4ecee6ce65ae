"""The early approval of an interruption: there was known work, and all of it has left."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.notices.servers import wait_until

from spotwright.notices import Notice, SourceError
from spotwright.notices.agent import IDLE_PERIOD, Approval, NoticeBoard, nothing_runs
from spotwright.notices.http_server import DeferredResponse, Request

SOME = Notice(2e9, "interruption", "azure", certain=True, reason="x")


class Lab:
    def __init__(self, leases: Path | None = None) -> None:
        self.board = NoticeBoard(str)
        self.logged: list[str] = []
        self.approved = 0
        self.error = ""
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.approval = Approval(self.board, self._approve, self.logged.append, leases)

    def _approve(self) -> bool:
        self.may_answer.wait(120)
        if self.error:
            raise SourceError(self.error)
        self.approved += 1
        return True

    def ask(self) -> DeferredResponse:
        """Somebody opens a question."""
        query = {"wait": "60", "since": self.board.state}
        later = self.board.handle(Request("GET", "/notice", query, {}, b""))
        assert isinstance(later, DeferredResponse)
        return later

    def check(self) -> None:
        self.approval.check()
        if self.approval._thread is not None:
            self.approval._thread.join(120)

    def be_idle(self, seconds: float = IDLE_PERIOD + 1) -> None:
        assert self.board._last_request is not None
        self.board._last_request -= seconds


@pytest.fixture
def asked() -> Lab:
    """Somebody asked, went, and it has been quiet since."""
    made = Lab()
    made.ask().on_close()
    made.be_idle()
    return made


def test_a_notice_is_approved_after_all_clients_have_gone(asked: Lab) -> None:
    asked.board.update(SOME)
    asked.check()
    assert asked.approved == 1
    assert asked.logged == ["approved: this machine is idle now"]


def test_it_is_approved_once(asked: Lab) -> None:
    asked.board.update(SOME)
    asked.check()
    asked.check()
    assert asked.approved == 1


def test_an_approved_event_that_starts_is_not_approved_again(asked: Lab) -> None:
    asked.board.update(SOME)
    asked.check()
    asked.board.update(Notice(1.0, "interruption", "azure", certain=True, reason="x"))
    asked.check()
    assert asked.approved == 1


def test_after_a_withdrawal_the_next_notice_can_be_approved(asked: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotwright.notices.agent._RETRY", 0.0)
    asked.board.update(SOME)
    asked.check()
    asked.board.update(None)
    asked.check()
    asked.board.update(SOME)
    asked.check()
    assert asked.approved == 2


def test_without_a_notice_there_is_nothing_to_approve(asked: Lab) -> None:
    asked.check()
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
    asked.check()
    assert asked.approved == 0


def test_nothing_is_approved_while_a_request_is_open(asked: Lab) -> None:
    asked.ask()
    asked.be_idle()
    asked.board.update(SOME)
    asked.check()
    assert asked.approved == 0


def test_nothing_is_approved_just_after_a_request(asked: Lab) -> None:
    asked.ask().on_close()
    asked.board.update(SOME)
    asked.check()
    assert asked.approved == 0


def test_without_any_request_so_far_nothing_is_approved() -> None:
    lab = Lab()
    lab.board.update(SOME)
    lab.check()
    assert lab.approved == 0


def test_an_approval_that_fails_is_tried_again(asked: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotwright.notices.agent._RETRY", 0.0)
    asked.error = "azure: the approval was refused with 400"
    asked.board.update(SOME)
    asked.check()
    asked.error = ""
    asked.check()
    assert asked.approved == 1
    assert asked.logged[0] == "not approved: azure: the approval was refused with 400"


def test_a_lease_stands_for_running_work(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lease = tmp_path / "train-7"
    lease.touch()
    assert not nothing_runs(lab.board, tmp_path)
    lease.unlink()
    assert nothing_runs(lab.board, tmp_path)


def test_with_unreadable_leases_nothing_is_approved(tmp_path: Path) -> None:
    assert not nothing_runs(NoticeBoard(str), tmp_path / "none")


def test_open_requests_and_leases_both_count(tmp_path: Path, asked: Lab) -> None:
    (tmp_path / "train-7").touch()
    assert not nothing_runs(asked.board, tmp_path)


def test_it_checks_again_soon_while_there_is_a_notice_and_does_not_wait_for_the_provider(asked: Lab) -> None:
    assert asked.approval.check() is None
    asked.board.update(SOME)
    asked.may_answer.clear()
    assert asked.approval.check() == 0.5
    assert asked.approved == 0
    asked.may_answer.set()
    wait_until("the approval", lambda: asked.approved)
