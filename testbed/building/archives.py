"""Writes image archives (the format that `ctr images import` reads) without a builder, a daemon or a registry.

An image has one uncompressed layer, which is the fastest where nothing is sent over a network. The same content gives the
same archive, because no time of this machine enters it.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Image", "write_archive"]

_EPOCH = "2020-01-01T00:00:00Z"
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its name with a tag, the folder that is its root, or single files for an otherwise empty root."""

    name: str
    root: Path | None = None
    files: Mapping[str, Path] = field(default_factory=dict)  # path in the image -> file
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    workdir: str = "/"


def write_archive(image: Image, target: Path) -> None:
    """Write the archive of an image; ``target`` is complete or absent."""
    layer = target.with_suffix(".layer")
    partial = target.with_suffix(".partial")
    try:
        _write_layer(image, layer)
        with layer.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        config = json.dumps(_config(image, digest)).encode()
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = [{"Config": config_name, "RepoTags": [image.name], "Layers": [f"{digest}/layer.tar"]}]
        with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as archive:
            _add_bytes(archive, config_name, config)
            _add_bytes(archive, "manifest.json", json.dumps(manifest).encode())
            archive.add(layer, arcname=f"{digest}/layer.tar")
        partial.rename(target)
    finally:
        layer.unlink(missing_ok=True)
        partial.unlink(missing_ok=True)


def _write_layer(image: Image, target: Path) -> None:
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as layer:
        if image.root is not None:
            layer.add(image.root, arcname=".", filter=_as_root)
        else:
            for folder, mode in (("etc", 0o755), ("tmp", 0o1777), ("var", 0o755), ("var/run", 0o755)):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, mode
                layer.addfile(entry)
            _add_bytes(layer, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
        for place, path in image.files.items():
            layer.add(path, arcname=place.lstrip("/"), filter=_as_root)


def _config(image: Image, layer_digest: str) -> dict[str, object]:
    return {
        "architecture": _PROCESSORS.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": _EPOCH,
        "config": {
            "Entrypoint": list(image.entrypoint) or None,
            "Cmd": list(image.command) or None,
            "Env": [f"{name}={value}" for name, value in image.environment.items()],
            "WorkingDir": image.workdir,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        "history": [{"created": _EPOCH, "created_by": "spotwright test bed"}],
    }


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))
