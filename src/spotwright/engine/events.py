"""The facts and decisions of a run, as they stand in the journal.

One shape serves all: a kind, a moment, the task and attempt it is about, and plain JSON data. Kinds are closed (the table
below); every view and the state itself are computed from them. Facts are what the world or the user did; decisions are what
:func:`spotwright.engine.decide.decide` answered. A run folds the same whether it is live, resumed or read a year later.

=============  =========  ==============================================================================================
kind           sort       data
=============  =========  ==============================================================================================
created        fact       pipeline, arguments (references, never secret values), seed, time_scale, ... (:class:`RunMeta`)
engine         fact       epoch, pid: an engine took the run
unfolded       decision   items (of a loop): the tasks of that pipeline are known now; its condition held, if it has one
skipped        decision   why: the task does not run, because its condition does not hold or it follows one that was skipped
cached         decision   parameters, artifacts, run, task: an earlier result is used, nothing runs
placed         decision   rung, pools, until, why: attempt n waits for a node on this rung, until then
moved          decision   rung, pools, until, why: the same attempt waits on the next rung
bound          fact       node, pool: it has a node and starts
progress       fact       value: 0..1, as the code reported it
notice         fact       node, goes_at, attempts, why: the provider will take the node
node           fact       node, pool, state (booting | ready | gone), why
ended          fact       signals, seconds, parameters, artifacts, first_progress, progress, record, settled (by a later engine)
decided        decision   cause, why, then, next, rung, wait, evidence: the one cause of the end, and what follows
failed         decision   why: the task fails without an attempt
halt           decision   why: this attempt is to be stopped
completed      decision   parameters, artifacts: a task that has no attempts of its own has all its outputs
cancel         fact       the user cancelled the run
stop           fact       why: the engine was told to stop; the run can be resumed
expired        decision   why: the time of the whole run is over: all but exit tasks is stopped and fails
finished       decision   status, why
reset          fact       version, again, arguments: what did not succeed starts afresh (resume); again: what did and must too
note           fact       text: said once to the user
=============  =========  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["DECISIONS", "Event"]

DECISIONS = frozenset({
    "unfolded", "skipped", "cached", "placed", "moved", "decided", "failed", "halt", "completed", "expired", "finished", "note",
})  # fmt: skip
"""The kinds that :func:`~spotwright.engine.decide.decide` produces."""


@dataclass(slots=True)
class Event:
    """One line of the journal. ``at`` is Unix time in seconds; ``attempt`` counts from one, zero where it does not apply."""

    kind: str
    at: float
    task: str = ""
    attempt: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
