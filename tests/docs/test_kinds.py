"""The pages of kinds show what the commands print."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import ROOT, same, walk

pytestmark = pytest.mark.long


KINDS = [
    *("pod", "job", "cronjob", "jobset", "katib", "kfp", "volcanojob", "tekton", "services"),
    *(f"training/{kind}job" for kind in ("tf", "pytorch", "xgboost", "paddle", "jax")),
    *("trainjob", "trainingruntime", "clustertrainingruntime"),
    *("raycluster", "rayjob", "sparkapplication", "deployment", "leaderworkerset"),
    *("argo", "workflowtemplate", "clusterworkflowtemplate", "cronworkflow"),
]


def test_every_page_is_tried() -> None:
    folder = ROOT / "docs" / "kinds"
    assert {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.md")} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_page_shows_is_what_is_printed(kind: str, tmp_path: Path) -> None:
    steps = list(walk(ROOT / "docs" / "kinds" / f"{kind}.md", tmp_path))

    assert steps
    for step, printed in steps:
        assert same(step.output, printed), f"line {step.line}: {step.command}\n{printed}"
