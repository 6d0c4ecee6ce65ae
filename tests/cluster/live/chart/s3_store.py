"""A server that speaks S3, in the network of the control plane, where pods of the test bed reach it.

It is moto's, unless ``SPOTWRIGHT_TEST_VERSITYGW`` has the path of a Versity S3 Gateway, which keeps objects in a folder.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from testbed.settings import NETWORK, Settings
from tests.checkpoint.s3_server import CREDENTIALS, WHY

__all__ = ["S3Store", "s3_store"]

_STARTS = 60.0  # seconds
_BUCKET = "logs"
_MAKE_BUCKET = "import sys, s3fs; s3fs.S3FileSystem(endpoint_url=sys.argv[1]).makedirs(sys.argv[2], exist_ok=True)"


class S3Store(NamedTuple):
    """The address of a folder in the store, and the environment by which it is reached."""

    url: str
    port: int
    environment: dict[str, str]


@contextmanager
def s3_store(bed: Settings) -> Iterator[S3Store]:
    """An empty store, while the block runs. The test is skipped where the server's packages are missing."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _running(bed, Path(folder))


def _running(bed: Settings, folder: Path) -> Iterator[S3Store]:
    port = random.randrange(20_000, 30_000)  # noqa: S311  # a port, no secret
    endpoint = f"http://{NETWORK.control_plane}:{port}"
    environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}
    inside = ["ip", "netns", "exec", bed.namespace, sys.executable]
    command = ["ip", "netns", "exec", bed.namespace, *_server(NETWORK.control_plane, port, folder)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ends = time.monotonic() + _STARTS
        making = [*inside, "-c", _MAKE_BUCKET, endpoint, _BUCKET]
        while subprocess.run(making, env={**os.environ, **CREDENTIALS}, capture_output=True, check=False).returncode:
            assert server.poll() is None, "the server has ended"
            assert time.monotonic() < ends, "the server does not answer"
            time.sleep(0.5)
        yield S3Store(f"s3://{_BUCKET}/bed", port, environment)
    finally:
        server.terminate()
        server.wait(30)


def _server(host: str, port: int, folder: Path) -> list[str]:
    """The command of a server whose credentials are :data:`CREDENTIALS`. ``folder`` is empty, and the server's."""
    gateway = os.environ.get("SPOTWRIGHT_TEST_VERSITYGW")
    if gateway is None:
        pytest.importorskip("moto.server", reason=WHY)
        return [sys.executable, "-m", "moto.server", "-H", host, "-p", str(port)]
    access, secret, region = CREDENTIALS.values()
    places = [folder / "attributes", folder / "objects"]
    for place in places:
        place.mkdir()
    options = ["--access", access, "--secret", secret, "--region", region, "--port", f"{host}:{port}"]
    return [gateway, *options, "posix", "--sidecar", *map(str, places)]
