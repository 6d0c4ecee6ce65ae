"""The tasks, attempts and nodes of a run as columns with word tables, and their changes after new events.

A column is a list with one value for each row: 20,000 attempts travel in a twentieth of the bytes of as many objects. Repeated
values (a status, a pool, a node) are indexes into the column's word table; -1 means no word. Moments are seconds since the run
began, rounded to milliseconds; ``None``: has not happened. Row numbers and words never change their meaning while a
:class:`RunColumns` lives, and values do not change with time alone, so applying each :class:`Changes` keeps the columns up to
date.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from spotwright.engine.events import (
    AttemptDecided,
    EngineStarted,
    Event,
    NodeChanged,
    NoticeGiven,
    NoticeWithdrawn,
    PlanExtended,
    RunCreated,
    RunFinished,
    RunReset,
    RunStatus,
)
from spotwright.engine.state import AttemptState, NodeState, RunState, ScopeState, TaskState
from spotwright.views.account import KeptWork, kept_of, left_node_at, pool_of
from spotwright.views.waiting import status_word, waiting_for

__all__ = [
    "ATTEMPT_COLUMNS",
    "NODE_COLUMNS",
    "TASK_COLUMNS",
    "Changes",
    "Marks",
    "RunColumns",
    "over_lanes",
    "timeline",
]

TASK_COLUMNS = (
    "path",
    "written",  # the path without the numbers of iterations
    "status",  # word
    "why",
    "waits",  # why it waits, without the count of booting nodes, which would change all rows
    "attempts",
    "interruptions",  # spent of the budget
    "errors",
    "interruptions_max",
    "errors_max",
    "pool",  # word; of the newest attempt
    "node",  # word
    "capacity",  # word
    "began",  # the first attempt had a node
    "ended",  # the last attempt of a task that has ended
    "seconds",  # of all its attempts on nodes, once it has ended
    "kind",  # word: task, loop or pipeline
    "cached",  # 1: it used an earlier result
    "parent",  # row of the loop or pipeline around it, or -1
    "retired",  # 1: the present pipeline does not have it
)
"""The values of a task's row, in this order."""

ATTEMPT_COLUMNS = (
    "task",  # row of its task
    "number",
    "pool",  # word
    "node",  # word
    "pools",  # word: the list of pools of its rung
    "cause",  # word
    "capacity",  # word
    "placed",
    "bound",
    "noticed",
    "goes",  # when the noticed node goes
    "ended",
    "kept_low",  # the part of its work that was kept, at least and at most; null until its cause is decided
    "kept_high",
    "due",  # the end of the backoff after it
    "moves",  # when it moved on to wait on another rung
)
"""The values of an attempt's row, in this order."""

NODE_COLUMNS = (
    "name",
    "pool",  # word
    "capacity",  # word
    "state",  # word
    "booted",  # it was requested
    "ready",
    "noticed",
    "gone",
    "why",
)
"""The values of a node's row, in this order."""

_STATUS = TASK_COLUMNS.index("status")
_WORDS = {
    "tasks": ("status", "pool", "node", "capacity", "kind"),
    "attempts": ("pool", "node", "pools", "cause", "capacity"),
    "nodes": ("pool", "capacity", "state"),
}
_OF_ALL = (EngineStarted, RunFinished, PlanExtended)
"""Events that may change every task's reason to wait, or whether its work may still be kept."""


_Word = str | tuple[str, ...]


class Changes(NamedTuple):
    """The changes of a look: each table's delta ``{"seq", "words", "rows"}``, or ``None`` if it is unchanged.

    ``words`` has the words to append by column, ``rows`` the values of each new or changed row by its number.
    """

    tasks: dict[str, Any] | None
    attempts: dict[str, Any] | None
    nodes: dict[str, Any] | None


