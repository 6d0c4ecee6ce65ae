"""The stores of logs that tests write into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.checkpoint.s3_server import s3_server
from tests.cluster.log_keeping.stores import BUCKET, FailingStore


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """A server that speaks S3, with a bucket."""
    with s3_server(BUCKET) as url:
        yield url


@pytest.fixture
def failing(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingStore]:
    """The same behind a proxy that fails on demand; the environment leads there."""
    with FailingStore(s3).running() as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        yield store


@pytest.fixture
def bucket(failing: FailingStore, request: pytest.FixtureRequest) -> str:
    """An address in it that no other test has."""
    del failing
    return f"s3://{BUCKET}/{abs(hash(request.node.nodeid)):x}"


@pytest.fixture(params=["file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store: a folder, and S3."""
    return f"file://{tmp_path / 'store'}" if request.param == "file" else request.getfixturevalue("bucket")
