"""The conformance pipelines, compiled by the real SDK once for all tests of a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance import compiling


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds ``NAME.yaml`` for every conformance pipeline."""
    folder = tmp_path_factory.mktemp("conformance")
    subprocess.run([sys.executable, compiling.__file__, str(folder)], check=True)
    return folder
