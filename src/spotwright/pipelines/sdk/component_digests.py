"""Check the digests of components that a pipeline loads from addresses. Runs where ``kfp`` may be imported.

The SDK accepts any text (``load_component_from_url``; kfp 1 had ``ComponentReference.digest`` for it). Here an address may pin
its text, ``https://host/component.yaml#sha256=HEX``: the part after ``#`` is never sent, so the SDK alone loads the same address
unchecked. A commit in an address pins the text too, but the text of a commit cannot be known from the address: it is compared
from run to run (:mod:`spotwright.runs.component_pins`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from spotwright.errors import PipelineError

__all__ = ["Downloads", "checked_downloads"]

_COMMIT = re.compile(r"[/=@]([0-9a-f]{40}|[0-9a-f]{64})(?=[/?&]|$)")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(slots=True)
class Downloads:
    """Digests of the loaded texts by address: of addresses that name a commit, and of those that pin nothing."""

    commits: dict[str, str] = field(default_factory=dict)
    unpinned: dict[str, str] = field(default_factory=dict)


@contextmanager
def checked_downloads() -> Iterator[Downloads]:
    """Let ``load_component_from_url`` check digests, and record what it loads, while the block runs."""
    from kfp import components
    from kfp.components import load_yaml_utilities as module

    load_url, load_text = module.load_component_from_url, module.load_component_from_text
    downloads, current = Downloads(), [""]

    def from_url(url: Any, *args: Any, **options: Any) -> Any:
        current[0] = str(url)
        try:
            return load_url(str(url).partition("#")[0] if isinstance(url, str) else url, *args, **options)
        finally:
            current[0] = ""

    def from_text(text: str) -> Any:
        if current[0]:
            _check(current[0], text, downloads)
        return load_text(text)

    try:
        module.load_component_from_url = components.load_component_from_url = from_url
        module.load_component_from_text = from_text
        yield downloads
    finally:
        module.load_component_from_url = components.load_component_from_url = load_url
        module.load_component_from_text = load_text


def _check(url: str, text: str, downloads: Downloads) -> None:
    """Compare a text with the digest in its address, or record it. Raises :class:`PipelineError` where they differ."""
    address, _, fragment = url.partition("#")
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    if fragment.startswith("sha256"):
        pinned = fragment[len("sha256=") :]
        if fragment[6:7] not in ("=", ":") or not _DIGEST.fullmatch(pinned):
            raise PipelineError(f"{address}: expected #sha256= and 64 hexadecimal digits after it, found #{fragment}")
        if pinned.lower() != digest:
            raise PipelineError(
                f"{address}: its text has the sha256 {digest}, and the pipeline pins {pinned.lower()}: it has changed"
            )
    else:
        (downloads.commits if _COMMIT.search(address) else downloads.unpinned)[address] = digest
