"""Settings of a pipeline that this machine cannot honour are named before the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kfp.builders import compiled, ir, python_container, task

from spotwright.errors import PipelineError
from spotwright.kfp.pipeline_graph import build
from spotwright.local.preflight import check_containers, unmet_requests
from spotwright.local.supervisor import cgroups
from spotwright.runs.planning import plan_run
from spotwright.runs.run_options import PlanOptions


def test_code_inside_an_image_cannot_run_as_a_process() -> None:
    command = ["python3", "-m", "kfp.dsl.executor_main"]
    built = {"image": "registry/team:1", "command": command, "args": ["--function_to_execute", "step"]}
    pipeline = compiled(ir({"step": task("step")}, containers={"exec-step": built}))
    with pytest.raises(
        PipelineError, match=r"task step is a Python component whose code is in the image registry/team:1"
    ):
        check_containers(lambda path: path, build(pipeline), "host")


@pytest.mark.parametrize(
    ("limits", "warnings"),
    [
        (
            {"resourceMemoryLimit": "200Mi"},
            ["memory limits are not enforced: this user may not make control groups here (task step)"],
        ),
        ({"resourceCpuLimit": "1"}, []),
    ],
)
def test_a_memory_limit_that_is_not_enforced_is_a_warning(
    limits: dict[str, str], warnings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "parent", lambda: None)
    config = tmp_path / "spotwright.yaml"
    config.write_text("version: 1\npools: {spot: {capacity: spot}, regular: {capacity: on-demand}}\n")
    pipeline = compiled(
        ir({"step": task("step")}, containers={"exec-step": python_container() | {"resources": limits}})
    )
    plan = plan_run(pipeline, PlanOptions(config=config)).stored.plan
    assert unmet_requests(plan, None) == warnings
