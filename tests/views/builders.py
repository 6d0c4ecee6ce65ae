"""Runs for the tests of views: a plan from hand-made values, and a story told in facts while the engine decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.events import an_event

from spotwright.config import Config, parse
from spotwright.engine.decide import decide
from spotwright.engine.events import CacheAsked, CacheMissed, EnvironmentAsked, EnvironmentChanged, Event, TaskCached
from spotwright.engine.fold import fold
from spotwright.engine.loop import Observer
from spotwright.engine.next_rung import Snapshot
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.graph import Constant, Dag, TaskGraph, TaskOutput, TaskSpec
from spotwright.kfp.executors import PythonComponent
from spotwright.model.policy import Layer

START = 1_785_153_600.0  # 2026-07-27 12:00:00 UTC
POOLS = """\
version: 1
currency: USD
pools:
  cpu-spot: {capacity: spot, machine: D4, node: {cpu: 4, memory: 16Gi}, price: 0.18/h, notice: 0s}
  cpu: {capacity: on-demand, machine: D4, node: {cpu: 4, memory: 16Gi}, price: 0.72/h}
  gpu-spot: {capacity: spot, machine: NC6, node: {cpu: 6, memory: 112Gi, nvidia.com/gpu: 1}, price: 0.9/h, notice: 0s}
  gpu: {capacity: on-demand, machine: NC6, node: {cpu: 6, memory: 112Gi, nvidia.com/gpu: 1}, price: 3.6/h}
policy:
  default: {spot: prefer}
