"""Which line of a manifest stands against the policy: a message that refuses names it beside the line of the policy."""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.manifests.context import Context
from spotwright.manifests.documents import Path
from spotwright.manifests.podspec import REQUIRED_TERMS

__all__ = ["blamed"]


def blamed(ctx: Context, spec: Path, refusals: Mapping[str, str]) -> Path:
    """What the user wrote in a pod spec for which its pools were refused; the pod spec itself where it is not one thing."""
    reasons = " ".join(refusals.values())
    for key in ctx.editor.get((*spec, "nodeSelector")) or ():
        if f"node selector asks for {key}=" in reasons:
            return (*spec, "nodeSelector", key)
    if "required node affinity" in reasons:
        return (*spec, *REQUIRED_TERMS)
    if "it asks for" in reasons:
        for index, container in enumerate(ctx.editor.get((*spec, "containers")) or ()):
            if isinstance(container, dict) and container.get("resources"):
                return (*spec, "containers", index, "resources")
    return spec
