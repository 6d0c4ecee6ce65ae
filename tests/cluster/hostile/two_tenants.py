"""One cluster with two tenants and a controller: the quiet one's history, and the deeds of the other one in between."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster.hostile.cluster_server import ClusterServer
from tests.cluster.hostile.controller_parts import Clock, Cost, Loop, Parts, serve, warm
from tests.cluster.hostile.hostile_tenant import Deed, HostileTenant
from tests.cluster.hostile.quiet_tenant import QuietTenant, furnish

from spotwright.cluster import descheduler, spot_pools, view, watcher

STEPS = 9
"""Steps of the quiet tenant's history, between which deeds are done."""


class Played(NamedTuple):
    """The results of a history. ``costs`` are those of the deeds that an API server admits.

    ``defects`` are the exceptions that the controller caught as its own defects and logged.
    """

    facts: Mapping[str, Any]
    asked: frozenset[str]
    costs: Sequence[tuple[Deed, Cost]]
    defects: Sequence[str]


_WAITS = (
    (view, "_SETTLING", 0.05),
    (watcher, "_PAUSE", 0.02),
    (descheduler, "_PAUSE", 0.02),
    (spot_pools, "_SOON", 0.02),
)
"""Waits of the controller that are shorter here, because here nothing comes late."""


class Defects(logging.Handler):
    """The log entries with an exception: code of ours failed and something was skipped."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            places = [f"{Path(each.filename).name}:{each.lineno}" for each in traceback.extract_tb(error.__traceback__)]
            self.said.append(
                f"{record.getMessage()[:200]}: {type(error).__name__}: {str(error)[:200]} at {' '.join(places[-3:])}"
            )


class Stage:
    """The threads in which histories are played one after the other."""

    def __init__(self) -> None:
        self.api, self.answering, self.watching = (Loop(name) for name in ("api server", "answering", "watching"))
        warm()
        self._defects = Defects()
        logging.getLogger("spotwright").addHandler(self._defects)
        for module, name, seconds in _WAITS:
            assert getattr(module, name) > seconds, f"{name} has gone from {module}"
            setattr(module, name, seconds)

    def play(self, deeds: Sequence[tuple[int, Deed]] = ()) -> Played:
        """Play the quiet history; each deed is done after the step of its number."""
        with (
            tempfile.TemporaryDirectory() as folder,
            Clock.in_force(),
            self._controller(Path(folder)) as (server, parts),
        ):
            self._defects.said.clear()
            quiet = QuietTenant(parts, server, lambda where, made: parts.on_server(lambda: server.add(where, made)))
            hostile = HostileTenant(parts, server)
            costs: list[tuple[Deed, Cost]] = []
            for number, _ in enumerate(quiet.steps()):
                for _, deed in (each for each in deeds if each[0] == number):
                    cost = hostile.do(deed)
                    if cost is not None:
                        costs.append((deed, cost))
            parts.settle()
            assert not parts.ended()
            return Played(quiet.facts(), frozenset(server.asked), costs, tuple(self._defects.said))

    @contextlib.contextmanager
    def _controller(self, folder: Path) -> Iterator[tuple[ClusterServer, Parts]]:
        server = ClusterServer()
        furnish(server)
        runner = self.api.do(serve(server))
        parts = Parts(folder, server, self.api, self.answering, self.watching)
        try:
            parts.begin()
            yield server, parts
        finally:
            parts.end()
            self.api.call(server.end)
            self.api.do(runner.cleanup())
