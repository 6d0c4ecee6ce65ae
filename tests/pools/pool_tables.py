"""The pools of the tables beside the tests, and the requests for their tools."""

from __future__ import annotations

from pathlib import Path

from spotwright.config import Config
from spotwright.pools.request import Request

HERE = Path(__file__).parent


TABLES = {
    "az": "aks",
    "gcloud": "gke",
    "aws": "eks",
    "eksctl": "eks",
    "karpenter": "karpenter",
    "generic": "generic",
}


def request_for(config: Config, pool: str) -> Request:
    return Request(config.pools[pool], config.pools, config.currency)
