"""Inputs of an attempt that lie in a cloud: each is fetched once for the run, and is where pods have it (``/gcs``, ``/s3``)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.pipelines.remote import CLUSTERS_OWN, path_of

__all__ = ["Remote", "remote_inputs"]

_FETCH = Path(__file__).with_name("fetch.py")


class Remote(NamedTuple):
    """The commands that fetch, and the folders to be mounted, as :func:`spotwright.local.mounts.enter` takes them."""

    fetches: tuple[tuple[str, ...], ...]
    mounts: tuple[Mapping[str, Any], ...]


def remote_inputs(given: Mapping[str, Any], folder: Path) -> Remote:
    """What has to be fetched for an executor input into ``folder``, which the run keeps; makes the folders that are mounted.

    Fetching what only a cluster brings says so in the attempt's log, and nothing more.
    """
    fetches: list[tuple[str, ...]] = []
    mounts: dict[str, Mapping[str, Any]] = {}
    for entry in given["inputs"]["artifacts"].values():
        for artifact in entry["artifacts"]:
            uri = str(artifact.get("uri", ""))
            path = path_of(uri)
            if uri.startswith(CLUSTERS_OWN):
                fetches.append((sys.executable, "-P", str(_FETCH), uri, str(folder / "nothing")))
            if path == uri or ".." in path.split("/"):
                continue
            place, kept = folder / path.lstrip("/"), path.split("/")[1]
            if not place.exists():
                fetches.append((sys.executable, "-P", str(_FETCH), uri, str(place)))
            (folder / kept).mkdir(parents=True, exist_ok=True)
            mounts[kept] = {"target": f"/{kept}", "source": str(folder / kept), "optional": True}
    return Remote(tuple(dict.fromkeys(fetches)), tuple(mounts.values())) if fetches or mounts else _NOTHING


_NOTHING = Remote((), ())
