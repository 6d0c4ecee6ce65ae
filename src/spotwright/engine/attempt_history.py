"""The attempts of a task as the decision about its next one reads them: a projection of the state.

The engine, the recorder and the webhook read the same. The pods of a set start again together, so the restarts of the set are the
history of each of its tasks: of a restart the ending of the member counts that ended it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from spotwright.engine.charges import budgets_begin, is_own_move
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.model.attempts import Cause
from spotwright.scheduling.next_attempt import PastAttempt

__all__ = ["history_of", "is_settled", "members_of", "past_of", "restarts_before", "set_history"]


def past_of(attempt: AttemptState) -> PastAttempt:
    """An attempt as the decision about the next one reads it. One that a deadline moved spends no budget."""
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
    """Whether what followed it is known: its cause, or the decision to take it back, which comes before its end."""
    return attempt.cause is not None or attempt.taken_back is not None


def history_of(state: RunState, task: TaskState, attempt: AttemptState, ended: PastAttempt) -> Sequence[PastAttempt]:
    """The history of a task up to an attempt that ``ended`` so, which is not folded yet. A reset begins it anew."""
    if not attempt.gang:
        return [*map(past_of, task.attempts[budgets_begin(task, attempt) : attempt.number - 1]), ended]
    members = {path: past_of(one) for path, one in members_of(state, attempt.gang) if one.gang == attempt.gang}
    return [*set_history(state, attempt.gang, task.path), _of_restart({**members, task.path: ended}.values(), ended)]


def set_history(state: RunState, gang: str, path: str) -> list[PastAttempt]:
    """The restarts of a set before this one, each with the ending of the member that ended it, as the past of one task."""
    return [_past_of_restart(members, members.get(path)) for members in restarts_before(state, gang)]


def members_of(state: RunState, gang: str) -> Iterator[tuple[str, AttemptState]]:
    """The attempts of all restarts of the set that ``gang``, as SET/RESTART, belongs to, each with the path of its task."""
    of_set = f"{gang.partition('/')[0]}/"
    for path, task in state.tasks.items():
        yield from ((path, attempt) for attempt in task.attempts if attempt.gang.startswith(of_set))


def restarts_before(state: RunState, gang: str) -> Sequence[Mapping[str, AttemptState]]:
    """The restarts of a set before this one, in order, each with its members by the path of their task.

    A restart may have ended before all of its pods were made, and a Job may have replaced a pod within one: a task need not have
    as many attempts as its set has restarts.
    """
    restarts: dict[tuple[int, ...], dict[str, AttemptState]] = {}
    for path, attempt in members_of(state, gang):
        place = _place(attempt.gang)
        if place < _place(gang):
            restarts.setdefault(place, {})[path] = attempt
    return [restarts[place] for place in sorted(restarts)]


def _place(gang: str) -> tuple[int, ...]:
    """The place of a restart in the order of its set: its number, and that of a pod that was replaced within it."""
    return tuple(int(number) for number in gang.split("/")[1:] if number.isdecimal()) or (0,)


def _past_of_restart(members: Mapping[str, AttemptState], own: AttemptState | None) -> PastAttempt:
    """The ending of a restart. An error is not certain while the cause of a peer is not known: that peer may have been lost."""
    past = _of_restart([*map(past_of, members.values())], None if own is None else past_of(own))
    is_certain = past.cause is None or not past.cause.is_error or all(map(is_settled, members.values()))
    return past if is_certain else past._replace(cause=None)


def _of_restart(members: Collection[PastAttempt], own: PastAttempt | None) -> PastAttempt:
    """The ending of the member that ended a restart, on the rung of this task's own attempt.

    Beside an error it counts where a member that waited in vain was to go. A member with other rungs, a leader on on-demand say,
    moves no one: a member that waited in vain beside it stays on its own rung.
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
"""Of the members of a set, which one's ending counts for all: the others ended because their set was started again."""


def _place_of(member: PastAttempt) -> int:
    cause = Cause.UNSCHEDULABLE if member.waited_in_vain else member.cause
    return _WORST_FIRST.index(cause) if cause in _WORST_FIRST else len(_WORST_FIRST)
