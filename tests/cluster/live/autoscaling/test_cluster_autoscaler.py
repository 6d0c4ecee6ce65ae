"""On the test bed: where nodes are ordered, a namespace with the controller is never slower nor dearer than one without it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from testbed.settings import Settings
from tests.cluster.conftest import Measured
from tests.cluster.live.autoscaling.autoscaled import autoscaled
from tests.cluster.live.autoscaling.recurring_cases import SITUATIONS, Situation
from tests.cluster.live.autoscaling.requests import Requests
from tests.cluster.live.autoscaling.scenarios import Outcome, play
from tests.cluster.live.kube import Kube

pytestmark = pytest.mark.cluster


def both(kube: Kube, api: Requests, bed: Settings, folder: Path, situation: Situation) -> tuple[Outcome, Outcome]:
    """The result of a situation without the controller, and then with it."""
    outcomes = []
    for controlled in (False, True):
        with autoscaled(kube, api, folder, situation):
            outcomes.append(play(kube, bed, folder, situation.case, controlled=controlled))
    return outcomes[0], outcomes[1]


def is_as_fast(beside: Outcome, alone: Outcome) -> bool:
    """Whether the run with the controller was at most a tenth and five seconds slower."""
    return alone.seconds is not None and beside.seconds is not None and beside.seconds <= 1.1 * alone.seconds + 5


def count(made: Mapping[str, int], *, by_group: bool) -> Mapping[str, int]:
    """The nodes that were made, by group or all together."""
    return dict(made) if by_group else {"all": sum(made.values())}


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_controller_costs_no_time_no_node_and_no_pod(
    kube: Kube, api: Requests, bed: Settings, tmp_path: Path, measured: Measured, name: str
) -> None:
    situation = SITUATIONS[name]
    alone, beside = both(kube, api, bed, tmp_path, situation)
    measured(f"{name}: without the controller", alone.seconds or -1.0)
    measured(f"{name}: with it", beside.seconds or -1.0)
    assert situation.runs_on is None or alone.running == situation.runs_on, alone.text()
    assert is_as_fast(beside, alone), beside.text()
    assert count(beside.made, by_group=situation.keeps) == count(alone.made, by_group=situation.keeps), beside.text()
    assert beside.taken_back == alone.taken_back == 0, beside.text()
    if situation.keeps:
        assert beside.running == alone.running, beside.text()
