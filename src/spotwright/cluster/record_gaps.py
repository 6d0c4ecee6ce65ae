"""Completes a run with deleted objects: the remaining events that fit, and placeholders for the deleted ones.

An attempt whose object was deleted keeps its number, because later attempts and budgets count it, and is shown as lost. A task
whose template was deleted gets an empty template.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spotwright.engine.events import AttemptAdopted, AttemptDecided, AttemptEnded, Event, NoteAdded, PlanExtended
from spotwright.engine.fold import fold
from spotwright.engine.state import RunState
from spotwright.errors import StateError
from spotwright.manifests.pod_graph import PodTask
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import FollowUp

__all__ = ["events_that_fit", "note_of_gap"]


_WHY = "the records of this attempt were deleted from outside"
_MOST = 1_000  # attempts in one gap: a forged event must not fill the memory


def note_of_gap(at: float, count: int) -> NoteAdded:
    """The note for people about ``count`` deleted events."""
    text = f"{count} recorded events were deleted from outside: their contents are lost and missing from all figures"
    return NoteAdded(at, text=text)


def events_that_fit(state: RunState, events: Iterable[tuple[int, Event]]) -> Iterator[tuple[int, Event]]:
    """Fold the events that fit into ``state``, and yield them with their numbers; skip events about something lost."""
    for number, event in events:
        gap = _lost_before(state, event) if isinstance(event, AttemptAdopted) else ()
        for each in (*gap, event):
            try:
                fold(state, each)
            except StateError:
                break
            yield number, each


def _lost_before(state: RunState, event: AttemptAdopted) -> Iterator[Event]:
    """Placeholder events for the template of a task, and for its attempts between the last known one and this one."""
    if event.template not in state.plan.graph.root.tasks:
        yield PlanExtended(event.at, template=PodTask("Pod", event.template, {"containers": []}).to_data())
    task = state.tasks.get(event.task)
    known = 0 if task is None else len(task.attempts)
    for number in range(known + 1, min(event.attempt, known + _MOST)):
        key = f"deleted/{event.task}/{number}"
        yield AttemptAdopted(event.at, event.task, number, key=key, template=event.template)
        yield AttemptEnded(event.at, event.task, number)
        yield AttemptDecided(
            event.at,
            event.task,
            number,
            cause=Cause.LOST,
            why=_WHY,
            then=FollowUp.RETRY,
            following="another attempt followed",
        )
