"""A server that speaks S3 on the loopback, with one bucket.

It is moto's, unless ``SPOTWRIGHT_TEST_S3`` has the URL of another one that runs, with :data:`CREDENTIALS` as its own: so the
tests of everything that uses a store can be run on any server.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["CREDENTIALS", "WHY", "s3_server"]

WHY = "needs the group `stores`: fsspec, s3fs and moto's server"

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hidden-value", "AWS_DEFAULT_REGION": "us-east-1"}
"""The environment of a job."""


@contextmanager
def s3_server(bucket: str) -> Iterator[str]:
    """Start a server with a bucket, and give its URL; the credentials are in the environment meanwhile.

    All servers of a process know the buckets of every other one. It skips the test where the packages are missing.
    """
    pytest.importorskip("fsspec", reason=WHY)
    s3fs = pytest.importorskip("s3fs", reason=WHY)
    if running := os.environ.get("SPOTWRIGHT_TEST_S3"):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in CREDENTIALS.items():
                patch.setenv(name, value)
            s3fs.S3FileSystem(endpoint_url=running).makedirs(bucket, exist_ok=True)
            yield running
        return
    server = pytest.importorskip("moto.server", reason=WHY).ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        server.start()
        try:
            host, port = server.get_host_and_port()
            s3fs.S3FileSystem(endpoint_url=f"http://{host}:{port}").makedirs(bucket, exist_ok=True)
            yield f"http://{host}:{port}"
        finally:
            server.stop()
