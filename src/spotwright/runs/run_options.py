"""The options of a new run: one object for planning it, one for running it on this machine.

The command line, the Python API and rehearsals create both and pass them to :func:`spotwright.runs.runner.prepare`. Names of
new runs are made here, because the command line needs one before it has imported the engine.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from spotwright.errors import InputError
from spotwright.records.state_folder import STATE_NAME

__all__ = [
    "CACHE_MODES",
    "CONTAINER_MODES",
    "ConfigSource",
    "PlanOptions",
    "RunOptions",
    "config_option",
    "new_name",
]


CACHE_MODES = ("auto", "on", "off")
"""``auto``: use earlier results as KFP does, except in a run whose nodes may be reclaimed, which shows the effect of
interruptions."""

CONTAINER_MODES = ("auto", "podman", "docker", "host")
"""The runtime of container components; ``auto``: podman, else docker; ``host``: processes of this machine."""


ConfigSource = str | Path | Mapping[str, Any]
"""A configuration in the Python API: the path of a ``spotwright.yaml``, or a mapping in its shape."""


def config_option(config: ConfigSource | None) -> Path | Mapping[str, Any] | None:
    """A configuration for another process: an absolute path or a mapping."""
    return config if config is None or isinstance(config, Mapping) else Path(config).absolute()


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options that decide the plan of a run: arguments, pools and policy. Durations are seconds.

    ``arguments`` are strings from a command line if ``textual`` is set, else Python values; ``@env:VAR`` and ``@file:PATH`` are
    references in both. ``config`` is a file or a mapping in its shape; without one it is searched from the pipeline's file, or
    from ``folder`` (default: the current one) if the pipeline has none; ``shared_config``: patterns of its ``policy.tasks`` may
    match no task. ``interrupt_every`` overrides every spot pool's ``simulate``. ``policy`` is in the shape of
    ``policy.default`` and overrides the configuration and the pipeline.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    textual: bool = False
    config: Path | Mapping[str, Any] | None = None
    folder: Path | None = None
    interrupt_every: float | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    shared_config: bool = False

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        if self.interrupt_every is not None and self.interrupt_every <= 0:
            raise InputError(
                f"--interrupt-every {self.interrupt_every:g}s: expected a duration above 0, for example 20s"
            )

    def to_data(self) -> dict[str, Any]:
        """The options as plain data for another process, if the arguments are plain data."""
        return _plain(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> PlanOptions:
        """The options from the result of :meth:`to_data`."""
        config = data["config"]  # a mapping is plain data already
        return cls(**{**_with_paths(data, "folder"), "config": Path(config) if isinstance(config, str) else config})


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a planned run is executed on this machine.

    ``seed`` decides every simulated interruption (``None``: drawn). ``time_scale`` speeds up simulated waits by this factor.
    ``state`` is the state folder, ``name`` the run's (``None``: drawn from the pipeline's). ``forecast`` is the output of
    ``spotwright plan --json`` to store beside the run; empty: none.
    """

    seed: int | None = None
    time_scale: float = 1.0
    cache: str = "auto"
    containers: str = "auto"
    state: Path = Path(STATE_NAME)
    name: str | None = None
    forecast: str = ""

    def __post_init__(self) -> None:
        """Refuse values that are invalid for a run."""
        if not 0 < self.time_scale < math.inf:
            raise InputError(f"--time-scale {self.time_scale:g}: expected a number above 0, for example 60")
        if self.cache not in CACHE_MODES:
            raise InputError(f"cache {self.cache!r}: expected one of {', '.join(CACHE_MODES)}")
        if self.containers not in CONTAINER_MODES:
            raise InputError(f"containers {self.containers!r}: expected one of {', '.join(CONTAINER_MODES)}")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise InputError(f"--seed {self.seed}: expected a whole number from 0")

    def to_data(self) -> dict[str, Any]:
        """The options as plain data for another process."""
        return _plain(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> RunOptions:
        """The options from the result of :meth:`to_data`."""
        return cls(**_with_paths(data, "state"))


def _plain(options: PlanOptions | RunOptions) -> dict[str, Any]:
    values = {each.name: getattr(options, each.name) for each in fields(options)}
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def _with_paths(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {**data, name: None if data[name] is None else Path(data[name])}


_LETTERS = "abcdefghjkmnpqrstvwxyz23456789"


def new_name(pipeline: str) -> str:
    """A short name: the pipeline's with five random letters."""
    slug = re.sub(r"[^a-z0-9]+", "-", pipeline.lower()).strip("-")[:40] or "run"
    return f"{slug}-{''.join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(5))}"
