"""Find the field of a manifest that contradicts the policy, so that a refusal names its line."""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.manifests.rules.context import PlaceContext
from spotwright.manifests.rules.pod_spec import REQUIRED_TERMS
from spotwright.manifests.yamltext.documents import MISSING, Path

__all__ = ["conflicting_path"]


def conflicting_path(ctx: PlaceContext, spec: Path, refusals: Mapping[str, str]) -> Path:
    """The field of a pod spec for which its pools were refused; the pod spec itself if it is no single field."""
    reasons = " ".join(refusals.values())
    for key in ctx.editor.get((*spec, "nodeSelector")) or ():
        if f"node selector asks for {key}=" in reasons:
            return (*spec, "nodeSelector", key)
    if "required node affinity" in reasons:
        return (*spec, *REQUIRED_TERMS)
    if (
        "it asks for" in reasons and ctx.editor.document.get((*spec, "containers")) is not MISSING
    ):  # else Spark's requests
        for index, container in enumerate(ctx.editor.get((*spec, "containers")) or ()):
            if isinstance(container, dict) and container.get("resources"):
                return (*spec, "containers", index, "resources")
    return spec
