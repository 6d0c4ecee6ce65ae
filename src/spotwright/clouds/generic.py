"""Any other cluster: nothing is assumed beyond the configuration.

The notice is the shortest one of the three clouds, so that no plan relies on time that may be missing.
"""

from __future__ import annotations

from spotwright.clouds.provider import Facts

__all__ = ["FACTS"]

FACTS = Facts(notice=30.0)
"""Generic: 30 s notice; sets neither labels nor taints."""
