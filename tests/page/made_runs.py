"""Runs to look at, made in the simulation: seconds of processor time for hours of virtual time, with a journal as of a real run.

``python -m tests.page.made_runs STATE [KIND ...]`` makes a run of each kind, by default of all, in a state folder that
``spotwright page --state STATE`` shows. Nothing is executed, so their attempts have no logs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tests.kfp.builders import compiled, ir, task
from tests.simulation.run import MemoryJournal, SimulatedRun, simulate
from tests.simulation.simulated_attempts import AttemptModel, TaskWork, WorkModel

from spotwright.engine.state import RunState
from spotwright.records.journal import Journal
from spotwright.records.state_folder import StateFolder
from spotwright.records.stored_plan import save_plan
from spotwright.runs.planning import plan_run
from spotwright.runs.run_options import PlanOptions

__all__ = ["KINDS", "Kind", "make_run"]

_NODE = {"cpu": 8, "memory": "32Gi", "pods": 8}


class Kind(NamedTuple):
    """The parameters of a run: ``chains`` of ``length`` tasks each, all with the same work, on spot and on-demand pools.

    ``interrupt_every`` is the mean life of a spot node, and pools have at most ``nodes`` of them.
    """

    chains: int
    length: int = 1
    work: TaskWork = TaskWork(300.0)
    interrupt_every: str = "10m"
    nodes: int = 10
    policy: Mapping[str, Any] = {"spot": "prefer", "interruptions": {"max": 5}, "pending_timeout": "1d"}


_STEADY = TaskWork(300.0, spread=0.5, start_up=10.0, reports=5, checkpoint_every=60.0, stops_in=5.0)

KINDS: Mapping[str, Kind] = {
    "ordinary": Kind(3, 3, _STEADY, "15m", 2),
    "interrupted": Kind(36, 4, _STEADY, "6m", 6),  # some 200 interruptions
    "failed": Kind(4, 3, replace(_STEADY, failure_rate=0.35), "30m", 3),
    "many": Kind(10_000, 1, _STEADY, "7m", 150),  # some 20,000 attempts
}


def make_run(state_folder: Path, name: str, kind: Kind, *, start: float = 1_790_000_000.0, seed: int = 1) -> RunState:
    """Make a run with its journal and plan on disk; returns its last state. ``start`` is in Unix seconds."""
    planned = plan_run(compiled(_pipeline(kind)), PlanOptions(config=_config(kind)))
    folder = StateFolder.open(state_folder).create(name)
    save_plan(folder, 1, planned.stored)
    plan = planned.stored.plan
    written = MemoryJournal()  # one commit at the end is as good, and does not wait for the disk at each step
    model: AttemptModel = WorkModel(lambda _: kind.work, seed)
    run = SimulatedRun(name, plan, model, seed=seed, journal=written)
    state = simulate([run], plan.config.pools, seed=seed, start=start)[name]
    with closing(Journal.create(folder.journal)) as journal:
        journal.take({"pid": 0, "starttime": 0, "boot_id": ""}, lambda _: False)
        journal.append(written.events)
    return state


def _pipeline(kind: Kind) -> dict[str, Any]:
    tasks = {}
    for chain in range(1, kind.chains + 1):
        for step in range(1, kind.length + 1):
            before = {"dependentTasks": [f"work-{chain}-{step - 1}"]} if step > 1 else {}
            tasks[f"work-{chain}-{step}"] = task("work", **before)
    return ir(tasks)


def _config(kind: Kind) -> dict[str, Any]:
    spot = {
        "capacity": "spot",
        "node": _NODE,
        "max_nodes": kind.nodes,
        "notice": "30s",
        "price": 0.3,
        "simulate": {"interrupt_every": kind.interrupt_every, "boot": "40s"},
    }
    return {
        "version": 1,
        "pools": {
            "spot-a": spot,
            "spot-b": {**spot, "max_nodes": max(1, kind.nodes // 2), "price": 0.35},
            "on-demand": {"capacity": "on-demand", "node": _NODE, "max_nodes": max(1, kind.nodes // 3), "price": 1.0},
        },
        "policy": {"default": dict(kind.policy)},
    }


def main(state: str, *kinds: str) -> None:
    """Make the runs, and print their contents."""
    for name in kinds or KINDS:
        made = make_run(Path(state), name, KINDS[name])
        attempts = sum(len(each.attempts) for each in made.tasks.values())
        spent = sum(each.spent.interruptions for each in made.tasks.values())
        told = f"{name}: {made.status.value}, {len(made.tasks)} tasks, {attempts} attempts, {spent} interruptions"
        sys.stdout.write(told + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
