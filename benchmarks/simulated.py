"""Runs in the simulation, without processes: what is left is the engine itself.

``simulated.py journal FILE STATE RESULT [COUNT] [taken]``: one run with its journal on disk, driven COUNT times. Every attempt
works for a second; with ``taken`` the first attempt of every task reports progress and is interrupted, so that the journal holds
what a run on spot nodes leaves. Real are the plan, the fold, the decisions, the supply of nodes and the journal.

``simulated.py compete FILE COUNT RESULT``: COUNT runs of a pipeline in one virtual time, on spot nodes that are taken and on
on-demand nodes that all runs share.

The results hold processor times in seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.simulation.run import SimulatedRun, simulate
from tests.simulation.simulated_attempts import AttemptStart, Behavior, TaskWork, WorkModel

from spotwright.kfp.loader import load
from spotwright.model.attempts import Signals
from spotwright.records.journal import Journal
from spotwright.records.state_folder import StateFolder
from spotwright.records.stored_plan import save_plan
from spotwright.runs.planning import PlannedRun, plan_run
from spotwright.runs.run_options import PlanOptions

_INTERRUPTED = Behavior(1.0, Signals(signal=15, noticed=True, spot=True), reports=2, done_after=0.6)
_POOLS = """\
version: 1
pools:
  spot: {capacity: spot, node: {cpu: 8, memory: 32Gi, pods: 8}, max_nodes: 10, notice: 30s, simulate: {interrupt_every: 10m}}
  on-demand: {capacity: on-demand, node: {cpu: 8, memory: 32Gi, pods: 8}, max_nodes: 4}
policy:
  default: {spot: prefer, interruptions: {max: 5}, pending_timeout: 1d}
"""


def drive_once(planned: PlannedRun, state_folder: Path, name: str, *, taken: bool) -> dict[str, Any]:
    """Drive one run to its end, with its journal on disk."""
    folder = StateFolder.open(state_folder).create(name)
    save_plan(folder, 1, planned.stored)
    plan = planned.stored.plan
    journal = Journal.create(folder.journal)
    journal.take({"pid": 0, "starttime": 0, "boot_id": ""}, lambda _: False)

    def model(start: AttemptStart) -> Behavior:
        return _INTERRUPTED if taken and start.number == 1 else Behavior(1.0, reports=2 if taken else 0)

    run = SimulatedRun(name, plan, model, journal=journal)
    before = time.process_time()
    state = simulate([run], plan.config.pools)[name]
    spent = time.process_time() - before
    journal.close()
    if state.status.value != "succeeded":
        sys.exit(f"the run {state.status.value}: {state.why}")
    return {"spent": spent, "tasks": len(state.tasks), "events": state.events, "folder": str(folder.path)}


def journal(file: str, state: str, result: str, count: str = "1", taken: str = "") -> None:
    """Drive the runs, a small one first so that the measured ones do nothing for the first time."""
    planned = plan_run(load(file), PlanOptions())
    small = plan_run(load(Path(file).with_name("independent.yaml")), PlanOptions())
    drive_once(small, Path(state), "warm-up", taken=bool(taken))
    runs = [drive_once(planned, Path(state), f"run-{number}", taken=bool(taken)) for number in range(int(count))]
    Path(result).write_text(json.dumps({"runs": runs}))


def compete(file: str, count: str, result: str) -> None:
    """Drive runs that share their pools. Each attempt reports and saves ten times; all tasks take about five minutes."""
    config = Path(result).with_name("competing.yaml")
    config.write_text(_POOLS)
    plan = plan_run(load(file), PlanOptions(config=config)).stored.plan
    work = TaskWork(300.0, spread=0.5, start_up=10.0, reports=10, checkpoint_every=30.0, stops_in=5.0)
    runs = [SimulatedRun(f"run-{n}", plan, WorkModel(lambda _: work, n), seed=n) for n in range(int(count))]
    before = time.process_time()
    states = simulate(runs, plan.config.pools)
    spent = time.process_time() - before
    attempts = [attempt for state in states.values() for task in state.tasks.values() for attempt in task.attempts]
    causes = Counter(str(attempt.cause) for attempt in attempts)
    left = [name for name, state in states.items() if state.status.value != "succeeded"]
    if left or not causes["interrupted"]:
        sys.exit(f"not succeeded: {left}; causes: {dict(causes)}")
    events = sum(state.events for state in states.values())
    Path(result).write_text(json.dumps({"spent": spent, "attempts": len(attempts), "events": events, "causes": causes}))


if __name__ == "__main__":
    {"journal": journal, "compete": compete}[sys.argv[1]](*sys.argv[2:])
