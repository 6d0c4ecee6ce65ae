"""How pytest-xdist spreads the suite over processes: tests of a file that shares a fixture stay together.

A fixture of a module, such as a whole run of the demo, is made once in each process that needs it. The ``loadgroup`` mode
of xdist 3.8 has no effect with pytest 9.2, whose node ids it cannot change, so the scheduler decides by the file.

The scheduler of xdist is made for some hundred units of work. This one forgets what is done and looks up the place of a test in a
table, so that the thousands of tests of this suite cost it seconds less.
"""

from __future__ import annotations

import functools
from pathlib import Path

from xdist.scheduler.loadscope import LoadScopeScheduling
from xdist.workermanage import WorkerController

__all__ = ["KeepFixturesTogether", "shares_a_fixture"]

ROOT = Path(__file__).resolve().parent.parent


class KeepFixturesTogether(LoadScopeScheduling):
    """Send the tests of a file with a fixture of its module to one process, and all others one by one."""

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        """The place of each test in the collection, which is the same in every process."""
        return {nodeid: place for place, nodeid in enumerate(self.collection or ())}

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if shares_a_fixture(file) else nodeid

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope, unit = self.workqueue.popitem(last=False)
        self.assigned_work.setdefault(node, {})[scope] = unit
        node.send_runtest_some([self._places[nodeid] for nodeid, is_done in unit.items() if not is_done])

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Note that a process has run a test, and give it the next ones."""
        nodeid = self.registered_collections[node][item_index]
        assigned, scope = self.assigned_work[node], self._split_scope(nodeid)
        assigned[scope][nodeid] = True
        if all(assigned[scope].values()):
            del assigned[scope]
        self._reschedule(node)


@functools.cache
def shares_a_fixture(file: str) -> bool:
    """Whether a test file, named from the root of the project, has a fixture that is made once for its module."""
    path = ROOT / file
    return path.exists() and 'scope="module"' in path.read_text(encoding="utf-8")
