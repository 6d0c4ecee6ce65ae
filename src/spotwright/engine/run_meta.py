"""How a run was started: the data of its first event, for every later engine and view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ON_KFP", "RunMeta"]

ON_KFP = "KFP run"
"""The orchestrator of a run that was started on Kubeflow Pipelines from here."""


@dataclass(frozen=True, slots=True)
class RunMeta:
    """How a run was started. Arguments hold references to secrets, never the secrets."""

    run: str = ""
    pipeline: str = ""
    source: str | None = None  # the user's file, where there is one
    config: str = ""  # the configuration that was used: its path, or a name for the built-in one
    arguments: Mapping[str, Any] = field(default_factory=dict)  # every parameter with its value
    given: Mapping[str, Any] = field(default_factory=dict)  # the arguments as the user gave them
    textual: bool = False  # arguments came as texts, from a command line
    seed: int = 0
    time_scale: float = 1.0  # how many times faster the waits of simulated pools pass
    cache: str = "auto"  # auto | on | off
    orchestrator: str = (
        ""  # the kind of object whose controller makes the attempts, such as Job; empty: an engine makes them
    )
    containers: str = "auto"  # which runtime executes container components
