"""Remote inputs of an attempt: each is downloaded once per run and mounted at the path that pods use (``/gcs``, ``/s3``)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.kfp.values import CLUSTER_ONLY, path_of

__all__ = ["RemoteInputs", "remote_inputs"]

_FETCH = Path(__file__).parent / "supervisor" / "fetch.py"


class RemoteInputs(NamedTuple):
    """Download commands, and mounts as :func:`spotwright.local.supervisor.mounting.mounts.enter` takes them."""

    fetches: tuple[tuple[str, ...], ...]
    mounts: tuple[Mapping[str, Any], ...]


def remote_inputs(executor_input: Mapping[str, Any], below: str) -> RemoteInputs:
    """The downloads into ``below``, a folder of the run, that an executor input needs; makes the folders to mount.

    For an artifact that only a cluster can provide, the download command merely reports that in the attempt's log.
    """
    if not executor_input["inputs"]["artifacts"]:
        return _NONE
    fetches: list[tuple[str, ...]] = []
    mounts: dict[str, Mapping[str, Any]] = {}
    folder = Path(below)
    for entry in executor_input["inputs"]["artifacts"].values():
        for artifact in entry["artifacts"]:
            uri = str(artifact.get("uri", ""))
            path = path_of(uri)
            if uri.startswith(CLUSTER_ONLY):
                fetches.append((sys.executable, "-P", str(_FETCH), uri, str(folder / "nothing")))
            if path == uri or ".." in path.split("/"):
                continue
            target, root = folder / path.lstrip("/"), path.split("/")[1]
            if not target.exists():
                fetches.append((sys.executable, "-P", str(_FETCH), uri, str(target)))
            (folder / root).mkdir(parents=True, exist_ok=True)
            mounts[root] = {"target": f"/{root}", "source": str(folder / root), "optional": True}
    return RemoteInputs(tuple(dict.fromkeys(fetches)), tuple(mounts.values())) if fetches or mounts else _NONE


_NONE = RemoteInputs((), ())