"""
CPU, GIB = 1000, 2**30


def a_config(text: str = POOLS) -> Config:
    """The configuration of a run on simulated pools."""
    config = parse(text)
    return replace(config, pools={name: pool.simulated for name, pool in config.pools.items()})


def a_task(name: str, *after: str, packages: tuple[str, ...] = (), **said: Any) -> TaskSpec:
    executor = PythonComponent("def f(): ...", "f", packages)
    return TaskSpec(name, name, executor=executor, after=tuple(after), **said)


def a_plan(*tasks: TaskSpec, config: Config | None = None, policy: dict[str, Any] | None = None, **root: Any) -> Plan:
    """A straight pipeline of these tasks; ``policy`` is what the pipeline says for all of them."""
    dag = Dag("root", tasks={task.name: task for task in tasks}, **root)
    layer = Layer("the pipeline", policy) if policy else None
    return Plan(TaskGraph("iris", dag, {"root": dag}, layer), config or a_config())


class Story:
    """A run that is told fact by fact; after every fact the engine decides. ``now`` is seconds since the start.

    Environments of tasks with packages are built until :meth:`builds` tells the end.
    """

    def __init__(self, plan: Plan, observers: Sequence[Observer] = (), cached: Sequence[str] = (), **meta: Any) -> None:
        self.state = RunState([plan])
        self.events: list[Event] = []
        self.now = 0.0
        self.observers = list(observers)
        self.cached = cached  # the tasks of which an earlier run has a result
        said = {
            "pipeline": plan.graph.name,
            "run": "iris-x7k2p",
            "arguments": {},
            "seed": 7,
            "time_scale": 1.0,
            **meta,
        }
        self.tell(
            an_event("created", self.at, data=said),
            an_event("engine", self.at, data={"epoch": 1, "pid": 42, "caching": bool(cached), "environments": True}),
        )

    @property
    def at(self) -> float:
        return START + self.now

    def tell(self, *facts: Event) -> Story:
        """Fold facts, let the engine decide, show everything to the observers."""
        batch = list(facts)
        for fact in facts:
            fold(self.state, fact)
        while decisions := decide(self.state, Snapshot(), self.at):
            answers = [self._look_up(decision) for decision in decisions if isinstance(decision, CacheAsked)]
            answers += [self._building(decision) for decision in decisions if isinstance(decision, EnvironmentAsked)]
            for event in (*decisions, *answers):
                fold(self.state, event)
            batch += [*decisions, *answers]
        self.events += batch
        for observe in self.observers:
            observe(self.state, batch)
        return self

    def _look_up(self, asked: CacheAsked) -> Event:
        if asked.task not in self.cached:
            return CacheMissed(self.at, asked.task)
        return TaskCached(self.at, asked.task, run="iris-before", of_task=asked.task, parameters={"rows": 150})

    def _building(self, asked: EnvironmentAsked) -> Event:
        executor = self.state.tasks[asked.task].plan.spec.executor
        assert isinstance(executor, PythonComponent)
        log = f"{len(executor.packages)}-packages.log"
        return EnvironmentChanged(self.at, asked.task, state="building", packages=executor.packages, log=log)

    def builds(self, *tasks: str, why: str = "", last_lines: Sequence[str] = ()) -> Story:
        """The environments of these tasks are ready, or could not be built."""
        ended = {"state": "failed", "why": why, "last_lines": list(last_lines)} if why else {"state": "ready"}
        return self.tell(*(an_event("environment", self.at, task, data=ended) for task in tasks))

    def after(self, seconds: float) -> Story:
        """Let time pass; timers that are due are decided."""
        self.now += seconds
        return self.tell()

    def fact(self, kind: str, task: str = "", attempt: int = 0, **data: Any) -> Story:
        return self.tell(an_event(kind, self.at, task, attempt, data))

    def node(self, name: str, state: str, why: str = "") -> Story:
        said = {"node": name, "pool": name.rpartition("-")[0], "state": state, **({"why": why} if why else {})}
        return self.tell(an_event("node", self.at, data=said))

    def boots(self, name: str, seconds: float = 2.0) -> Story:
        """A node boots and is ready."""
        return self.node(name, "booting").after(seconds).node(name, "ready")

    def binds(self, task: str, node: str) -> Story:
        number = self.state.tasks[task].last.number
        return self.fact("bound", task, number, node=node, pool=node.rpartition("-")[0])

    def reports(self, task: str, value: float) -> Story:
        return self.fact("progress", task, self.state.tasks[task].last.number, value=value)

    def ends(self, task: str, outputs: dict[str, Any] | None = None, **signals: Any) -> Story:
        """The newest attempt ends: with success, or as the signals say."""
        attempt = self.state.tasks[task].last
        seen = signals or {"exit_code": 0, "outputs_complete": True}
        data: dict[str, Any] = {"signals": seen, "seconds": self.at - (attempt.bound_at or self.at), **(outputs or {})}
        return self.fact("ended", task, attempt.number, **data)

    def taken(self, node: str, task: str) -> Story:
        """The provider takes the node from under a task."""
        return self.node(node, "gone", "taken by the provider").ends(task, signal=9, node_gone=True, spot=True)

    def gives_back(self, *nodes: str) -> Story:
        for node in nodes:
            self.node(node, "gone", "given back at the end of the run")
        return self


def a_model(uri: str = "/state/runs/iris-x7k2p/tasks/train/attempt-2/out/model") -> dict[str, Any]:
    """An artifact in the shape in which the engine keeps it."""
    return {"name": "model", "type": {"schemaTitle": "system.Model"}, "uri": uri, "metadata": {}}


def tutorial_plan() -> Plan:
    """Download, merge, train: the demonstration's shape."""
    gpu = {"nvidia.com/gpu": 1}
    return a_plan(
        a_task("download", requests={"cpu": 1 * CPU}, parameters={"url": Constant("https://example.com/iris.tar.gz")}),
        a_task("merge", "download", requests={"cpu": 2 * CPU, "memory": 4 * GIB}),
        a_task("train", "merge", requests=gpu),
        parameter_outputs={"accuracy": TaskOutput("train", "accuracy")},
        artifact_outputs={"model": TaskOutput("train", "model")},
    )


def tutorial(observers: Sequence[Observer] = (), **meta: Any) -> Story:
    """The tutorial's run: one interruption of the training, which goes on from its checkpoint and succeeds."""
    story = Story(tutorial_plan(), observers, **meta)
    story.boots("cpu-spot-1").binds("download", "cpu-spot-1").after(3).ends("download")
    story.binds("merge", "cpu-spot-1").after(4).ends("merge")
    story.boots("gpu-spot-1").binds("train", "gpu-spot-1").after(1).reports("train", 0.0)
    story.after(4).reports("train", 0.4).after(1).taken("gpu-spot-1", "train")
    story.after(1).boots("gpu-spot-2").binds("train", "gpu-spot-2").after(1).reports("train", 0.3)
    outputs = {"parameters": {"accuracy": 0.9736842105263158}, "artifacts": {"model": a_model()}, "progress": 1.0}
    story.after(7).ends("train", outputs).gives_back("cpu-spot-1", "gpu-spot-2")
    return story
