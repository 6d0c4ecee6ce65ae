"""Spotwright in training images: ``spotwright.checkpoint`` and ``spotwright.notices``, for the standard library alone.

The distribution ``spotwright-train`` installs this module and the folder ``spotwright_train`` beside it; the distribution
``spotwright`` installs the folder ``spotwright``. So they share no file, and neither needs the other. Where both are installed,
Python takes the folder, which it prefers to a module of the same name (PEP 420): all modules then come from one version.
"""

from __future__ import annotations

__path__ = [f"{__file__.removesuffix('spotwright.py')}spotwright_train"]  # which makes a package of this module

from spotwright.errors import SpotwrightError
from spotwright.version import __version__

__all__ = ["SpotwrightError", "__version__"]


def __getattr__(name: str) -> object:
    """Say where the public functions of Spotwright are."""
    if name.startswith("__"):
        raise AttributeError(f"module 'spotwright' has no attribute {name!r}")
    raise AttributeError(
        f"spotwright.{name}: only spotwright-train is installed, which has spotwright.checkpoint and spotwright.notices; "
        f"for all of Spotwright: pip install spotwright=={__version__}"
    )
