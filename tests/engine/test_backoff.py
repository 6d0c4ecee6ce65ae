"""Row 3 of the design's table: the backoff after interruptions grows only while attempts get nowhere."""

from __future__ import annotations

from typing import Any

from tests.engine.builders import a_config, a_plan, a_pool, a_task
from tests.engine.driving import Run
from tests.engine.scripts import TAKEN, Behavior, scripted

from spotwright.engine.events import AttemptDecided
from spotwright.engine.loop import replay_decisions

POLICY = {"spot": "require", "interruptions": {"max": 9, "backoff": "1s", "factor": 2, "max_backoff": "60s"}}


def waits_of(*lives: Behavior) -> list[float]:
    """The backoff after each interruption of a task with these attempts; the last attempt succeeds."""
    run = Run(a_plan([a_task("a")], a_config(a_pool(), policy=POLICY)), scripted({"a": lives}))
    run.start()
    replay_decisions(run.plans, run.events)
    return [event.wait for event in run.events if isinstance(event, AttemptDecided)][:-1]


def taken(seconds: float = 10.0, **more: Any) -> Behavior:
    return Behavior(seconds, TAKEN, reports=1 if more else 0, **more)


def test_it_grows_while_attempts_report_nothing() -> None:
    assert waits_of(taken(), taken(), taken(), taken()) == [1.0, 2.0, 4.0, 8.0]


def test_an_attempt_that_got_further_than_all_before_it_starts_it_again() -> None:
    steps = [taken(done_after=share) for share in (0.1, 0.2, 0.2, 0.1, 0.3)]
    assert waits_of(*steps) == [1.0, 1.0, 2.0, 4.0, 1.0]


def test_an_attempt_that_lived_longer_than_the_ceiling_starts_it_again() -> None:
    assert waits_of(taken(), taken(), taken(61.0), taken()) == [1.0, 2.0, 1.0, 2.0]
