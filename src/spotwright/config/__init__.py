"""Reads ``spotwright.yaml``: every value with its line, checked as a whole, for all layers above.

A wrong configuration is refused before anything starts, with all its problems at once. Pools and policies become values of the
model; a caller that needs the policy layers of a task (:meth:`Config.layers_for`) never sees YAML.
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
