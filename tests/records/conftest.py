"""Fixtures of the tests of the state folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.records.children import Foreign, in_a_child


@pytest.fixture
def foreign(tmp_path: Path) -> Foreign:
    """Run a function as a user who may only read below ``tmp_path``."""

    def run(work: Callable[[], str]) -> str:
        closed = [folder for folder in (tmp_path, *tmp_path.parents) if not folder.stat().st_mode & 0o001]
        for folder in closed:  # pytest's own folders are for one user
            folder.chmod(folder.stat().st_mode | 0o055)

        def as_nobody() -> str:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            return work()

        if os.getuid() != 0:
            for folder in (tmp_path, *tmp_path.rglob("*")):
                folder.chmod(folder.stat().st_mode & ~0o222)
        try:
            return in_a_child(as_nobody)
        finally:
            for folder in (tmp_path, *tmp_path.rglob("*")):
                folder.chmod(folder.stat().st_mode | 0o200)

    return run
