"""Recorded traces read from files: ``{"metadata": {"gap_seconds": 300}, "data": [4, 4, 3, ...]}``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from spotwright.config.files import read_text
from spotwright.errors import ConfigError
from spotwright.model.traces import Trace

__all__ = ["load_trace"]

MAX_BYTES = 100_000_000  # 45 days in steps of 195 s are 60 kB
MAX_GAP = 366 * 86400  # seconds


def load_trace(path: str | Path) -> Trace:
    """Read a recorded trace. Raises :class:`ConfigError` that names the file and what it must hold."""
    text = read_text(path, MAX_BYTES)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise ConfigError(f"{path}: not a trace: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f'{path}: expected {{"metadata": {{"gap_seconds": n}}, "data": [counts]}}')
    return Trace(_gap(document, path), _counts(document, path))


def _gap(document: dict[str, Any], path: str | Path) -> float:
    metadata = document.get("metadata")
    gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0 < gap <= MAX_GAP or math.isnan(gap):
        raise ConfigError(f"{path}: metadata.gap_seconds: expected the seconds between two counts, more than 0")
    return float(gap)


def _counts(document: dict[str, Any], path: str | Path) -> tuple[int, ...]:
    data = document.get("data")
    if not isinstance(data, list) or not data:
        raise ConfigError(f"{path}: data: expected a list of how many nodes could be had, one count or more")
    for index, count in enumerate(data):
        if type(count) is not int or count < 0:
            raise ConfigError(
                f"{path}: data[{index}]: expected a whole number, 0 or more, found {json.dumps(count)[:60]}"
            )
    return tuple(data)
