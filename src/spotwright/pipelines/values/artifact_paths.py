"""The path of a cloud's artifact in a pod: ``gs://bucket/data`` is at ``/gcs/bucket/data``.

Source: ``LocalPathForURI`` in ``backend/src/v2/component/launcher_v2.go`` of kubeflow/pipelines; the SDK's ``Artifact.path``
does the same.
"""

from __future__ import annotations

__all__ = ["CLUSTER_ONLY", "RELATIVE", "is_relative", "path_of"]

_FOLDERS = {"gs://": "/gcs", "s3://": "/s3", "minio://": "/minio"}
"""The folder of each kind of address."""

CLUSTER_ONLY = ("oci://", "huggingface://")
"""Addresses that only a pod can reach: from a container beside it (models in images) or through its launcher."""


RELATIVE = (
    "is a relative path, which names no file in a pod: write an absolute path or an address such as gs://BUCKET/FILE"
)
"""Why a relative path cannot be imported, with the ways out."""


def is_relative(uri: str) -> bool:
    """Whether an artifact's address is a path whose meaning depends on the current folder."""
    return "://" not in uri and not uri.startswith("/")


def path_of(uri: str) -> str:
    """The path of an artifact by its address; any other address is its own path, as in the SDK."""
    for scheme, folder in _FOLDERS.items():
        if uri.startswith(scheme):
            return f"{folder}/{uri.removeprefix(scheme)}"
    return uri
