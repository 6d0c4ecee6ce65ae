"""Brings the control plane of a test bed back where a test has ended processes of it."""

from __future__ import annotations

from testbed.control import control_plane
from testbed.control import controllers as bed_controllers
from testbed.control.api import Api
from testbed.machine.processes import Processes, wait_until
from testbed.settings import Settings

__all__ = ["bring_back", "serves"]

_SERVES = 180.0  # seconds, on a busy machine


def serves(bed: Settings) -> None:
    """Wait until the API server answers."""
    wait_until(Api(bed).ready, "the API server", _SERVES)


def bring_back(bed: Settings) -> None:
    """Start what has ended, in the order in which it is needed, and the controllers that need it."""
    processes = Processes(bed)
    for name in reversed(control_plane.END_ORDER):
        if processes.pid(name) is None:
            control_plane.restart(bed, name)
    serves(bed)
    for name in set(bed.controllers).intersection(processes.names()):
        if processes.pid(name) is None:
            bed_controllers.run_again(bed, name)
