"""A replay of a journal takes the same decisions, and ``decide`` changes no state."""

from __future__ import annotations

import copy
import json

import pytest
from tests.engine.builders import (
    ON_DEMAND,
    a_body,
    a_chain,
    a_config,
    a_dag,
    a_diamond,
    a_fan,
    a_loop,
    a_plan,
    a_pool,
    a_task,
    when,
)
from tests.engine.driving import Run
from tests.engine.scripts import FAILED, MOVED, TAKEN, Behavior, always, scripted

from spotwright.engine.decide import decide
from spotwright.engine.event_codec import Row, decode, encode
from spotwright.engine.fold import replay
from spotwright.engine.loop import replay_decisions
from spotwright.engine.next_rung import Snapshot
from spotwright.engine.state import RunState
from spotwright.model.pools import Trace

TAKEN_OFTEN = a_config(
    a_pool(simulate={"interrupt_every": 20.0}), ON_DEMAND, policy={"spot": "prefer", "errors": {"retries": 2}}
)
CROWDED = a_config(a_pool(max_nodes=1, node=None), ON_DEMAND, policy={"spot": "prefer", "pending_timeout": "15s"})
BODY = a_body(a_task("a"), a_task("b", "a"), out="b")


def runs() -> dict[str, Run]:
    """Runs in which much happens."""
    return {
        "diamond": Run(a_plan(a_diamond()), scripted({"left": [Behavior(3, TAKEN), Behavior(3, MOVED)]})),
        "taken often": Run(a_plan(a_chain(6), TAKEN_OFTEN), always(Behavior(30.0, reports=5)), seed=4),
        "crowded": Run(a_plan(a_fan(12), CROWDED), always(Behavior(20.0))),
        "retries": Run(a_plan(a_fan(3), TAKEN_OFTEN), scripted({"t1": [Behavior(1, FAILED)] * 2})),
        "failed": Run(a_plan(a_fan(9), CROWDED), scripted({"t3": [Behavior(1, FAILED)]}, Behavior(9))),
        "loop": Run(
            a_plan([a_loop("l", limit=2), a_task("end", "l")], TAKEN_OFTEN, body=BODY),
            always(Behavior(30.0, reports=5)),
        ),
        "conditions": Run(
            a_plan([a_task("no", **when("x == 1", x=2)), a_task("b", "no"), a_task("yes", **when("x == 2", x=2))])
        ),
        "exit": Run(
            a_plan(
                [a_task("guarded", dag="dag"), a_task("end", "guarded", after_all=True), a_task("never", "guarded")],
                dag=a_dag(a_task("bad"), a_task("beside")),
            ),
            scripted({"guarded/bad": [Behavior(1, FAILED)], "guarded/beside": [Behavior(2, TAKEN), Behavior(5)]}),
        ),
        "trace": Run(a_plan(a_fan(6), CROWDED), always(Behavior(9)), traces={"spot": Trace(10.0, (1, 0, 0, 1, 1))}),
    }


@pytest.mark.parametrize("name", runs())
def test_a_replayed_run_decides_the_same(name: str) -> None:
    run = runs()[name]
    run.start()
    replay_decisions(run.plans, run.events)


@pytest.mark.parametrize("name", runs())
def test_a_replayed_run_ends_in_the_same_state(name: str) -> None:
    run = runs()[name]
    run.start()
    again = replay(run.plans, run.events)
    again.timers = run.state.timers = []  # what is stale in them depends on who looked
    assert again == run.state


@pytest.mark.parametrize("name", runs())
def test_events_are_the_same_after_json(name: str) -> None:
    run = runs()[name]
    run.start()
    decoded = [decode(Row(*(row := encode(e))[:4], json.loads(json.dumps(row.data)))) for e in run.events]
    again = replay(run.plans, decoded)
    assert {p: t.status for p, t in again.tasks.items()} == {p: t.status for p, t in run.state.tasks.items()}
    replay_decisions(run.plans, decoded)


@pytest.mark.parametrize("name", runs())
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    first, second = runs()[name], runs()[name]
    first.start()
    second.start()
    assert first.events == second.events


def test_decide_changes_no_state_and_is_deterministic() -> None:
    """After every batch of a run: decide twice from the same state."""
    compared: list[int] = []

    def look(state: RunState, _events: object) -> None:
        before = copy.deepcopy(state)
        for now in (state.last_at, state.last_at + 7, state.last_at + 1e6):
            first, second = (decide(state, Snapshot(run.world), now) for _ in range(2))
            compared.append(len(first))
            assert first == second
        assert state == before

    run = Run(
        a_plan([*a_diamond(), a_task("other")], CROWDED), scripted({"left": [Behavior(30, TAKEN)]}), observers=[look]
    )
    run.start()
    assert max(compared) > 0
