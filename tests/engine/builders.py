"""Builders of pools, policies, tasks and plans: a test of a decision names only the values that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.config import Config
from spotwright.engine.plan import Plan
from spotwright.graph import Constant, Dag, DagInput, Loop, TaskGraph, TaskOutput, TaskSpec
from spotwright.kfp.cel import CelCondition, read_condition
from spotwright.kfp.executors import PythonComponent
from spotwright.kfp.pipeline_graph import KFP
from spotwright.model.policy import Layer, Policy, parse_policy, resolve
from spotwright.model.pools import Capacity, Pool, Simulate
from spotwright.scheduling.ladder import Ladder, PodRequirements, build

START = 1_800_000_000.0
NODE = {"cpu": 4000, "memory": 16 * 2**30}
CODE = PythonComponent("def f(): ...", "f")


def a_pool(
    name: str = "spot", *, spot: bool = True, simulate: Mapping[str, Any] | None = None, **settings: Any
) -> Pool:
    """A pool whose nodes boot in 2 s and have 10 s of notice; no model or trace takes them."""
    given = {"node": NODE, "max_nodes": 4, "notice": 10.0, **settings}
    simulated = Simulate(**(simulate or {}))
    given.setdefault("boot", simulated.boot)
    return Pool(name, Capacity.SPOT if spot else Capacity.ON_DEMAND, simulate=simulated, **given)


SPOT, SPOT_B, ON_DEMAND = a_pool(), a_pool("spot-b"), a_pool("on-demand", spot=False)


def a_policy(**settings: Any) -> Policy:
    """A policy in the words of ``spotwright.yaml``, resolved."""
    return resolve([parse_policy(settings, "test")])


def a_ladder(policy: Policy, *pools: Pool, work: PodRequirements | None = None) -> Ladder:
    return build(work or PodRequirements(), policy, {pool.name: pool for pool in pools or (SPOT, SPOT_B, ON_DEMAND)})


def a_config(
    *pools: Pool, policy: Mapping[str, Any] | None = None, tasks: Mapping[str, Mapping[str, Any]] | None = None
) -> Config:
    """A configuration as from ``spotwright.yaml``; by default it has one spot pool and one on-demand pool."""
    default = parse_policy(policy, "default") if policy is not None else None
    patterns = tuple((pattern, parse_policy(settings, pattern)) for pattern, settings in (tasks or {}).items())
    named = {pool.name: pool for pool in pools or (SPOT, ON_DEMAND)}
    return Config(1, "USD", {}, named, default, patterns, "spotwright.yaml", "")


def a_task(name: str, *after: str, dag: str | None = None, **settings: Any) -> TaskSpec:
    """A task; it takes the output ``out`` of each task it follows, as a parameter of that task's name."""
    given = {"parameters": {upstream: TaskOutput(upstream, "out") for upstream in after}, **settings}
    return TaskSpec(name, name, dag=dag, executor=None if dag else CODE, after=after, **given)


def a_dag(*tasks: TaskSpec, out: str = "") -> Dag:
    """A DAG; ``out`` names the task whose output is that of the DAG."""
    outputs = {"out": TaskOutput(out, "out")} if out else {}
    return Dag("dag", tasks={task.name: task for task in tasks}, parameter_outputs=outputs)


def a_pipeline(root: Dag | Sequence[TaskSpec], **dags: Dag) -> TaskGraph:
    dag = root if isinstance(root, Dag) else a_dag(*root)
    return TaskGraph("pipeline", dag, {"root": dag, **dags}, dialect=KFP)


def a_plan(
    root: Dag | Sequence[TaskSpec], config: Config | None = None, flags: Layer | None = None, **dags: Dag
) -> Plan:
    return Plan(a_pipeline(root, **dags), config or a_config(policy={"spot": "prefer"}), flags)


def a_chain(length: int) -> list[TaskSpec]:
    """t0 <- t1 <- t2 ..."""
    return [a_task(f"t{n}", *([f"t{n - 1}"] if n else [])) for n in range(length)]


def a_fan(width: int) -> list[TaskSpec]:
    """Tasks that nothing connects."""
    return [a_task(f"t{n}") for n in range(width)]


def a_diamond() -> list[TaskSpec]:
    return [a_task("top"), a_task("left", "top"), a_task("right", "top"), a_task("bottom", "left", "right")]


def constants(**values: Any) -> dict[str, Constant]:
    return {name: Constant(value) for name, value in values.items()}


def from_outside(*names: str) -> dict[str, DagInput]:
    return {name: DagInput(name) for name in names}


def a_loop(name: str, *after: str, items: Sequence[Any] = (1, 2, 3), limit: int = 0, dag: str = "body") -> TaskSpec:
    """A task that runs the graph ``dag`` for each item, which is that graph's input ``item``."""
    return a_task(name, *after, dag=dag, loop=Loop("item", raw=tuple(items), limit=limit))


def a_body(*tasks: TaskSpec, out: str = "") -> Dag:
    """The graph of a loop; tasks that follow no other take the item."""
    return a_dag(*(t if t.after else a_task(t.name, parameters=from_outside("item")) for t in tasks), out=out)


def when(text: str, **values: Any) -> dict[str, Any]:
    """Arguments of :func:`a_task` for a condition on its inputs: ``when("x == 1", x=1)``."""
    for name in values:
        text = text.replace(name, f"inputs.parameter_values['{name}']")
    condition: CelCondition = read_condition(text)
    return {"condition": condition, "parameters": constants(**values)}
