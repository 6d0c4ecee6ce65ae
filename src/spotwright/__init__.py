"""Kubeflow work on spot capacity, as if no node were ever reclaimed.

``import spotwright as spot`` costs a millisecond: everything below is imported on first use.
"""

from __future__ import annotations

from spotwright.version import __version__ as __version__

TYPE_CHECKING = False  # type checkers treat it as typing's, whose import would cost more than all the rest here
if TYPE_CHECKING:
    from typing import Any

    from spotwright.analysis import Answer, explain, lint, plan
    from spotwright.errors import SpotwrightError
    from spotwright.manifests.python_api import TrainJobOption, place, unplace
    from spotwright.policies import defaults, never, prefer, require
    from spotwright.rehearsal.api import RehearsalReport, rehearse
    from spotwright.runs.api import Run, open_run, run

__all__ = [
    "Answer",
    "RehearsalReport",
    "Run",
    "SpotwrightError",
    "TrainJobOption",
    "defaults",
    "explain",
    "lint",
    "never",
    "open_run",
    "place",
    "plan",
    "prefer",
    "rehearse",
    "require",
    "run",
    "unplace",
]


_HOMES = {
    "Answer": "spotwright.analysis",
    "RehearsalReport": "spotwright.rehearsal.api",
    "Run": "spotwright.runs.api",
    "SpotwrightError": "spotwright.errors",
    "TrainJobOption": "spotwright.manifests.python_api",
    "defaults": "spotwright.policies",
    "explain": "spotwright.analysis",
    "lint": "spotwright.analysis",
    "never": "spotwright.policies",
    "open_run": "spotwright.runs.api",
    "place": "spotwright.manifests.python_api",
    "plan": "spotwright.analysis",
    "prefer": "spotwright.policies",
    "rehearse": "spotwright.rehearsal.api",
    "require": "spotwright.policies",
    "run": "spotwright.runs.api",
    "unplace": "spotwright.manifests.python_api",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'spotwright' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted({*globals(), *__all__})
