"""Names of new runs. A light module: the command line needs a name before it has imported the engine."""

from __future__ import annotations

import os
import re

__all__ = ["new_name"]

_LETTERS = "abcdefghjkmnpqrstvwxyz23456789"


def new_name(pipeline: str) -> str:
    """A name that is short to type: that of the pipeline with five random letters."""
    slug = re.sub(r"[^a-z0-9]+", "-", pipeline.lower()).strip("-")[:40] or "run"
    return f"{slug}-{''.join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(5))}"
