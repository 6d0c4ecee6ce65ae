"""What of a pipeline this machine cannot give is said before anything runs."""

from __future__ import annotations

import pytest
from tests.engine.builders import a_config
from tests.pipelines.builders import compiled, ir, task

from spotwright.engine.plan import Plan
from spotwright.errors import PipelineError
from spotwright.pipelines.graph import build
from spotwright.runs.grounds import check_grounds


def test_code_that_is_in_an_image_is_no_process_of_this_machine() -> None:
    command = ["python3", "-m", "kfp.dsl.executor_main"]
    built = {"image": "registry/team:1", "command": command, "args": ["--function_to_execute", "step"]}
    pipeline = compiled(ir({"step": task("step")}, containers={"exec-step": built}))
    with pytest.raises(
        PipelineError, match=r"task step is a Python component whose code is in the image registry/team:1"
    ):
        check_grounds(pipeline, Plan(build(pipeline), a_config()), "host")
