"""Requests to another process, and its answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from spotwright.errors import ConfigError, InputError, PipelineError, RunBusy, SpotwrightError, StateError
from spotwright.runs.run_options import PlanOptions, RunOptions
from spotwright.runs.subprocess_rpc import answers, ask, refusal


def test_options_survive_the_way_to_another_process() -> None:
    planning = PlanOptions({"n": [1, None]}, config=Path("/a.yaml"), interrupt_every=2.0, policy={"spot": "never"})
    running = RunOptions(3, 60.0, cache="off", containers="host", state=Path("/state"), name="r")
    assert PlanOptions.from_data(json.loads(json.dumps(planning.to_data()))) == planning
    assert RunOptions.from_data(json.loads(json.dumps(running.to_data()))) == running


def test_default_options_survive_the_way_to_another_process() -> None:
    assert PlanOptions.from_data(json.loads(json.dumps(PlanOptions().to_data()))) == PlanOptions()
    assert RunOptions.from_data(json.loads(json.dumps(RunOptions().to_data()))) == RunOptions()


@pytest.mark.parametrize(("error", "raised"), [
    (PipelineError("p"), PipelineError), (StateError("s"), StateError), (RunBusy("b"), StateError),
    (ConfigError("c"), InputError),
])  # fmt: skip
def test_a_refusal_is_raised_as_the_same_kind_of_error(error: SpotwrightError, raised: type[SpotwrightError]) -> None:
    process = Popen([sys.executable, "-c", f"print({json.dumps(refusal(error))!r})"], stdout=PIPE, text=True)
    with pytest.raises(raised, match=str(error)):
        list(answers(process))
    assert process.returncode == 0


def test_arguments_that_are_no_json_are_refused_before_a_process_begins() -> None:
    with pytest.raises(InputError, match="a parameter is a string, number, boolean, list or mapping"):
        ask("spotwright.runs.engine_process", {"arguments": {"x": object()}})