class RunColumns:
    """The columns of one run after the events folded into its state.

    ``now`` (Unix seconds) is the present while an engine drives the run, else ``None``, as for
    :func:`~spotwright.views.account.account`.
    """

    def __init__(self, state: RunState, now: float | None = None) -> None:
        self._state, self._now = state, now
        self._tasks = _Table(TASK_COLUMNS, _WORDS["tasks"])
        self._attempts = _Table(ATTEMPT_COLUMNS, _WORDS["attempts"])
        self._nodes = _Table(NODE_COLUMNS, _WORDS["nodes"])
        self._capacities: dict[str, str] = {}
        self._attempt_rows: list[list[int]] = []  # by row of the task
        retired = [task for task in state.retired.values() if task.attempts]
        self._retired = len(state.retired)
        self._retired_rows = {task.path: row for row, task in enumerate(retired)}
        self._failed: dict[int, str] = {}  # the first failed task of each scope that has one, by the scope's identity
        self._handlers: dict[int, list[str]] = {}  # the names of exit handlers, by the identity of their DAG
        self._first = len(retired)  # the row of the first task of the run's present pipeline
        self._rows: dict[str, int] = {}
        for task in retired:
            self._set_task(len(self._attempt_rows), task)
        self._set_touched(self._number_new())
        self._node_rows: dict[str, list[tuple[int, NodeState]]] = {}
        for node in state.all_nodes:
            self._set_node(node)
        for table in (self._tasks, self._attempts, self._nodes):
            table.delta(state.events)

    def tasks(self) -> dict[str, Any]:
        """All tasks: first those that a resume retired, then the others in the order of unfolding."""
        return self._whole(self._tasks)

    def attempts(self) -> dict[str, Any]:
        """All attempts. The order of rows has no meaning."""
        return self._whole(self._attempts)

    def nodes(self) -> dict[str, Any]:
        """All nodes, also those with reused names. The order of rows has no meaning."""
        return self._whole(self._nodes)

    def _whole(self, table: _Table) -> dict[str, Any]:
        state = self._state
        return {
            "t0": state.started_at,
            "now": self._since(state.known_until(self._now)),
            "seq": state.events,
            "words": {name: list(words) for name, words in table.words.items()},
            "columns": table.columns(),
        }

    def update(self, state: RunState, events: Sequence[Event], now: float | None = None) -> Changes | None:
        """Apply the events of a look, already folded into the state, and return the changes.

        ``None``: the rows' numbers have changed, because tasks were retired or came back; make new columns. The cost
        depends on the number of changes. Only events that concern every task, such as the end of the run, look at all rows.
        """
        if any(isinstance(event, (RunCreated, RunReset)) for event in events) or len(state.retired) != self._retired:
            return None
        self._state, self._now = state, now
        concern_all = any(isinstance(event, _OF_ALL) for event in events)
        if concern_all:
            self._capacities.clear()  # a new plan may describe pools differently
            for row, path in enumerate(self._retired_rows):
                self._set_task(row, state.retired[path])
        new = self._number_new()
        self._set_touched(self._rows if concern_all else chain(new, self._named_in(events)))
        for node in state.all_nodes if concern_all else self._nodes_in(events):
            self._set_node(node)
        return Changes(*(table.delta(state.events) for table in (self._tasks, self._attempts, self._nodes)))

    # -- what events touch

    def _named_in(self, events: Sequence[Event]) -> Iterator[str]:
        """The tasks that events name, and those that share a node or a budget with them."""
        gangs, spared = set(), set()
        for event in events:
            yield event.task
            if isinstance(event, NoticeGiven):
                yield from (path for path, _ in event.attempts)
            elif isinstance(event, NoticeWithdrawn):
                spared.add(event.node)
            elif isinstance(event, AttemptDecided):
                gangs.add(_gang(self._state.tasks[event.task].attempts[event.attempt - 1]))
        gangs.discard("")
        if gangs or spared:
            for task in self._state.tasks.values():
                if any(attempt.node in spared or _gang(attempt) in gangs for attempt in task.attempts):
                    yield task.path

    def _set_touched(self, paths: Iterable[str]) -> None:
        """Write the rows of these tasks, and of tasks whose wait depends on their end."""
        waiting, done = deque(paths), set()
        while waiting:
            path = waiting.popleft()
            row = self._rows.get(path)
            if row is None or path in done:
                continue
            done.add(path)
            task = self._state.tasks[path]
            before = self._tasks.rows[row] if row < len(self._tasks.rows) else None
            self._set_task(row, task)
            if before is not None and before[_STATUS] != self._tasks.rows[row][_STATUS]:
                waiting += [consumer.path for consumer in task.consumers]
            if self._note_failure(task.scope):
                waiting += self._tasks_in(task.scope)
            elif task.scope.failed:  # its end may start exit handlers
                waiting += self._exit_handlers(task.scope)

    def _note_failure(self, scope: ScopeState) -> bool:
        """Record the first failed task of a scope. Returns whether it has changed."""
        if self._failed.get(id(scope), "") == scope.failed:
            return False
        self._failed[id(scope)] = scope.failed
        return True

    def _tasks_in(self, scope: ScopeState) -> list[str]:
        """The tasks of a scope; a workload's have their own names."""
        if self._state.meta.orchestrator:
            return [task.path for task in self._state.tasks.values() if task.scope is scope]
        return [scope.place.child(name) for name in scope.place.dag.tasks]

    def _exit_handlers(self, scope: ScopeState) -> Iterator[str]:
        dag = scope.place.dag
        if id(dag) not in self._handlers:
            self._handlers[id(dag)] = [name for name, spec in dag.tasks.items() if spec.after_all]
        return map(scope.place.child, self._handlers[id(dag)])

    def _nodes_in(self, events: Sequence[Event]) -> Iterator[NodeState]:
        """The nodes that events name: the present machines of these names, and earlier ones."""
        named = (event.node for event in events if isinstance(event, (NodeChanged, NoticeGiven, NoticeWithdrawn)))
        names = dict.fromkeys(named)
        if names:
            yield from (node for node in self._state.former_nodes if node.name in names)
        yield from map(self._state.nodes.__getitem__, names)

    # -- rows

    def _number_new(self) -> list[str]:
        """Number each unnumbered task of the state, in the order of their rows."""
        count = len(self._state.tasks) - len(self._rows)
        new = list(islice(reversed(self._state.tasks), count))[::-1]
        self._rows.update(
            zip(new, range(self._first + len(self._rows), self._first + len(self._state.tasks)), strict=True)
        )
        return new

    def _set_task(self, row: int, task: TaskState) -> None:
        if row == len(self._attempt_rows):
            self._attempt_rows.append([])
        self._tasks.set(row, self._task(row, task))
        if task.attempts:
            self._set_attempts(row, task)

    def _task(self, row: int, task: TaskState) -> tuple[Any, ...]:
        state, words, spec, spent = self._state, self._tasks.word, task.plan.spec, task.spent
        is_here = row >= self._first
        waiting = waiting_for(state, task, {}) if is_here else None
        last = task.attempts[-1] if task.attempts else None
        pool = None if last is None else last.pool
        is_over = (task.status.is_final or not is_here) and all(each.ended_at is not None for each in task.attempts)
        began = next((each.bound_at for each in task.attempts if each.bound_at is not None), None)
        owner = task.scope.owner
        rows = self._rows if is_here else self._retired_rows
        return (
            task.path,
            task.plan.spec_path or task.path,
            words(
                "status", status_word(task.status.value, None if waiting is None else waiting.kind, len(task.attempts))
            ),
            task.why,
            "" if waiting is None else waiting.text,
            len(task.attempts),
            spent.interruptions,
            spent.errors,
            task.plan.policy.max_interruptions,
            task.plan.policy.retries,
            words("pool", pool),
            words("node", None if last is None else last.node),
            words("capacity", self._capacity(pool)),
            self._since(began),
            self._since(last.ended_at if last is not None and is_over else None),
            self._seconds(task) if is_over else None,
            words("kind", "task" if spec.dag is None else "pipeline" if spec.loop is None else "loop"),
            int(task.cached_from is not None),
            -1 if owner is None else rows.get(owner.path, -1),
            int(not is_here),
        )

    def _seconds(self, task: TaskState) -> float | None:
        """The sum over its attempts that had a node; ``None`` without one."""
        seconds = [each for each in map(self._on_node, task.attempts) if each is not None]
        return round(sum(seconds), 3) if seconds else None

    def _on_node(self, attempt: AttemptState) -> float | None:
        left = left_node_at(self._state, attempt)
        return None if left is None or attempt.bound_at is None else left - min(left, attempt.runs_since or left)

    def _set_attempts(self, row: int, task: TaskState) -> None:
        rows = self._attempt_rows[row]
        is_open = row >= self._first and not task.status.is_final
        may_succeed = is_open and self._state.status in (RunStatus.RUNNING, RunStatus.STOPPED)
        for index, (attempt, kept) in enumerate(
            zip(task.attempts, kept_of(task.attempts, may_succeed=may_succeed), strict=True)
        ):
            if index == len(rows):
                rows.append(len(self._attempts.rows))
            self._attempts.set(rows[index], self._attempt(row, attempt, kept))

    def _attempt(self, task: int, attempt: AttemptState, kept: KeptWork) -> tuple[Any, ...]:
        words, since = self._attempts.word, self._since
        is_judged = attempt.cause is not None and attempt.bound_at is not None and attempt.node and attempt.pool
        return (
            task,
            attempt.number,
            words("pool", attempt.pool),
            words("node", attempt.node),
            words("pools", attempt.pools),
            words("cause", None if attempt.cause is None else attempt.cause.value),
            words("capacity", self._capacity(attempt.pool)),
            since(attempt.placed_at),
            since(attempt.runs_since),
            since(attempt.noticed_at),
            since(attempt.goes_at),
            since(attempt.ended_at),
            _part(kept.low) if is_judged else None,
            _part(kept.high) if is_judged else None,
            since(attempt.due),
            [since(at) for at in attempt.moves],
        )

    def _set_node(self, node: NodeState) -> None:
        """Write the row of a node; a new machine under a known name has a separate row."""
        rows = self._node_rows.setdefault(node.name, [])
        row = next((row for row, each in rows if each is node), None)
        if row is None:
            row = len(self._nodes.rows)
            rows.append((row, node))
        words, since = self._nodes.word, self._since
        self._nodes.set(
            row,
            (
                node.name,
                words("pool", node.pool),
                words("capacity", self._capacity(node.pool)),
                words("state", node.state),
                since(node.booted_at),
                since(node.ready_at),
                since(node.noticed_at),
                since(node.gone_at),
                node.why,
            ),
        )

    def _since(self, at: float | None) -> float | None:
        return None if at is None else round(at - self._state.started_at, 3)

    def _capacity(self, pool: str | None) -> str | None:
        if not pool:
            return None
        if pool not in self._capacities:
            self._capacities[pool] = pool_of(self._state, pool).capacity.value
        return self._capacities[pool]


