"""What crosses over to a process of our own, and what comes back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from spotwright.errors import ConfigError, InputError, PipelineError, RunBusy, SpotwrightError, StateError
from spotwright.runs.asking import answers, ask, refusal
from spotwright.runs.options import RunOptions


def test_options_cross_over_as_they_are() -> None:
    options = RunOptions(
        arguments={"n": [1, None]}, config=Path("/a.yaml"), seed=3, taken_every=2.0, time_scale=60.0, cache="off",
        containers="host", state=Path("/state"), name="r", policy={"spot": "never"},
    )  # fmt: skip
    assert RunOptions.from_data(json.loads(json.dumps(options.to_data()))) == options


def test_options_that_were_not_given_cross_over_too() -> None:
    assert RunOptions.from_data(json.loads(json.dumps(RunOptions().to_data()))) == RunOptions()


@pytest.mark.parametrize(("error", "raised"), [
    (PipelineError("p"), PipelineError), (StateError("s"), StateError), (RunBusy("b"), StateError),
    (ConfigError("c"), InputError),
])  # fmt: skip
def test_a_refusal_is_raised_as_the_error_that_it_was(error: SpotwrightError, raised: type[SpotwrightError]) -> None:
    process = Popen([sys.executable, "-c", f"print({json.dumps(refusal(error))!r})"], stdout=PIPE, text=True)
    with pytest.raises(raised, match=str(error)):
        list(answers(process))
    assert process.returncode == 0


def test_arguments_that_are_no_json_are_refused_before_a_process_begins() -> None:
    with pytest.raises(InputError, match="a parameter is a string, number, boolean, list or mapping"):
        ask("spotwright.runs.child", {"arguments": {"x": object()}})
