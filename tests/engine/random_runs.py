"""Any pipeline on any supply, whose attempts end in any way: what the properties of runs are tested on."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.engine.builders import a_body, a_config, a_dag, a_loop, a_plan, a_pool, a_task, when
from tests.engine.driving import Run
from tests.engine.scripts import FAILED, LOST, MOVED, SUCCEEDED, TAKEN, Behavior, scripted

from spotwright.engine.plan import Plan
from spotwright.graph import TaskSpec
from spotwright.model.attempts import Signals
from spotwright.model.pools import Trace

__all__ = ["plans", "runs"]

HALF = Signals(exit_code=0, outputs_complete=False)
OOM = Signals(exit_code=137, oom_kills=1)
ENDS = st.sampled_from([SUCCEEDED, FAILED, TAKEN, TAKEN, LOST, MOVED, HALF, OOM, Signals(timed_out=True, signal=9)])
DOES = st.builds(Behavior, st.sampled_from([0.5, 1.0, 7.0, 40.0]), ENDS, st.integers(0, 3))
PLACES = st.builds(
    lambda boot, taken, notice, most, lifetime: {
        "simulate": {"boot": boot, "interrupt_every": taken}, "notice": notice, "max_nodes": most, "max_lifetime": lifetime,
    },
    st.sampled_from([0.0, 2.0]), st.sampled_from([None, 5.0, 60.0]), st.sampled_from([0.0, 10.0]), st.integers(0, 3),
    st.sampled_from([None, 30.0]),
)  # fmt: skip
POLICIES = st.fixed_dictionaries(
    {
        "interruptions": st.fixed_dictionaries({"max": st.integers(0, 4)}),
        "errors": st.fixed_dictionaries({"retries": st.integers(0, 2)}),
        "pending_timeout": st.sampled_from(["5s", "60s"]),
    },
    optional={"spot": st.sampled_from(["require", "prefer"])},
)


@st.composite
def graphs(draw: st.DrawFn, depth: int = 1) -> tuple[list[TaskSpec], dict[str, Any]]:
    """Tasks that follow some of those before them; a few are pipelines."""
    tasks: list[TaskSpec] = []
    dags: dict[str, Any] = {}
    for number in range(draw(st.integers(1, 5))):
        after = [task.name for task in tasks if draw(st.integers(0, 2)) == 0]
        kind = draw(st.sampled_from(["task"] * 6 + ["pipeline", "loop", "branch", "exit"] if depth else ["task"]))
        if kind in ("pipeline", "loop"):
            inside, _ = draw(graphs(depth=0))
            dags[f"dag-{number}"] = (a_dag if kind == "pipeline" else a_body)(*inside, out=inside[-1].name)
        tasks.append(draw(a_task_of(kind, f"t{number}", after, f"dag-{number}")))
    return tasks, dags


@st.composite
def a_task_of(draw: st.DrawFn, kind: str, name: str, after: list[str], dag: str) -> TaskSpec:
    if kind == "loop":
        items = draw(st.lists(st.integers(0, 3), max_size=3))
        return a_loop(name, *after, items=items, limit=draw(st.integers(0, 2)), dag=dag)
    if kind == "branch":
        return a_task(name, *after, **when("x == 1", x=draw(st.integers(1, 2))))
    return a_task(name, *after, dag=dag if kind == "pipeline" else None, after_all=kind == "exit" and bool(after))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    spot = a_pool(**draw(PLACES))
    on_demand = a_pool("on-demand", spot=False, max_nodes=draw(st.integers(0, 2)))
    tasks, dags = draw(graphs())
    return a_plan(tasks, a_config(spot, on_demand, policy=draw(POLICIES)), **dags)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    endings = draw(st.dictionaries(st.sampled_from([f"t{n}" for n in range(5)]), st.lists(DOES, max_size=6)))
    traces = draw(st.one_of(st.just({}), st.builds(lambda c: {"spot": Trace(15.0, tuple(c))}, COUNTS)))
    return Run(
        draw(plans()),
        scripted(endings),
        seed=draw(st.integers(0, 3)),
        scale=draw(st.sampled_from([1.0, 60.0])),
        traces=traces,
    )


COUNTS = st.lists(st.integers(0, 3), min_size=1, max_size=6)
