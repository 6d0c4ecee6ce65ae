"""What a user may say when a run starts, in one value that the command line and the Python API share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from spotwright.errors import InputError

__all__ = ["CACHE_MODES", "CONTAINER_MODES", "DEFAULT_STATE", "RunOptions"]

DEFAULT_STATE = ".spotwright"
"""The state folder, in the current folder unless the user says otherwise."""

CACHE_MODES = ("auto", "on", "off")
"""``auto``: earlier results are used as KFP does, but not in a run whose nodes are taken, because it is there to be run."""

CONTAINER_MODES = ("auto", "podman", "docker", "host")
"""What container components run in; ``auto``: podman, else docker; ``host``: as processes of this machine."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run a pipeline. Durations are seconds.

    ``arguments`` are texts as typed on a command line where ``textual`` is set, else Python values; ``@env:VAR`` and
    ``@file:PATH`` are references in both. ``taken_every`` overrides every spot pool's ``simulate``; ``time_scale`` makes the
    waits of the simulated world pass that many times faster. ``policy`` is in the shape of ``policy.default`` and is stronger
    than anything that the configuration or the pipeline says.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    textual: bool = False
    config: Path | None = None
    seed: int | None = None
    taken_every: float | None = None
    time_scale: float = 1.0
    cache: str = "auto"
    containers: str = "auto"
    state: Path = Path(DEFAULT_STATE)
    name: str | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse values that no run can have."""
        if not 0 < self.time_scale < math.inf:
            raise InputError(f"--time-scale {self.time_scale:g}: expected a number above 0, for example 60")
        if self.taken_every is not None and self.taken_every <= 0:
            raise InputError(f"--taken-every {self.taken_every:g}s: expected a duration above 0, for example 20s")
        if self.cache not in CACHE_MODES:
            raise InputError(f"cache {self.cache!r}: expected one of {', '.join(CACHE_MODES)}")
        if self.containers not in CONTAINER_MODES:
            raise InputError(f"containers {self.containers!r}: expected one of {', '.join(CONTAINER_MODES)}")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise InputError(f"--seed {self.seed}: expected a whole number from 0")

    def to_data(self) -> dict[str, Any]:
        """The options as plain data, for another process; as far as the arguments are."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) if isinstance(value, Path) else value for name, value in said.items()}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> RunOptions:
        """The options from what :meth:`to_data` gave."""
        paths = {name: Path(data[name]) for name in ("config", "state") if data[name] is not None}
        return cls(**{**data, **paths})
