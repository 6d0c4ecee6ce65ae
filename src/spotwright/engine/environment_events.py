"""The events about the Python environments of tasks, which are prepared before an attempt is placed.

So no node is occupied, and no budget is spent, while packages are installed; see
:mod:`spotwright.engine.environment_transitions`.
"""

from __future__ import annotations

from collections.abc import Sequence

from spotwright.engine.events import Event

__all__ = ["EnvironmentAsked", "EnvironmentChanged"]


class EnvironmentAsked(Event, kw_only=True):
    """Decision: prepare the Python environment of a task. The world answers with EnvironmentChanged."""

    kind = "prepare"


class EnvironmentChanged(Event, kw_only=True):
    """Fact: the Python environment of a task is being built, is ready, or cannot be built.

    ``log`` is the name of the build's log in the run's folder. An environment without a build was there before.
    """

    kind = "environment"

    state: str  # building | ready | failed
    packages: Sequence[str] = ()  # without credentials
    log: str = ""
    why: str = ""
    last_lines: Sequence[str] = ()  # of the log
