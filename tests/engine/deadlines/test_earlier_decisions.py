"""Journals of earlier versions of the decision functions replay under those versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.engine.builders import ON_DEMAND, SPOT, a_config, a_fan, a_plan, a_pool, a_task
from tests.engine.driving import Run
from tests.engine.scripts import FAILED, MOVED, TAKEN, Behavior, always, scripted

from spotwright.engine.decisions.replay import replay_decisions
from spotwright.engine.event_codec import Row, decode
from spotwright.engine.status import RunStatus
from spotwright.model.traces import Trace

JOURNALS = Path(__file__).parent / "journals/deadlines-1.json"
"""Written by version 1 of the decision functions, from the runs below."""


def earlier_runs() -> dict[str, Run]:
    """Runs with deadlines whose journals version 1 wrote; today's functions decide some of them differently."""

    def policy(**settings: object) -> dict[str, object]:
        return {"spot": "prefer", "deadline": "1000s", "work": "100s", **settings}

    saves = policy(checkpoint="pvc://ckpt")
    taken = scripted({"a": [Behavior(35, TAKEN, reports=5, done_after=0.3)] * 3}, Behavior(70))
    errors = scripted({"a": [Behavior(50, TAKEN), Behavior(30, MOVED), Behavior(5, FAILED)]}, Behavior(100))
    no_spot, pair = a_pool(max_nodes=0), (SPOT, a_pool("spot-b"), ON_DEMAND)
    traces = {"spot": Trace(70.0, (0, 1, 2)), "spot-b": Trace(650.0, (0, 1))}
    task = [a_task("a")]
    return {
        "waits in vain": Run(a_plan(task, a_config(no_spot, ON_DEMAND, policy=policy())), always(Behavior(100.0))),
        "waits in vain and saves": Run(
            a_plan(task, a_config(no_spot, ON_DEMAND, policy=saves)), always(Behavior(100.0))
        ),
        "is taken and saves": Run(a_plan(task, a_config(policy={**saves, "deadline": "600s"})), taken),
        "errors and moves": Run(
            a_plan(task, a_config(*pair, policy=policy(errors={"retries": 1}))), errors, traces=traces
        ),
        "late on spot": Run(
            a_plan(task, a_config(policy=policy())), scripted({"a": [Behavior(950, TAKEN)]}, Behavior(100))
        ),
        "many": Run(
            a_plan(a_fan(4), a_config(a_pool(simulate={"taken_every": 60.0}), ON_DEMAND, policy=saves)),
            always(Behavior(100.0, reports=10)),
            seed=3,
        ),
    }


@pytest.mark.parametrize("name", earlier_runs())
def test_a_journal_of_version_1_replays_under_version_1(name: str) -> None:
    run = earlier_runs()[name]
    events = [decode(Row(*row)) for row in json.loads(JOURNALS.read_text())[name]]
    assert replay_decisions(run.plans, events).status is RunStatus.SUCCEEDED