def _gang(attempt: AttemptState) -> str:
    """The set of tasks with which an attempt ends together."""
    return attempt.gang.partition("/")[0]


def _part(part: Any) -> float | int:
    """A part of one: 0 and 1 in one character."""
    return int(part) if part in (0, 1) else float(part)


class _Table:
    """Rows with their words, and those new or changed since the last :meth:`delta`."""

    def __init__(self, names: Sequence[str], words: Iterable[str]) -> None:
        self.names = names
        self.rows: list[tuple[Any, ...]] = []
        self.words: dict[str, dict[_Word, int]] = {name: {} for name in words}
        self._changed: dict[int, None] = {}
        self._given = dict.fromkeys(self.words, 0)  # words already sent, by column

    def word(self, name: str, word: _Word | None) -> int:
        """The index of a word; -1 for ``None``, an empty text and an empty list."""
        if not word:
            return -1
        words = self.words[name]
        return words.setdefault(word, len(words))

    def set(self, row: int, values: tuple[Any, ...]) -> None:
        """Write a row. The number after the last one appends it."""
        if row == len(self.rows):
            self.rows.append(values)
        elif self.rows[row] == values:
            return
        else:
            self.rows[row] = values
        self._changed[row] = None

    def columns(self) -> dict[str, list[Any]]:
        """The rows as one list for each column."""
        columns = map(list, zip(*self.rows, strict=True)) if self.rows else ([] for _ in self.names)
        return dict(zip(self.names, columns, strict=True))

    def delta(self, seq: int) -> dict[str, Any] | None:
        """The words and rows that are new or changed since the last call; ``None`` without any."""
        if not self._changed:
            return None
        words = {name: list(islice(of, self._given[name], None)) for name, of in self.words.items()}
        self._given = {name: len(of) for name, of in self.words.items()}
        rows = {row: list(self.rows[row]) for row in self._changed}
        self._changed = {}
        return {"seq": seq, "words": {name: new for name, new in words.items() if new}, "rows": rows}


