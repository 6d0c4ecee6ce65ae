"""The work between two checkpoints that costs the least time in all, for the forecast.

The checkpoint library has the same formula; training code imports that library into any environment, so it shares nothing with
the rest, and a test holds the two together. It is the exact optimum for losses at a constant rate ``h`` and saves of ``C``
seconds, ``T = (1 + W(-exp(-C h - 1))) / h`` with Lambert's function (J. T. Daly, "A higher order estimate of the optimum
checkpoint interval for restart dumps", FGCS 22, 2006; Young's ``sqrt(2 C / h)`` of 1974 is its first term).
"""

from __future__ import annotations

import math

__all__ = ["best_interval"]


def best_interval(save: float, rate: float) -> float:
    """Seconds of work between two saves of ``save`` seconds each, with ``rate`` losses a second; infinite without losses."""
    if rate <= 0:
        return math.inf
    if save <= 0:
        return 0.0
    x = save * rate
    if x > 30:
        return 1 / rate  # y differs from 1 by less than the precision of a float
    # With y = 1 + W(-exp(-x - 1)): y solves y + log1p(-y) = -x. Newton's method from Young's term.
    y = min(math.sqrt(2 * x), 1 - 0.5 * math.exp(-x - 1))
    for _ in range(60):
        step = (y + math.log1p(-y) + x) * (1 - y) / y
        y += step
        if abs(step) <= 1e-14 * y:
            break
    return y / rate
