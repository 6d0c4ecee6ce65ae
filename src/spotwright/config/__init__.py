"""``spotwright.yaml``: read with the line of every value, checked as a whole, and said once for every layer above.

A configuration that is wrong is refused before anything starts, with everything that is wrong in it at once. Pools and policies
come out as values of the model; who asks for a task's policy layers (:meth:`Config.layers_for`) never sees YAML.
"""

from __future__ import annotations

from spotwright.config.loading import FILE_NAME, built_in, find, load, parse
from spotwright.config.settings import Config
from spotwright.config.traces import load_trace

__all__ = ["FILE_NAME", "Config", "built_in", "find", "load", "load_trace", "parse"]
