"""The past attempts of a task for the decision about its next one: a projection of the state.

The engine, the recorder and the webhook share it. The pods of a set restart together, so the restarts of the set are the
history of each of its tasks; a restart counts as the ending of the member that caused it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from spotwright.engine.charges import budgets_begin, is_own_move
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.model.attempts import Cause
from spotwright.scheduling.next_attempt import PastAttempt

__all__ = ["history_of", "is_settled", "members_of", "past_of", "restarts_before", "set_history"]


def past_of(attempt: AttemptState) -> PastAttempt:
    """An attempt as input to the decision about the next one. A move by a deadline spends no budget."""
    decided = attempt.taken_back
    cause = attempt.cause
    return PastAttempt(
        None if cause is None or is_own_move(attempt, cause) else cause,
        attempt.pools,
        attempt.pool,
        waited_in_vain=decided is not None,
        then=attempt.then if decided is None else tuple(decided.pools),
        has_ended=not attempt.is_live or decided is not None,
        has_climbed=attempt.first != attempt.rung,
    )


def is_settled(attempt: AttemptState) -> bool:
    """Whether the decision about it is known: its cause, or its recall, which precedes its end."""
    return attempt.cause is not None or attempt.taken_back is not None


def history_of(state: RunState, task: TaskState, attempt: AttemptState, ended: PastAttempt) -> Sequence[PastAttempt]:
    """The history of a task up to an attempt whose end, ``ended``, is not folded yet. A reset restarts it."""
    if not attempt.gang:
        return [*map(past_of, task.attempts[budgets_begin(task, attempt) : attempt.number - 1]), ended]
    members = {path: past_of(one) for path, one in members_of(state, attempt.gang) if one.gang == attempt.gang}
    return [*set_history(state, attempt.gang, task.path), _of_restart({**members, task.path: ended}.values(), ended)]


def set_history(state: RunState, gang: str, path: str) -> list[PastAttempt]:
    """The earlier restarts of a set, each with the ending of the member that caused it, as the past of one task."""
    return [_past_of_restart(members, members.get(path)) for members in restarts_before(state, gang)]


def members_of(state: RunState, gang: str) -> Iterator[tuple[str, AttemptState]]:
    """The attempts of all restarts of the set in ``gang`` (SET/RESTART), each with the path of its task."""
    of_set = f"{gang.partition('/')[0]}/"
    for path, task in state.tasks.items():
        yield from ((path, attempt) for attempt in task.attempts if attempt.gang.startswith(of_set))


def restarts_before(state: RunState, gang: str) -> Sequence[Mapping[str, AttemptState]]:
    """The earlier restarts of a set, in order, each with its members by the path of their task.

    A restart may end before all of its pods are made, and a Job may replace a pod within one: a task's number of attempts may
    differ from its set's number of restarts.
    """
    restarts: dict[tuple[int, ...], dict[str, AttemptState]] = {}
    for path, attempt in members_of(state, gang):
        place = _place(attempt.gang)
        if place < _place(gang):
            restarts.setdefault(place, {})[path] = attempt
    return [restarts[place] for place in sorted(restarts)]


def _place(gang: str) -> tuple[int, ...]:
    """The sort key of a restart in its set: its number, and the number of a replaced pod within it."""
    return tuple(int(number) for number in gang.split("/")[1:] if number.isdecimal()) or (0,)


def _past_of_restart(members: Mapping[str, AttemptState], own: AttemptState | None) -> PastAttempt:
    """The ending of a restart. An error is uncertain while a peer's cause is unknown: the peer may have been lost."""
    past = _of_restart([*map(past_of, members.values())], None if own is None else past_of(own))
    is_certain = past.cause is None or not past.cause.is_error or all(map(is_settled, members.values()))
    return past if is_certain else past._replace(cause=None)


def _of_restart(members: Collection[PastAttempt], own: PastAttempt | None) -> PastAttempt:
    """The ending of the member that ended a restart, on the rung of this task's own attempt.

    If it is an error, the target of a member that waited in vain still counts. A member with other rungs, such as a leader on
    on-demand, does not move the others: a member that waited in vain beside it stays on its rung.
    """
    worst = min(members, key=_place_of)
    if own is not None and _place_of(worst) == len(_WORST_FIRST):
        return own
    waited = next((one for one in members if one.waited_in_vain and one.pools == worst.pools), worst)
    if worst.cause is not None and worst.cause.is_error and waited is not worst:
        worst = worst._replace(then=waited.then)
    if own is None or own.pools == worst.pools:
        return worst if own is None else worst._replace(stalled=own.stalled)
    then = own.pools if worst.waited_in_vain else ()
    return own._replace(cause=worst.cause, waited_in_vain=worst.waited_in_vain, then=then)


_WORST_FIRST = (
    *(cause for cause in Cause if cause.is_interruption),
    *(cause for cause in Cause if cause.is_error),
    Cause.UNSCHEDULABLE,
    Cause.DISRUPTED,
)
"""The order in which a member's ending counts for its whole set: the others ended because the set restarted."""


def _place_of(member: PastAttempt) -> int:
    cause = Cause.UNSCHEDULABLE if member.waited_in_vain else member.cause
    return _WORST_FIRST.index(cause) if cause in _WORST_FIRST else len(_WORST_FIRST)
