"""A rule on pods holds in every kind in which its situation occurs: no gap in the table of the reference is without a reason."""

from __future__ import annotations

import pytest
from scripts.lint_rule_kinds import COLUMNS, holds, rules_of_pods

_OF_JOBS = {"Job", "CronJob", "Experiment", "resource.manifest", "ScaledJob", "AppWrapper"}
_PARTS = {"TrainingRuntime", "TrainJob"}  # each completes the other
_OF_TEKTON = {"PipelineRun", "TaskRun"}
_NOT_IN_KFP = {
    # its settings have no such field
    *("priority-below-cutoff", "spread-over-capacity", "saves-not-writable", "no-checkpoint", "gpu-without-limit"),
    *("grace-longer-than-notice", "grace-too-short", "prestop-takes-grace", "field-unknown", "wrong-shape"),
    "affinity-terms-are-alternatives",  # a rule of compiled pipelines says it
    *("zonal-volume-on-spot", "volume-in-other-zone"),  # volumes and classes are no part of a pipeline
    "checkpoint-not-mounted",  # the launcher mounts folders that the file does not show
}
_EXCEPT = {
    "job-restart-policy": set(COLUMNS) - _OF_JOBS,  # other kinds have defaults
    "toleration-without-affinity": _PARTS,
    "affinity-without-toleration": _PARTS,
    "churn-not-shielded": _PARTS | _OF_TEKTON,  # place writes the annotation of a run of Tekton into its metadata
    "quota-refuses-pods": {*_PARTS, "KFP"},  # the namespace of a pipeline's run is not in its file
    "node-name-set": {"Workflow", "TrainJob", "KFP", *_OF_TEKTON},  # their templates have no nodeName
    "gpu-not-requested": {"Workflow", "TrainJob", *_OF_TEKTON},  # such a template may take its resources from elsewhere
    "sigterm-not-passed-on": _OF_TEKTON,  # its entrypoint passes signals on to all processes
    **{key: {"KFP"} for key in _NOT_IN_KFP},
}


@pytest.mark.parametrize("column", COLUMNS)
def test_every_rule_on_pods_holds_in_a_kind(column: str) -> None:
    rules = list(rules_of_pods())
    missing = {rule.id for rule, beside, pod in rules if not holds(rule, beside, pod, column)}

    assert len(rules) > 30
    assert missing == {name for name, columns in _EXCEPT.items() if column in columns}
