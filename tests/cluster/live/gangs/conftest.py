"""Fixtures for gangs on the test bed: a controller with a checkpointing policy, the volume of their saves, a table of faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from testbed.settings import Settings
from tests.cluster.live.admission.claimed_folders import POOLS, claimed_folder
from tests.cluster.live.controllers import Controller, controller
from tests.cluster.live.idle_autoscaler import idle_autoscaler
from tests.cluster.live.kube import Kube

CONFIGURATION = {
    "version": 1,
    "target": {"kubernetes": "1.35", "trainer": "2.2"},
    "pools": POOLS,
    "policy": {
        "default": {
            "spot": "prefer",
            "checkpoint": "pvc://saves",
            "fall_back_after": 1,
            "interruptions": {"max": 3},
            "errors": {"retries": 1},
        }
    },
}


class Taken(NamedTuple):
    """The cost of a fault: steps that are done again, and the seconds from the fault to the first step after."""

    steps: int
    seconds: float


Compared = Callable[[str, str, Taken], None]
"""Notes the cost of a fault for a training, by its way of saving: the table of all is shown at the end of the suite."""

_COSTS = pytest.StashKey[dict[str, dict[str, Taken]]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show the cost of faults, in a row for each fault and a column for each way of saving."""
    costs = config.stash.get(_COSTS, {})
    if not costs:
        return
    ways = list(dict.fromkeys(way for row in costs.values() for way in row))
    terminalreporter.section("steps lost, and seconds from the last step before the fault to the first one after it")
    terminalreporter.write_line(" | ".join([f"{'fault':<48}", *(f"{way:<24}" for way in ways)]))
    for fault, row in costs.items():
        cells = (f"{row[way].steps} steps, {row[way].seconds:.1f} s" if way in row else "-" for way in ways)
        terminalreporter.write_line(" | ".join([f"{fault:<48}", *(f"{cell:<24}" for cell in cells)]))


@pytest.fixture
def compared(pytestconfig: pytest.Config) -> Compared:
    """Notes the cost of a fault for the end of the suite."""
    costs = pytestconfig.stash.setdefault(_COSTS, {})

    def note(fault: str, way: str, taken: Taken) -> None:
        costs.setdefault(fault, {})[way] = taken

    return note


@pytest.fixture
def leader(bed: Settings, kube: Kube, tmp_path: Path, namespace: str) -> Iterator[Controller]:
    """A controller that places and watches the namespace of the test, and sends each attempt to one pool."""
    config = yaml.safe_dump(CONFIGURATION)
    with idle_autoscaler(kube, config), controller(kube, bed, tmp_path, config) as made:
        made.enable(namespace)
        yield made


@pytest.fixture
def saves(kube: Kube, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """A folder that all nodes see, as the volume of the claim ``saves``."""
    with claimed_folder(kube, namespace, tmp_path / "saves") as folder:
        yield folder
