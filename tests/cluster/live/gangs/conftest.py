"""Fixtures for gangs on the test bed: a controller with a checkpointing policy, and the volume in which they save."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from testbed.settings import Settings
from tests.cluster.live.admission.claimed_folders import POOLS, claimed_folder
from tests.cluster.live.controllers import Controller, controller
from tests.cluster.live.idle_autoscaler import idle_autoscaler
from tests.cluster.live.kube import Kube

CONFIGURATION = {
    "version": 1,
    "target": {"kubernetes": "1.35", "trainer": "2.1"},
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
