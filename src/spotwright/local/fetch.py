"""Brings what an artifact's address in a cloud stands for to this machine, as the KFP launcher does before it starts the code.

Executed by an attempt's main process as a program of its own, with the interpreter that Spotwright is installed in: the
task's own need not have the libraries. ``fetch.py URI PATH`` ends with 0 when PATH is there, whole.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["EXTRAS", "main"]

EXTRAS = {"gs": ("gcsfs", "gs"), "s3": ("s3fs", "s3"), "minio": ("s3fs", "s3")}
"""By the scheme of an address: the module that fetches it, and the extra of Spotwright that brings the module."""

_ENDPOINTS = {"gs": ("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com")}
_S3 = ("AWS_ENDPOINT_URL", "https://s3.amazonaws.com")
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_CONNECTS_WITHIN = 5.0


class _Unreachable(Exception):
    """It cannot be had; the text says why, in one line."""


def main(uri: str, path: str) -> int:
    """Fetch an address into a path that is not there yet."""
    place = Path(path)
    beside = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _fetch(uri, beside)
        with contextlib.suppress(OSError):  # another attempt was faster
            beside.rename(place)
    except Exception as error:  # noqa: BLE001 (a client's library may raise anything)
        print(f"spotwright: {uri} cannot be fetched: {_line(error)}", file=sys.stderr)  # noqa: T201
        return 1
    finally:
        _remove(beside)
    return 0


def _fetch(uri: str, place: Path) -> None:
    scheme = urlsplit(uri).scheme
    if scheme not in EXTRAS:
        raise _Unreachable(f"{scheme}:// is brought by a cluster only; import a copy in a folder or a bucket here")
    module, extra = EXTRAS[scheme]
    try:
        importlib.import_module(module)
        core = importlib.import_module("fsspec.core")
    except ImportError as error:
        raise _Unreachable(f"install spotwright[{extra}] beside Spotwright") from error
    variable, host = _ENDPOINTS.get(scheme, _S3)
    endpoint = os.environ.get(variable) or host
    _check_reachable(endpoint)
    options = {"endpoint_url": endpoint} if module == "s3fs" and os.environ.get(variable) else {}
    system, remote = core.url_to_fs(uri.replace("minio://", "s3://", 1), **options)
    if system.isfile(remote):
        system.get_file(remote, str(place))
    elif system.isdir(remote):
        place.mkdir()
        system.get(f"{remote.rstrip('/')}/", f"{place}/", recursive=True)
    else:
        raise _Unreachable("there is nothing")


def _check_reachable(endpoint: str) -> None:
    """The clients of clouds try for minutes; a machine without a network should not."""
    if any(os.environ.get(proxy) for proxy in _PROXIES):
        return
    parts = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((str(parts.hostname), port), _CONNECTS_WITHIN).close()
    except OSError as error:
        raise _Unreachable(f"{parts.hostname} cannot be reached ({error})") from error


def _line(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0]
    return text if isinstance(error, _Unreachable) else f"{type(error).__name__}: {text}"


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