# -- what a timeline draws over all lanes


class Marks(NamedTuple):
    """Known moments that are drawn over all lanes (Unix seconds).

    ``last_moment``: from then on even on-demand does not finish by the deadline. ``planned``: the 10th and the 90th percentile
    of the end in the plan before the run.
    """

    deadline: float | None = None
    last_moment: float | None = None
    planned: tuple[float, float] | None = None


_NONE = Marks()


def over_lanes(state: RunState, now: float | None = None, marks: Marks = _NONE) -> dict[str, Any]:
    """The bands and marks over all lanes of a timeline. Moments are seconds since the run began.

    - ``bands``: ``kind`` (``undriven``: no engine drove the run; ``left_out``: new attempts skipped a pool), ``from``,
      ``until`` (null: it goes on for an unknown time), ``pool`` (null for all);
    - ``marks``: ``now`` (null while no engine drives the run), ``deadline``, ``last_moment``, ``planned`` (a pair), each null
      if unset.
    """

    def since(at: float | None) -> float | None:
        return None if at is None else round(at - state.started_at, 3)

    return {
        "bands": [
            {"kind": kind, "from": since(begin), "until": since(end), "pool": pool}
            for kind, begin, end, pool in chain(_undriven(state, now), _left_out(state))
        ],
        "marks": {
            "now": since(now),
            "deadline": since(marks.deadline),
            "last_moment": since(marks.last_moment),
            "planned": None if marks.planned is None else [since(at) for at in marks.planned],
        },
    }


