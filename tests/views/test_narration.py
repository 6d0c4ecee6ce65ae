"""Sentences on what follows an attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.engine.builders import a_config, a_plan, a_pool, a_task
from tests.engine.driving import Run
from tests.engine.scripts import TAKEN, Behavior, scripted

from spotwright.engine.events import Event
from spotwright.engine.state import RunState
from spotwright.views.narration import Narrator

_DEADLINE = {
    "a": {"deadline": "2000s", "expected_duration": "100s", "checkpoint": "pvc://ckpt", "interruptions": {"backoff": 0}}
}


@pytest.mark.parametrize(
    ("tasks", "follows"),
    [(_DEADLINE, "the deadline decides the rung"), ({"a": {}}, "again anywhere that fits after 1s")],
)
def test_a_retry_that_waits_for_nothing_has_no_wait(tasks: dict[str, Any], follows: str) -> None:
    narrator, said = Narrator(), list[str]()

    def listen(state: RunState, events: Sequence[Event]) -> None:
        said.extend(sentence.text for sentence in narrator.narrate(state, events))

    config = a_config(a_pool(), a_pool("on-demand", spot=False), tasks=tasks)
    script = scripted({"a": [Behavior(50, TAKEN), Behavior(100)]})
    Run(a_plan([a_task("a")], config), script, observers=[listen]).start()
    [text] = [one for one in said if one.startswith("a: interruption 1")]
    assert text.endswith(follows)
