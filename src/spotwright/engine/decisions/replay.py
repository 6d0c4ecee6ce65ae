"""Replay a journal decision by decision, to check that today's code decides the same.

Facts are folded unchanged. For decisions, ``decide`` is called again with the snapshot before them, at their own moment, and the
answers are compared. Only the journal and the plans of the run are needed. A journal names the version of the decision functions
that wrote it. One of another version, or one that names none, can be folded and not replayed: a rehearsal states facts at its
start that no engine decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from spotwright.engine.decisions.decide import decide
from spotwright.engine.decisions.snapshot import Snapshot
from spotwright.engine.event_codec import DECISIONS
from spotwright.engine.events import EngineStarted, Event, SnapshotTaken
from spotwright.engine.fold import fold
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.errors import StateError

__all__ = ["DECISIONS_VERSION", "ReplayDiverged", "replay_decisions"]

DECISIONS_VERSION = 2
"""The version of the decision functions. It grows when they decide differently on events that journals already contain.
"""


class ReplayDiverged(StateError):
    """The decision functions decide differently from the journal."""


def replay_decisions(plans: Sequence[Plan], events: Sequence[Event]) -> RunState:
    """Fold a whole journal and take every decision in it again. Returns the state at its end.

    Raises :class:`ReplayDiverged` at the first decision that differs, and :class:`StateError` for a journal of another version of
    the decision functions.
    """
    state, snapshot, index = RunState(plans), Snapshot(), 0
    taken: list[Event] = []
    while index < len(events):
        event = events[index]
        if isinstance(event, DECISIONS):
            decided = decide(state, snapshot, event.at)
            _compare(decided, events, index)
            for each in (*taken, *decided):
                fold(state, each)
            taken, snapshot, index = [], Snapshot(), index + len(decided)
            continue
        if isinstance(event, EngineStarted) and event.decisions != DECISIONS_VERSION:
            raise StateError(_other_version(event))
        index += 1
        if isinstance(event, SnapshotTaken):  # the engine folds it with the decisions that used it
            taken, snapshot = [event], Snapshot(room=event.room, waiting=event.waiting)
            continue
        fold(state, event)
    for each in taken:
        fold(state, each)
    return state


def _compare(decided: Sequence[Event], events: Sequence[Event], index: int) -> None:
    recorded = events[index : index + max(1, len(decided))]
    for number, (before, now) in enumerate(zip_longest(recorded, decided), index + 1):
        if now != before:
            raise ReplayDiverged(
                f"event {number} of the journal is {before or 'missing'}; decided again it is {now or 'missing'}"
            )


def _other_version(event: EngineStarted) -> str:
    if not event.decisions:
        return "this journal does not name the version of its decision functions: it can be read, not replayed"
    return (
        f"this journal was decided by version {event.decisions} of the decision functions (spotwright {event.version}), and "
        f"this one has version {DECISIONS_VERSION}: replay it with that version of spotwright"
    )
