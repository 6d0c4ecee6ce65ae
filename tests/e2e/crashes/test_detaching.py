"""An engine that detaches: its attempts go on, and the next engine counts those that finished."""

from __future__ import annotations

from contextlib import closing

from tests.e2e.building import step
from tests.e2e.inside import note, raise_file, until
from tests.e2e.project import Project, eventually

from spotwright.records.journal import Journal
from spotwright.runs import bodies


def finishes_when_told() -> int:
    raise_file("holding")
    until("go")
    note("finished")
    return 7


def test_attempts_outlive_an_engine_that_detaches_and_their_results_count(project: Project) -> None:
    started = project.start("run", str(project.pipeline({"only": step(finishes_when_told, {})})), "--name", "r")
    eventually((project.playground / "holding").exists)

    path = project.state / "runs" / "r" / "journal.db"
    with closing(Journal.open(path)) as journal:
        lease = journal.lease()
        assert lease is not None
        journal.request("detach", 1.0)
        assert bodies.wake(path, lease.holder)
    done = started.wait()
    assert (done.code, project.processes() != {}) == (130, True)
    assert "its attempts go on; take it up with: spotwright resume r" in done.err

    project.raise_file("go")
    eventually(lambda: project.processes() == {})
    assert project.spotwright("resume", "r").code == 0
    assert project.show("r")["tasks"]["only"]["outputs"]["parameters"] == {"Output": 7}
    assert project.causes("only") == ["succeeded"]
