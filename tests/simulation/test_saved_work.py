"""Under a deadline saved work decides, not reported work; a move waits for a save, and what a move loses is counted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.long_jobs import HOUR, ON_DEMAND, Simulated, hours_of, spot
from tests.simulation.simulated_attempts import SUCCEEDED, AttemptModel, AttemptStart, Behavior

from spotwright.engine.events import AttemptKept, RunStatus
from spotwright.engine.loop import replay_decisions
from spotwright.model.pools import Trace

TIGHT: dict[str, Any] = {"hours": 20, "deadline": "24h", "grace_period": "30s"}


def rarely_saving(
    hours: float, *, every: float = 3600.0, asked: float | None = 60.0, until: float = 1.0
) -> AttemptModel:
    """Attempts that report each minute and save each hour, until a share of their work; SIGTERM leaves no time for a save."""

    def behavior(start: AttemptStart) -> Behavior:
        left = hours * HOUR * (1.0 - start.saved)
        saves = every if start.saved < until else None
        return Behavior(
            left, SUCCEEDED, max(1, int(left / 60.0)), done_before=start.saved, stops_in=5.0, checkpoint_every=saves,
            says_saved=True, save_seconds=asked,
        )  # fmt: skip

    return behavior


def flaps(up: int, down: int) -> Trace:
    """Spot that is there and gone in turns of so many periods of ten minutes."""
    return Trace(600.0, tuple([1] * up + [0] * down) * 60)


def asked(run: Simulated) -> list[AttemptKept]:
    return [event for event in run.events if isinstance(event, AttemptKept) and event.asks]


def test_an_attempt_is_asked_to_save_before_it_moves_and_moves_once_it_has() -> None:
    run = Simulated(
        [spot(), ON_DEMAND], {"spot": hours_of(*[0] * 3, *[1] * 90)}, model=rarely_saving(20, every=5000.0), **TIGHT
    )
    assert run.state.status is RunStatus.SUCCEEDED
    assert run.hours <= 24
    moved = [attempt for attempt in run.state.tasks["a"].attempts if attempt.moving]
    assert moved
    for attempt in moved:
        has_saved = attempt.asked is not None and (attempt.saved_at or 0.0) >= attempt.asked[0]
        assert has_saved or attempt.saved == attempt.progress
    assert asked(run)
    for event in asked(run):
        assert "not saved" in event.why or "asked to save" in event.why
    replay_decisions([run.plan], run.events)


def test_an_attempt_that_does_not_save_when_it_is_asked_stays() -> None:
    model = rarely_saving(20, every=1e9, asked=None)
    run = Simulated([spot(), ON_DEMAND], {"spot": hours_of(*[0] * 3, *[1] * 90)}, model=model, **TIGHT)
    assert run.hours <= 24
    assert run.pools == ["on-demand"]
    assert any("has not, and a move would lose" in event.why for event in run.events if isinstance(event, AttemptKept))


@pytest.mark.parametrize("every", [600.0, 3600.0, 3.0 * HOUR])
@pytest.mark.parametrize("turn", [(3, 2), (12, 5), (40, 30)])
def test_no_run_is_late_because_its_saves_are_rare(every: float, turn: tuple[int, int]) -> None:
    run = Simulated(
        [spot(), ON_DEMAND], {"spot": flaps(*turn)}, model=rarely_saving(20, every=every, asked=None), **TIGHT
    )
    assert run.state.status is RunStatus.SUCCEEDED
    assert run.hours <= 24


def test_no_run_is_late_because_its_saves_stop_succeeding() -> None:
    model = rarely_saving(20, every=1200.0, asked=None, until=0.2)
    run = Simulated([spot(), ON_DEMAND], {"spot": flaps(20, 10)}, model=model, **TIGHT)
    assert run.state.status is RunStatus.SUCCEEDED
    assert run.hours <= 24
