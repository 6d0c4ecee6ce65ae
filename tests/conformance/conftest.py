"""The conformance pipelines, compiled by the real SDK once for all tests of a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance import compiling


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds ``NAME.yaml`` for every conformance pipeline."""
    folder = tmp_path_factory.mktemp("conformance")
    compiling.compile_all(folder)
    return folder
