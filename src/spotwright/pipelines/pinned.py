"""Components from addresses, with their texts checked. Runs where ``kfp`` may be imported.

The SDK takes whatever an address gives (``load_component_from_url``; kfp 1 had ``ComponentReference.digest`` for it). Here the
address may say what its text must be, ``https://host/component.yaml#sha256=HEX``: what follows ``#`` is never sent, so the SDK
loads the same address without looking. A commit in an address pins the text as well, but what a commit holds cannot be seen from
one file: that is compared from run to run (:mod:`spotwright.runs.pins`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from spotwright.errors import PipelineError

__all__ = ["Loaded", "checked"]

_COMMIT = re.compile(r"[/=@]([0-9a-f]{40}|[0-9a-f]{64})(?=[/?&]|$)")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(slots=True)
class Loaded:
    """The texts that were loaded, by address and digest: those whose address names a commit, and those with nothing at all."""

    commits: dict[str, str] = field(default_factory=dict)
    loose: dict[str, str] = field(default_factory=dict)


@contextmanager
def checked() -> Iterator[Loaded]:
    """Let ``load_component_from_url`` check digests and tell what it loaded, while the block runs."""
    from kfp import components
    from kfp.components import load_yaml_utilities as module

    theirs, read = module.load_component_from_url, module.load_component_from_text
    loaded, current = Loaded(), [""]

    def from_url(url: Any, *args: Any, **options: Any) -> Any:
        current[0] = str(url)
        try:
            return theirs(str(url).partition("#")[0] if isinstance(url, str) else url, *args, **options)
        finally:
            current[0] = ""

    def from_text(text: str) -> Any:
        if current[0]:
            _check(current[0], text, loaded)
        return read(text)

    try:
        module.load_component_from_url = components.load_component_from_url = from_url
        module.load_component_from_text = from_text
        yield loaded
    finally:
        module.load_component_from_url = components.load_component_from_url = theirs
        module.load_component_from_text = read


def _check(url: str, text: str, loaded: Loaded) -> None:
    """Compare a text with what its address says of it. Raises :class:`PipelineError`."""
    address, _, said = url.partition("#")
    found = hashlib.sha256(text.encode("utf-8")).hexdigest()
    if said.startswith("sha256"):
        wanted = said[len("sha256=") :]
        if said[6:7] not in ("=", ":") or not _DIGEST.fullmatch(wanted):
            raise PipelineError(f"{address}: expected #sha256= and 64 hexadecimal digits after it, found #{said}")
        if wanted.lower() != found:
            raise PipelineError(
                f"{address}: its text has the sha256 {found}, and the pipeline pins {wanted.lower()}: it has changed"
            )
    else:
        (loaded.commits if _COMMIT.search(address) else loaded.loose)[address] = found
