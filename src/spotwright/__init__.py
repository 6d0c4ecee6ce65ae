"""Kubeflow work on spot capacity, as if no node were ever taken away.

``import spotwright as spot`` costs a few milliseconds: everything below is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spotwright.errors import SpotwrightError
    from spotwright.manifests.objects import place, unplace
    from spotwright.manifests.sdk_options import TrainJobOption
    from spotwright.pipelines.policies import defaults, never, prefer, require
    from spotwright.rehearsal.api import RehearsalReport, rehearse
    from spotwright.runs.api import Run, open_run, run

__all__ = [
    "RehearsalReport",
    "Run",
    "SpotwrightError",
    "TrainJobOption",
    "defaults",
    "never",
    "open_run",
    "place",
    "prefer",
    "rehearse",
    "require",
    "run",
    "unplace",
]

__version__ = "0.1.0"

_HOMES = {
    "RehearsalReport": "spotwright.rehearsal.api",
    "Run": "spotwright.runs.api",
    "SpotwrightError": "spotwright.errors",
    "TrainJobOption": "spotwright.manifests.sdk_options",
    "defaults": "spotwright.pipelines.policies",
    "never": "spotwright.pipelines.policies",
    "open_run": "spotwright.runs.api",
    "place": "spotwright.manifests.objects",
    "prefer": "spotwright.pipelines.policies",
    "rehearse": "spotwright.rehearsal.api",
    "require": "spotwright.pipelines.policies",
    "run": "spotwright.runs.api",
    "unplace": "spotwright.manifests.objects",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'spotwright' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted({*globals(), *__all__})
