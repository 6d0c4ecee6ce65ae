"""Any other cluster: nothing is assumed but what the configuration says.

The notice is the shortest that one of the three clouds gives, so that nobody plans with time that may not be there.
"""

from __future__ import annotations

from spotwright.clouds.provider import Facts

__all__ = ["FACTS"]

FACTS = Facts(notice=30.0)
"""No label or taint but the user's own."""
