"""A rule on pods holds in every kind in which its situation occurs: no gap in the table of the reference is without a reason."""

from __future__ import annotations

import pytest
from scripts.lint_rule_kinds import COLUMNS, holds, rules_of_pods

_OF_JOBS = {"Job", "CronJob", "Experiment", "resource.manifest", "ScaledJob", "AppWrapper"}
_EXCEPT = {
    "job-restart-policy": set(COLUMNS) - _OF_JOBS,  # other kinds have defaults
    "toleration-without-affinity": {"TrainingRuntime"},  # a TrainJob completes it
    "affinity-without-toleration": {"TrainingRuntime"},
    "churn-not-shielded": {"TrainingRuntime"},
    "quota-refuses-pods": {"TrainingRuntime"},
    "node-name-set": {"Workflow"},  # its templates have no nodeName
    "gpu-not-requested": {"Workflow"},  # a container template may take its resources from elsewhere
}


@pytest.mark.parametrize("column", COLUMNS)
def test_every_rule_on_pods_holds_in_a_kind(column: str) -> None:
    rules = list(rules_of_pods())
    missing = {rule.id for rule, beside, pod in rules if not holds(rule, beside, pod, column)}

    assert len(rules) > 30
    assert missing == {name for name, columns in _EXCEPT.items() if column in columns}
