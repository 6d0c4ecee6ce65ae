"""Parts that a cluster lacked when it started are built beside it, one entry at a time, and the builds end with it."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed import builder, cluster
from testbed.building import builds
from testbed.building.builds import Cache
from testbed.building.programs import PROGRAMS, TOOLS, Manifests, Program
from testbed.control import controllers
from testbed.errors import TestbedError
from testbed.machine.processes import Processes, marked_pids
from testbed.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A cluster without nodes, whose cache has the parts of every cluster."""
    settings = Settings(state=tmp_path, cache=tmp_path / "cache", nodes=0)
    for item in Cache(settings.cache).missing(()):
        Cache(settings.cache).entry(item).mkdir(parents=True)
    return settings


class Bed:
    """A cluster with pretended builds and starts: its actions, in order."""

    def __init__(self, patch: pytest.MonkeyPatch, settings: Settings) -> None:
        self.done: list[str] = []
        self.said: list[str] = []
        self.during: dict[str, Callable[[], None]] = {}
        self.settings = settings
        patch.setattr(builder, "_TURN", 0)
        patch.setattr(builder, "check_machine", lambda *, building: None)
        patch.setattr(builds, "_build", lambda item, folder, until: self._do(item))
        patch.setattr(builds, "_copy_manifests", lambda item, folder, until: None)
        patch.setattr(controllers, "start", lambda settings, names: self._do(f"start {names[0]}"))

    def _do(self, what: Program | Manifests | str) -> None:
        name = what if isinstance(what, str) else what.name
        self.done.append(name)
        self.during.get(name, lambda: None)()

    def work(self, *names: str) -> None:
        """Build and start these."""
        folder = self.settings.folder / "coming"
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
        builder.work(self.settings, self.said.append)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Bed:
    return Bed(monkeypatch, settings)


def test_each_controller_starts_as_soon_as_it_is_built_and_tools_come_last(bed: Bed) -> None:
    bed.work(*TOOLS, "kueue", "jobset")
    assert bed.done == ["jobset", "start jobset", "kueue", "start kueue", "helm", "kube-score"]
    assert builder.coming(bed.settings) == ()
    assert builder.failed(bed.settings) == {}


def test_what_somebody_waits_for_is_built_next_after_what_must_run_before_it(bed: Bed) -> None:
    bed.during["argoexec"] = (bed.settings.folder / "coming" / "trainer.wanted").touch
    bed.work("argo", "jobset", "trainer", "kueue")
    first = ["argoexec", "jobset", "start jobset", "trainer", "start trainer"]
    assert bed.done == [*first, "workflow-controller", "start argo", "kueue", "start kueue"]


def fails() -> None:
    raise TestbedError("`go build` failed in jobset:\nno space is left")


def test_a_build_that_fails_stops_nothing_else_and_its_reason_is_kept(bed: Bed) -> None:
    bed.during["jobset"] = fails
    bed.work("jobset", "trainer")
    assert bed.done == ["jobset", "trainer", "start trainer"]
    reason = "`go build` failed in jobset: no space is left"
    assert builder.failed(bed.settings) == {"jobset": reason}
    assert builder.wait_for(bed.settings, "jobset", bed.said.append) == reason
    assert builder.wait_for(bed.settings, "trainer", bed.said.append) == ""


def test_a_controller_starts_once_more_where_a_test_had_ended_the_api_server(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_once() -> None:
        bed.during.clear()
        raise TestbedError("`kubectl apply` failed (1): connection refused")

    monkeypatch.setattr("testbed.control.api.Api.ready", lambda self: True)
    bed.during["start jobset"] = fails_once
    bed.work("jobset")
    assert bed.done == ["jobset", "start jobset", "start jobset"]
    assert builder.failed(bed.settings) == {}


def test_what_runs_from_the_start_is_not_waited_for(settings: Settings) -> None:
    said: list[str] = []
    assert builder.wait_for(settings, "argo", said.append) == ""
    assert said == []


def test_who_waits_says_so_each_minute_and_hears_when_nobody_builds_any_more(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "MINUTE", 0.05)
    monkeypatch.setattr(builder, "_POLL", 0.02)
    (settings.folder / "coming").mkdir(parents=True)
    (settings.folder / "coming" / "jobset").touch()
    processes, said = Processes(settings), list[str]()
    processes.start(builder.NAME, ["sh", "-c", "echo building jobset v1; exec sleep 600"])

    def hear(line: str) -> None:
        said.append(line)
        if "building jobset" in line:
            processes.end(builder.NAME, kill=True)

    assert builder.wait_for(settings, "jobset", hear).startswith("what builds it has ended; see ")
    assert said[0].startswith("waiting for jobset, ")
    assert said[-1].endswith(" s: building jobset v1")
    assert (settings.folder / "coming" / "jobset.wanted").exists()


@pytest.mark.parametrize("kill", [False, True])
def test_a_build_beside_a_cluster_ends_with_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, kill: bool
) -> None:
    pid, go = tmp_path / "pid", tmp_path / "bin" / "go"
    go.parent.mkdir()
    version = '[ "$1" = build ] || { echo go version go1.99.0; exit; }'
    go.write_text(f"#!/bin/sh\n{version}\necho $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 600\n")
    go.chmod(go.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TESTBED_NAME", "another")
    builder.start(settings, ("jobset", "helm"))
    until(lambda: pid.exists() or not list(marked_pids(settings.folder)))
    assert pid.exists(), Processes(settings).log(builder.NAME).read_text()
    priorities = [os.getpriority(os.PRIO_PROCESS, int(pid.read_text())), niceness(int(pid.read_text()))]
    assert priorities == [10, 10], "the tests beside it go first"
    with pytest.raises(BlockingIOError):
        os.close(locked(settings))
    Processes(settings).end(builder.NAME, kill=kill)
    until(lambda: not list(marked_pids(settings.folder)))
    assert builder.coming(settings) == ("jobset", "helm")


def niceness(pid: int) -> int:
    """That of the session of a process among sessions, where Linux weighs these."""
    file = Path(f"/proc/{pid}/autogroup")
    return int(file.read_text().split()[-1]) if file.exists() else 10


def locked(settings: Settings) -> int:
    """The lock of the cache, as a descriptor."""
    lock = os.open(settings.cache / ".lock", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_cluster_needs_kubernetes_alone_for_its_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings
) -> None:
    built: list[str] = []
    monkeypatch.setattr(cluster, "check_machine", lambda *, building: None)
    monkeypatch.setattr(builds, "_build", lambda item, folder, until: built.append(item.name))
    monkeypatch.setattr(builds, "_copy_manifests", lambda *_: None)
    empty = dataclasses.replace(settings, cache=tmp_path / "empty")
    later = cluster.build_first(empty, lambda _: None)
    assert built == ["kubernetes", "pause"]
    assert set(later) == {*empty.controllers, *TOOLS}
    pretending = dataclasses.replace(empty, controllers=("kwok", "karpenter"), pretended=5)
    assert set(cluster.build_first(pretending, lambda _: None)) == {"karpenter", *TOOLS}
    assert built == ["kubernetes", "pause", "kwok"]


def test_a_controller_that_is_built_starts_after_one_of_which_it_needs_the_kinds(settings: Settings) -> None:
    cache = Cache(settings.cache)
    for item in cache.missing({program.folder for program in PROGRAMS} - {"jobset"}):
        cache.entry(item).mkdir()
    assert cluster.build_first(settings, print) == ("jobset", "kueue", "trainer")