def timeline(state: RunState, columns: RunColumns, now: float | None = None, marks: Marks = _NONE) -> dict[str, Any]:
    """The timeline: ``attempts`` and ``nodes`` as :class:`RunColumns` gives them, ``bands`` and ``marks``.

    ``now`` as for :func:`~spotwright.views.account.account`: running attempts count until then. The number of parallel attempts
    is drawn from the attempts.
    """
    return {"attempts": columns.attempts(), "nodes": columns.nodes(), **over_lanes(state, now, marks)}


_Band = tuple[str, float, float | None, str | None]


def _undriven(state: RunState, now: float | None) -> Iterator[_Band]:
    """The times between two engines, and since the last one if the run has not ended and has no engine."""
    for begin, end in state.undriven:
        yield "undriven", begin, end, None
    if state.status is RunStatus.STOPPED or (state.status is RunStatus.RUNNING and now is None):
        yield "undriven", state.last_at, None, None


def _left_out(state: RunState) -> Iterator[_Band]:
    """The pauses of pools in which attempts of this run got no node.

    A pause ends early once an attempt of the run gets a node there.
    """
    bound: dict[str, list[float]] = {}
    decisions = []
    for task in chain(state.retired.values(), state.tasks.values()):
        for attempt in task.attempts:
            if attempt.taken_back is not None and attempt.taken_back.left_out:
                decisions.append(attempt.taken_back)
            if attempt.pool and attempt.bound_at is not None:
                bound.setdefault(attempt.pool, []).append(attempt.bound_at)
    pauses: dict[str, list[tuple[float, float]]] = {}
    for decision in decisions:
        for pool, (until, _times) in decision.left_out.items():
            pauses.setdefault(pool, []).append((decision.at, until))
    for pool, spans in pauses.items():
        moments = sorted(bound.get(pool, ()))
        for begin, end in _in_force(spans):
            place = bisect_left(moments, begin)
            over = min(end, moments[place]) if place < len(moments) else end
            if over > begin:
                yield "left_out", begin, over, pool


def _in_force(pauses: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The pauses of one pool by their begin, each each at most until the next one, which replaces it."""
    ordered = sorted(pauses)
    for (begin, end), following in zip(ordered, [*ordered[1:], None], strict=True):
        yield begin, end if following is None else min(end, following[0])
