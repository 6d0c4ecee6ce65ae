"""The conformance pipelines, compiled by the real SDK once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance import compiling
from tests.shared_folders import shared_folder


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds ``NAME.yaml`` for every conformance pipeline."""
    return shared_folder(tmp_path_factory, "conformance", compiling.compile_all)
