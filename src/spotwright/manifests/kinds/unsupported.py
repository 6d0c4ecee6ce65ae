"""Kinds that have pods and are not placed: an interruption would hit users of services, datastores and notebooks."""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.manifests.kinds import PlaceObject
from spotwright.manifests.rules.context import Level, PlaceContext, name_of

__all__ = ["KINDS", "has_claim", "leave_unchanged"]

_SERVES = "it serves requests, so an interruption is an outage; keep it on on-demand"
_STORES = "it is often a datastore, and its volume may be bound to a zone; keep it on on-demand"
_EVERYWHERE = "it runs on every node; where spot nodes need it, give it a toleration of their taint and nothing else"
_INTERACTIVE = "it is used interactively, and unsaved work would be lost; keep it on on-demand"

_REASONS: Mapping[tuple[str, str], str] = {
    ("", "ReplicationController"): _SERVES,
    ("apps", "DaemonSet"): _EVERYWHERE,
    ("apps", "Deployment"): _SERVES,
    ("apps", "ReplicaSet"): _SERVES,
    ("apps", "StatefulSet"): _STORES,
    ("kubeflow.org", "Notebook"): _INTERACTIVE,
    ("kubeflow.org", "PVCViewer"): _INTERACTIVE,
    ("machinelearning.seldon.io", "SeldonDeployment"): _SERVES,
    ("ray.io", "RayService"): _SERVES,
    ("serving.knative.dev", "Service"): _SERVES,
    ("serving.kserve.io", "ClusterServingRuntime"): _SERVES,
    ("serving.kserve.io", "InferenceService"): _SERVES,
    ("serving.kserve.io", "LLMInferenceService"): _SERVES,
    ("serving.kserve.io", "ServingRuntime"): _SERVES,
    ("tensorboard.kubeflow.org", "Tensorboard"): _INTERACTIVE,
}


def leave_unchanged(ctx: PlaceContext, way_out: str = "") -> None:
    """Report that the object stays unchanged, with the reason and, if there is one, what makes it placed."""
    kind, api_version = str(ctx.get("kind")), str(ctx.get("apiVersion"))
    reason = _REASONS[api_version.rpartition("/")[0], kind]
    if kind in ("Deployment", "ReplicaSet") and has_claim(ctx):
        reason = _STORES
    text = f"{kind} {name_of(ctx.get('metadata'))} stays unchanged: {reason}"
    ctx.add_finding(Level.WARNING, ctx.at("kind"), f"{text}; {way_out}" if way_out else text)


def has_claim(ctx: PlaceContext) -> bool:
    """Whether a Deployment has a volume claim, as those of MinIO and MySQL in Kubeflow do."""
    volumes = ctx.get("spec", "template", "spec", "volumes") or ()
    return any(isinstance(volume, dict) and volume.get("persistentVolumeClaim") for volume in volumes)


_ASK_FOR_IT = frozenset({("apps", "Deployment"), ("ray.io", "RayService")})
"""Kinds that are placed where they ask for it, by modules of their own."""

KINDS: Mapping[tuple[str, str], PlaceObject] = dict.fromkeys(_REASONS.keys() - _ASK_FOR_IT, leave_unchanged)
