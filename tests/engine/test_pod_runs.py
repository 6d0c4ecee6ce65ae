"""Whole runs of pod templates on virtual time: the engine plans, interrupts and finishes them without KFP."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.engine.builders import ON_DEMAND, SPOT, a_config
from tests.engine.driving import Run
from tests.engine.scripts import FAILED, TAKEN, Behavior, Script, scripted

from spotwright.engine.events import RunStatus
from spotwright.engine.loop import replay_decisions
from spotwright.engine.plan import Plan
from spotwright.manifests.pod_graph import PodTask, pod_graph
from spotwright.model.attempts import Signals

POD = {"containers": [{"name": "main", "image": "train:1", "resources": {"requests": {"cpu": "2"}}}]}
BY_EXIT_CODE = Behavior(1.0, Signals(exit_code=0))  # nobody looks for outputs: a pod declares none


def a_set(**policy: Any) -> Plan:
    """Three workers of a JobSet, and a Job that follows them."""
    annotations = {"spotwright.dev/policy": json.dumps({"spot": "prefer", **policy})}
    workers = [PodTask("JobSet", f"worker-{n}", POD, annotations=annotations) for n in range(3)]
    report = PodTask("Job", "report", POD, after=tuple(worker.name for worker in workers))
    pools = {pool.name: pool for pool in (SPOT, ON_DEMAND)}
    return Plan(pod_graph("set", [*workers, report], pools), a_config(*pools.values()))


def run(plan: Plan, script: Script) -> Run:
    one = Run(plan, script)
    one.start()
    return one


def test_a_pod_succeeds_by_its_exit_code_alone() -> None:
    done = run(a_set(), scripted({}, BY_EXIT_CODE))
    assert done.state.status is RunStatus.SUCCEEDED
    assert [done.causes(path) for path in done.state.tasks] == [["succeeded"]] * 4
    assert done.outputs == {}


def test_an_interrupted_pod_is_retried_and_delays_only_downstream_tasks() -> None:
    plan = a_set(fall_back_after=2)
    done = run(plan, scripted({"worker-1": [Behavior(1.0, TAKEN), Behavior(1.0, TAKEN)]}, BY_EXIT_CODE))
    assert done.state.status is RunStatus.SUCCEEDED
    assert done.causes("worker-1") == ["interrupted", "interrupted", "succeeded"]
    assert done.pools("worker-1") == ["spot", "spot", "on-demand"]
    assert done.causes("worker-0") == done.causes("report") == ["succeeded"]
    started_at = {event.task: event.at for event in done.events_of("bound")}
    assert started_at["report"] > started_at["worker-1"] > started_at["worker-0"]


def test_a_pod_that_fails_ends_the_run_by_its_own_budget() -> None:
    done = run(a_set(errors={"retries": 1}), scripted({"worker-2": [Behavior(1.0, FAILED)] * 2}, BY_EXIT_CODE))
    assert done.state.status is RunStatus.FAILED
    assert done.causes("worker-2") == ["failed", "failed"]
    assert done.state.tasks["report"].attempts == []


def test_a_replay_of_the_journal_decides_the_same() -> None:
    done = run(a_set(), scripted({"worker-0": [Behavior(1.0, TAKEN)]}, BY_EXIT_CODE))
    replay_decisions(done.plans, done.events)


def test_the_engine_and_pod_templates_import_nothing_of_kfp() -> None:
    code = (
        "import sys, spotwright.engine.loop, spotwright.engine.decide, spotwright.manifests.pod_graph\n"
        "print([name for name in sys.modules if name.startswith('spotwright.kfp')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
