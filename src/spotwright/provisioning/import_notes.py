"""What to say beside pools that were read off nodes: labels of the past, and clouds that are not known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.clouds.providers import past_forms
from spotwright.provisioning.checks.ground import labels_of

__all__ = ["notes_on"]

_CLOUDS = ("azure", "gce", "aws")


def notes_on(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The notes on the nodes of one pool, each once."""
    told: set[str] = set()
    for node in nodes:
        for form in past_forms(labels_of(node)):
            text = f"{form.key}: {form.today}"
            if text not in told:
                told.add(text)
                yield text
        cloud, colon, _ = str((node.get("spec") or {}).get("providerID") or "").partition("://")
        if colon and cloud not in _CLOUDS and cloud not in told:
            told.add(cloud)
            yield (
                f"providerID {cloud}://: a cloud that Spotwright does not know: write the labels and taints that mark "
                "spot there"
            )
