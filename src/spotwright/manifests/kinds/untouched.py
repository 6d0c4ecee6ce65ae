"""Kinds that have pods and are not placed: what serves, stores or is worked in must not vanish, and nobody would try it again."""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.manifests.context import Context, Level, name_of
from spotwright.manifests.kinds import Place

__all__ = ["KINDS"]

_SERVES = "it serves, and an interruption is an outage; keep it on on-demand"
_STORES = "it may keep data on a volume that is bound to a zone, and is often a datastore; keep it on on-demand"
_EVERYWHERE = "it runs on every node; where spot nodes need it, give it a toleration of their taint and nothing else"
_WORKED_IN = "somebody works in it, and what is not saved would be lost; keep it on on-demand"

_REASONS: Mapping[tuple[str, str], str] = {
    ("", "ReplicationController"): _SERVES,
    ("apps", "DaemonSet"): _EVERYWHERE,
    ("apps", "Deployment"): _SERVES,
    ("apps", "ReplicaSet"): _SERVES,
    ("apps", "StatefulSet"): _STORES,
    ("kubeflow.org", "Notebook"): _WORKED_IN,
    ("kubeflow.org", "PVCViewer"): _WORKED_IN,
    ("machinelearning.seldon.io", "SeldonDeployment"): _SERVES,
    ("serving.knative.dev", "Service"): _SERVES,
    ("serving.kserve.io", "ClusterServingRuntime"): _SERVES,
    ("serving.kserve.io", "InferenceService"): _SERVES,
    ("serving.kserve.io", "LLMInferenceService"): _SERVES,
    ("serving.kserve.io", "ServingRuntime"): _SERVES,
    ("tensorboard.kubeflow.org", "Tensorboard"): _WORKED_IN,
}


def _pass_through(ctx: Context) -> None:
    kind, api_version = str(ctx.get("kind")), str(ctx.get("apiVersion"))
    why = _REASONS[api_version.rpartition("/")[0], kind]
    if kind in ("Deployment", "ReplicaSet") and _has_claim(ctx):
        why = _STORES
    ctx.say(Level.WARNING, ctx.at("kind"), f"{kind} {name_of(ctx.get('metadata'))} passes through untouched: {why}")


def _has_claim(ctx: Context) -> bool:
    """Whether a Deployment keeps data, as those of MinIO and MySQL in Kubeflow do."""
    volumes = ctx.get("spec", "template", "spec", "volumes") or ()
    return any(isinstance(volume, dict) and volume.get("persistentVolumeClaim") for volume in volumes)


KINDS: Mapping[tuple[str, str], Place] = dict.fromkeys(_REASONS, _pass_through)
