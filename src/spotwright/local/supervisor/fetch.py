"""Download a remote artifact to this machine, as the KFP launcher does before it starts the user's code.

An attempt's main process executes this script with the interpreter in which Spotwright is installed, because the task's own
interpreter need not have the libraries. ``fetch.py URI PATH`` exits with 0 once PATH exists and is complete.
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
"""By URI scheme: the module that downloads it, and the extra of Spotwright that installs the module."""

_ENDPOINTS = {"gs": ("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com")}
_S3 = ("AWS_ENDPOINT_URL", "https://s3.amazonaws.com")
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_CONNECT_TIMEOUT = 5.0


class _Unavailable(Exception):
    """The artifact cannot be downloaded; the message is one line."""


def main(uri: str, path: str) -> int:
    """Download ``uri`` to ``path``, which need not exist. Returns the exit code."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch(uri, partial)
        with contextlib.suppress(OSError):  # another attempt was faster
            partial.rename(target)
    except Exception as error:  # noqa: BLE001 (cloud clients may raise anything)
        print(f"spotwright: {uri} cannot be fetched: {_one_line(error)}", file=sys.stderr)  # noqa: T201
        return 1
    finally:
        _remove(partial)
    return 0


def _fetch(uri: str, target: Path) -> None:
    scheme = urlsplit(uri).scheme
    if scheme not in EXTRAS:
        raise _Unavailable(f"{scheme}:// is available on a cluster only; import a copy in a folder or a bucket here")
    module, extra = EXTRAS[scheme]
    try:
        importlib.import_module(module)
        core = importlib.import_module("fsspec.core")
    except ImportError as error:
        raise _Unavailable(f"install spotwright[{extra}] in Spotwright's environment") from error
    variable, host = _ENDPOINTS.get(scheme, _S3)
    endpoint = os.environ.get(variable) or host
    _check_reachable(endpoint)
    options = {"endpoint_url": endpoint} if module == "s3fs" and os.environ.get(variable) else {}
    system, remote = core.url_to_fs(uri.replace("minio://", "s3://", 1), **options)
    if system.isfile(remote):
        system.get_file(remote, str(target))
    elif system.isdir(remote):
        target.mkdir()
        system.get(f"{remote.rstrip('/')}/", f"{target}/", recursive=True)
    else:
        raise _Unavailable("it does not exist")


def _check_reachable(endpoint: str) -> None:
    """Raise if the endpoint cannot be reached: without a network the cloud clients retry for minutes."""
    if any(os.environ.get(proxy) for proxy in _PROXIES):
        return
    parts = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((str(parts.hostname), port), _CONNECT_TIMEOUT).close()
    except OSError as error:
        raise _Unavailable(f"{parts.hostname} cannot be reached ({error})") from error


def _one_line(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0]
    return text if isinstance(error, _Unavailable) else f"{type(error).__name__}: {text}"


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
