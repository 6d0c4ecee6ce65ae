"""How pytest-xdist spreads the suite over processes: tests of a file that shares a fixture stay together.

A fixture of a module, such as a whole run of the demo, is made once in each process that needs it. The ``loadgroup`` mode
of xdist 3.8 has no effect with pytest 9.2, whose node ids it cannot change, so the scheduler decides by the file.
"""

from __future__ import annotations

import functools
from pathlib import Path

from xdist.scheduler.loadscope import LoadScopeScheduling

__all__ = ["KeepFixturesTogether", "shares_a_fixture"]

ROOT = Path(__file__).resolve().parent.parent


class KeepFixturesTogether(LoadScopeScheduling):
    """Send the tests of a file with a fixture of its module to one process, and all others one by one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if shares_a_fixture(file) else nodeid


@functools.cache
def shares_a_fixture(file: str) -> bool:
    """Whether a test file, named from the root of the project, has a fixture that is made once for its module."""
    path = ROOT / file
    return path.exists() and 'scope="module"' in path.read_text(encoding="utf-8")
