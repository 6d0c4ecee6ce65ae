"""The outputs of simulated attempts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.builders import a_config, a_plan, a_task
from tests.simulation.run import MemoryJournal, SimulatedRun, simulate
from tests.simulation.simulated_attempts import Behavior

from spotwright.engine.events import AttemptEnded, RunStatus
from spotwright.graph import ArtifactSpec, OutputSpecs, ParameterSpec


def outputs(**declared: Any) -> AttemptEnded:
    """The end of a task that declares these outputs, with the outputs that the simulation makes by default."""
    config = a_config()
    plan, journal = a_plan([a_task("a", outputs=OutputSpecs(**declared))], config), MemoryJournal()
    states = simulate([SimulatedRun("run", plan, lambda _: Behavior(), journal=journal)], config.pools)
    assert states["run"].status is RunStatus.SUCCEEDED
    return next(event for event in journal.events if isinstance(event, AttemptEnded))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("STRING", ""),
        ("NUMBER_INTEGER", 0),
        ("NUMBER_DOUBLE", 0.0),
        ("BOOLEAN", False),
        ("LIST", []),
        ("STRUCT", {}),
    ],
)
def test_a_parameter_has_the_empty_value_of_its_type(type_: str, value: Any) -> None:
    assert outputs(parameters={"out": ParameterSpec(type_)}).parameters == {"out": value}


def test_a_literal_parameter_has_its_first_literal() -> None:
    literal = ParameterSpec("STRING", literals=("red", "green"))
    assert outputs(parameters={"out": literal}).parameters == {"out": "red"}


def test_an_artifact_has_its_declared_type_and_an_address_that_does_not_exist() -> None:
    spec = ArtifactSpec("system.Model", "0.0.1", metadata={"framework": "none"})
    assert outputs(artifacts={"model": spec}).artifacts == {
        "model": {
            "name": "model",
            "type": {"schemaTitle": "system.Model", "schemaVersion": "0.0.1"},
            "uri": "simulated://a/model",
            "metadata": {"framework": "none"},
        }
    }
