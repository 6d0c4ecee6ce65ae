"""Reads and checks ``spotwright.yaml``, keeping each value's line.

An invalid configuration is refused before anything starts, with all its problems at once. Pools and policies become values of
the model, so callers (of :meth:`Config.layers_for`, for example) never see YAML.
"""

from __future__ import annotations

from spotwright.config.loading import (
    FILE_NAME,
    Config,
    built_in,
    files_named_in,
    find,
    from_mapping,
    load,
    own_pools,
    parse,
    require_pools,
)
from spotwright.config.sections import load_trace

__all__ = [
    "FILE_NAME",
    "Config",
    "built_in",
    "files_named_in",
    "find",
    "from_mapping",
    "load",
    "load_trace",
    "own_pools",
    "parse",
    "require_pools",
]
