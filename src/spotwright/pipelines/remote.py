"""Where an artifact of a cloud lies in a pod: ``gs://bucket/data`` is at ``/gcs/bucket/data``.

Source: ``LocalPathForURI`` in ``backend/src/v2/component/launcher_v2.go`` of kubeflow/pipelines; the SDK's
``Artifact.path`` says the same.
"""

from __future__ import annotations

__all__ = ["CLUSTERS_OWN", "path_of"]

_FOLDERS = {"gs://": "/gcs", "s3://": "/s3", "minio://": "/minio"}
"""The folder of each kind of address."""

CLUSTERS_OWN = ("oci://", "huggingface://")
"""What a pod gets from a container beside it (models in images) or from its launcher, and this machine does not."""


def path_of(uri: str) -> str:
    """The path of an artifact by its address; an address of no known cloud is its own path, as for the SDK."""
    for scheme, folder in _FOLDERS.items():
        if uri.startswith(scheme):
            return f"{folder}/{uri.removeprefix(scheme)}"
    return uri
