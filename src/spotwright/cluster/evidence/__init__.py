"""Translates the last states of a pod, its node and its owners into the signals that the classifier judges.

Pure functions on objects as the API writes them. :mod:`spotwright.scheduling.cause` alone decides what the signals mean.
"""

from __future__ import annotations

from spotwright.cluster.evidence.signals import LastSeen, signals_of

__all__ = ["LastSeen", "signals_of"]
