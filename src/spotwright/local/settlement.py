"""Settle the attempts of earlier engines on this machine: ends since then count, running attempts are ended.

Simulated nodes end with their engine, so an attempt that outlives its engine has no node any more. It may still finish before the
next engine comes; then its result counts and its work is not done again. An attempt that ended by itself ended at the moment of
its exit record. All other attempts, and the nodes, ended at the last moment in the journal: time without an engine costs nothing.
"""

from __future__ import annotations

import shutil
from itertools import chain

from spotwright.engine.events import AttemptEnded, Event, NodeChanged
from spotwright.engine.state import RunState
from spotwright.local.attempts import AttemptPaths
from spotwright.local.exit_evidence import ObservedEnd, ended_event, hide_secrets
from spotwright.local.processes.protocol import OUT, ExitRecord
from spotwright.local.processes.recovery import settle_all, sweep
from spotwright.model.attempts import Signals

__all__ = ["hide_secrets_everywhere", "settle_run"]


def settle_run(state: RunState, paths: AttemptPaths, *, secrets_known: bool = True) -> list[Event]:
    """End every attempt that had a node when the last engine ended. Returns the facts about them, oldest first.

    No process of the run is alive afterwards. ``secrets_known`` is false where the run's secrets cannot be read. They could not
    be hidden in outputs then, so the outputs are deleted and the attempts count as cancelled.
    """
    bound = [task for task in map(state.tasks.__getitem__, state.under_way) if task.last.bound_at is not None]
    directories = [paths.attempt(task.path, task.last.number) for task in bound]
    records = settle_all(directories, run=paths.run, epoch=paths.epoch)
    events: list[Event] = []
    for task, directory, record in zip(bound, directories, records, strict=True):
        attempt, key, at = task.last, (task.path, task.last.number), _ended_at(state, record)
        if secrets_known:
            observed = ObservedEnd(
                noticed=attempt.noticed_at is not None, spot=_is_spot(state, attempt.pool), engine_gone=True
            )
            events.append(ended_event(at, key, task.plan.spec, directory, record, observed, paths))
        else:
            shutil.rmtree(directory / OUT, ignore_errors=True)
            events.append(AttemptEnded(at, *key, signals=Signals(cancelled=True), settled=True))
    sweep(paths.folder)
    events.sort(key=lambda event: event.at)
    return [*events, *_lost_nodes(state, events[-1].at if events else state.last_at)]


def hide_secrets_everywhere(state: RunState, paths: AttemptPaths) -> None:
    """Hide secrets in the outputs of every attempt of the run: the last engine may have ended before it did so."""
    if paths.secrets:
        for task in chain(state.tasks.values(), state.retired.values()):
            for attempt in task.attempts:
                hide_secrets(paths.attempt(task.path, attempt.number), paths.secrets)


def _ended_at(state: RunState, record: ExitRecord | None) -> float:
    if record is None or any(order.what == "kill" for order in record.ordered):
        return state.last_at
    return max(state.last_at, record.ended_at)


def _lost_nodes(state: RunState, at: float) -> list[Event]:
    """The ends of the simulated nodes: at the end of their engine, or of the last attempt that outlived it."""
    gone = [node for node in state.nodes.values() if node.gone_at is None]
    return [NodeChanged(at, node=n.name, pool=n.pool, state="gone", why="its engine ended") for n in gone]


def _is_spot(state: RunState, pool: str | None) -> bool | None:
    configured = state.plan.config.pools.get(pool or "")
    return configured.is_spot if configured is not None else None
