"""An owner is one of the pod's own namespace: a UID that somebody has seen elsewhere makes no pod part of that workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cluster.watching.silent_watcher import SilentWatcher
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster.explaining import _why_not_recorded
from spotwright.cluster.workloads import lineage


def of_team_b(made: dict[str, Any]) -> dict[str, Any]:
    return {**made, "metadata": {**made["metadata"], "namespace": "team-b"}}


def test_a_pod_that_names_a_job_of_another_namespace_is_not_recorded_with_it(tmp_path: Path) -> None:
    made = SilentWatcher(tmp_path / "state")
    theirs = job("theirs", uid="uid-theirs")
    made.put("Job", theirs)
    made.put("Pod", pod("true-one", theirs, node="n1", phase="Running"))
    forged = of_team_b(pod("forged", theirs, node="n1", phase="Failed", exit_code=1))
    made.put("Pod", forged)
    made.pass_time(2)
    run = made.watcher._store.runs["uid-theirs"]
    assert [key.partition("/")[0] for key in run.attempts] == ["uid-true-one"]
    made.close()


def test_an_owner_that_is_found_elsewhere_or_is_another_one_leaves_the_lineage_incomplete() -> None:
    theirs = job("theirs", uid="uid-theirs")
    forged = of_team_b(pod("forged", theirs))
    assert not lineage(forged, lambda *_: theirs).is_complete
    assert not lineage(pod("one", theirs), lambda *_: job("theirs", uid="another-uid")).is_complete
    assert lineage(pod("one", theirs), lambda *_: theirs).owners == [theirs]


def test_explain_does_not_blame_a_label_that_is_there() -> None:
    not_served = {
        "unknown": "",
        "is_served": True,
        "kinds": {"Workflow": "the API server does not serve it", "Job": "watched"},
    }
    why = _why_not_recorded(not_served, "Workflow", "team-a")
    assert "label" not in why
    assert "no Workflow is recorded: the API server does not serve it" in why
    assert "recorded within seconds" in _why_not_recorded(not_served, "Job", "team-a")
    assert "give it the label" in _why_not_recorded({"unknown": "", "is_served": False, "kinds": {}}, "Job", "team-b")
