"""Every recorded ending has the same cause directly and after a journal, a fold and a decision."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from scripts.make_failure_matrix import Recorded, read
from tests.engine.builders import START, a_config, a_plan, a_pool, a_task

from spotwright.engine.decide import decide
from spotwright.engine.events import (
    AttemptBound,
    AttemptDecided,
    AttemptEnded,
    EngineStarted,
    Event,
    NodeChanged,
    ProgressReported,
    RunCreated,
)
from spotwright.engine.fold import fold, replay
from spotwright.engine.next_rung import Snapshot
from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause, ContainerEnd, Signals, StatusCondition
from spotwright.records.journal import Journal
from spotwright.scheduling.budgets import BudgetUse, FollowUp
from spotwright.scheduling.cause import classify

RECORDED = read()
PLAN = a_plan([a_task("a")], a_config(a_pool(), policy={"spot": "require", "errors": {"retries": 1}}))


def decided_after(signals: Signals, journal: Journal) -> tuple[RunState, AttemptDecided]:
    """The decision about an attempt with this end, by an engine that reads it from the journal."""
    state = RunState([PLAN])
    facts: list[Event] = [RunCreated(START), EngineStarted(START, epoch=1)]
    _take(state, facts, journal)
    _take(state, decide(state, Snapshot(), START), journal)
    _take(state, decide(state, Snapshot(), START), journal)
    node = NodeChanged(START, node="spot-1", pool="spot", state="ready")
    _take(state, [node, AttemptBound(START, "a", 1, node="spot-1", pool="spot")], journal)
    if signals.progress is not None:
        _take(state, [ProgressReported(START + 30, "a", 1, value=signals.progress)], journal)
    _take(state, [AttemptEnded(START + 60, "a", 1, signals=signals)], journal)

    again = replay([PLAN], [event for _, event in journal.events()])
    (decided,) = decide(again, Snapshot(), START + 60)
    assert isinstance(decided, AttemptDecided)
    fold(again, decided)
    return again, decided


def _take(state: RunState, events: list[Event], journal: Journal) -> None:
    for event in events:
        fold(state, event)
    journal.append(events)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    path = tmp_path / "journal.db"
    Journal.create(path).close()
    journal = Journal.open(path)
    journal.take({"pid": 1}, lambda _: False)
    return journal


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded.case)
def test_a_recorded_ending_is_judged_the_same_through_the_journal(recorded: Recorded, journal: Journal) -> None:
    with closing(journal):
        state, decided = decided_after(recorded.signals, journal)
    straight = classify(recorded.signals)
    assert (decided.cause, decided.why, decided.evidence) == (straight.cause, straight.why, straight.evidence)
    assert decided.cause is recorded.cause
    spent = state.tasks["a"].spent
    assert spent == BudgetUse().after(recorded.cause)


@pytest.mark.parametrize(
    ("condition", "cause", "spent"),
    [
        (StatusCondition("DisruptionTarget", reason="PreemptionByScheduler"), Cause.DISRUPTED, BudgetUse(moves=1)),
        (StatusCondition("DisruptionTarget", reason="EvictionByEvictionAPI"), Cause.DISRUPTED, BudgetUse(moves=1)),
        (StatusCondition("DisruptionTarget", reason="DeletionByPodGC"), Cause.INTERRUPTED, BudgetUse(interruptions=1)),
    ],
    ids=lambda value: value.reason if isinstance(value, StatusCondition) else "",
)
def test_a_pod_with_disruption_target_spends_no_error(
    condition: StatusCondition, cause: Cause, spent: BudgetUse, journal: Journal
) -> None:
    signals = Signals(
        phase="Failed", conditions=(condition,), containers=(ContainerEnd(exit_code=137, reason="Error"),)
    )
    with closing(journal):
        state, decided = decided_after(signals, journal)
    assert (decided.cause, decided.then, state.tasks["a"].spent) == (cause, FollowUp.RETRY, spent)


def test_a_container_that_was_killed_for_memory_is_out_of_memory(journal: Journal) -> None:
    signals = Signals(phase="Failed", containers=(ContainerEnd(exit_code=137, reason="OOMKilled"),))
    with closing(journal):
        state, decided = decided_after(signals, journal)
    assert (decided.cause, state.tasks["a"].spent) == (Cause.OUT_OF_MEMORY, BudgetUse(errors=1))
