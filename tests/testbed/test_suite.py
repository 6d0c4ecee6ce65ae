"""CI's tests on a cluster: if a machine cannot run them, one line says why, and failing tests fail CI."""

from __future__ import annotations

import math
import os
import signal
import stat
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from testbed import suite
from testbed.building import requirements
from testbed.building.builds import Cache, build_all
from testbed.building.programs import PROGRAMS
from testbed.errors import OutOfTimeError, TestbedError
from testbed.settings import Settings

MINUTE = 60.0


def program(path: Path, script: str) -> Path:
    """An executable file with a shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class Machine:
    """A machine with a pretended cluster, and its actions and messages."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.done: list[str] = []
        self.said: list[str] = []
        self._patch, self._folder = patch, folder
        for name in suite.DEFAULTS:
            patch.delenv(name, raising=False)
        patch.setenv("TESTBED_CACHE", str(folder / "cache"))
        patch.setenv("TESTBED_STATE", str(folder))
        patch.setattr(suite, "obstacle", lambda *, building: None)
        patch.setattr(suite, "kernel_obstacle", lambda: None)
        patch.setattr("os.getloadavg", lambda: (1.0, 1.0, 1.0))
        patch.setattr(suite, "build", lambda settings, say, **limit: self.done.append("build"))
        patch.setattr(suite, "bring_up", lambda settings, say: self.done.append("up"))
        patch.setattr(suite, "bring_down", lambda settings: self.done.append("down"))

    def tests_end_with(self, *codes: int) -> None:
        """Let pytest end with these exit codes, one run after the other."""
        calls = self._folder / "calls"
        script = f'echo "$TESTBED_NAME, $SPOTWRIGHT_CLUSTER_SECONDS s: $*" >>{calls}\n'
        script += f'exit $(echo {" ".join(map(str, codes))} | cut -d" " -f$(wc -l <{calls}))'
        self._patch.setattr("sys.executable", str(program(self._folder / "pytest", script)))

    def calls(self) -> list[str]:
        """The clusters and arguments that pytest got."""
        return (self._folder / "calls").read_text().splitlines()

    def run(self, *, within: float = math.inf, install: bool = False) -> int:
        """Run the suite."""
        return suite.run_suite(self.said.append, within=within, install=install)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("within", "build", "tests"),
    [(float("inf"), 25, 15), (58, 25, 15), (30, 12, 15), (18, 0, 15), (10, 0, 7), (2, 0, 0), (-5, 0, 0)],
)
def test_tests_come_before_builds_where_time_is_short(within: float, build: float, tests: float) -> None:
    assert suite.limits(within * MINUTE) == suite.Limits(build * MINUTE, tests * MINUTE)


def test_the_cluster_of_ci_stands_beside_that_of_a_person_unless_the_environment_names_another() -> None:
    ours, default = suite.settings_of_ci({}), Settings()
    assert (ours.name, ours.port, ours.controllers) == ("swci", 16453, ("argo", "jobset", "trainer"))
    assert {ours.name, ours.port}.isdisjoint({default.name, default.port, default.port + 1})
    assert suite.settings_of_ci({"TESTBED_NAME": "mine"}).name == "mine"


def test_tests_that_pass_pass_ci_and_the_cluster_is_ended(machine: Machine) -> None:
    machine.tests_end_with(0)
    assert machine.run() == 0
    assert machine.done == ["build", "up", "down"]
    assert machine.calls() == ["swci, 900.0 s: -m pytest -m cluster_ci tests/cluster"]


def test_a_test_that_fails_runs_once_more_on_a_cluster_that_starts_afresh(machine: Machine) -> None:
    machine.tests_end_with(1, 0)
    assert machine.run() == 0
    assert machine.done == ["build", "up", "up", "down"]
    again = "-m pytest -m cluster_ci tests/cluster --last-failed --last-failed-no-failures=none"
    assert machine.calls()[1] == f"swci, inf s: {again}", "no failed test is skipped for want of time"
    assert any("flaky tests" in line for line in machine.said)


@pytest.mark.parametrize("second", [1, 5])
def test_a_test_that_fails_twice_fails_ci_and_so_does_a_failure_of_no_test(machine: Machine, second: int) -> None:
    machine.tests_end_with(1, second)
    assert machine.run() == 1
    assert machine.done[-1] == "down"


def test_tests_that_fail_twice_on_a_machine_that_has_no_time_for_them_fail_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (30.0, 8.0, 2.0))
    machine.tests_end_with(1, 1)
    assert machine.run() == 0
    assert machine.done == ["build", "up", "up", "down"]
    assert "15 processes wanted each processor of this machine both times: not a failure of CI" in machine.said


def test_tests_that_fail_when_the_time_is_nearly_over_fail_nothing(machine: Machine) -> None:
    machine.tests_end_with(1, 1)
    assert machine.run(within=8 * MINUTE) == 0
    assert machine.done == ["build", "up", "down"]
    assert any("without time to run them again" in line for line in machine.said)


def test_a_second_start_that_fails_is_no_failure_of_ci(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def up_once(settings: Settings, say: suite.Say) -> None:
        machine.done.append("up")
        if machine.done.count("up") > 1:
            raise TestbedError("timed out after 180 s: all nodes Ready")

    monkeypatch.setattr(suite, "bring_up", up_once)
    machine.tests_end_with(1, 1)
    assert machine.run() == 0
    assert machine.done == ["build", "up", "up", "down"]
    assert any("timed out after 180 s: all nodes Ready" in line for line in machine.said)


def test_a_cache_that_nobody_can_write_is_one_line(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_CACHE", "/proc/no-such-folder")
    assert machine.run() == 0
    assert machine.done == []
    assert "do not run here: cannot write to /proc/no-such-folder: " in machine.said[0]


def test_a_cluster_that_does_not_come_up_is_one_line_and_is_taken_down(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(settings: Settings, say: suite.Say) -> None:
        raise TestbedError("`mount -t overlay` failed (32):\nmount: /var/lib: wrong fs type")

    monkeypatch.setattr(suite, "bring_up", fails)
    assert machine.run() == 0
    assert machine.done == ["build", "down"]
    reason = "the cluster does not start: `mount -t overlay` failed (32): mount: /var/lib: wrong fs type"
    assert machine.said[-1] == f"the tests on a real Kubernetes do not run here: {reason}"


def test_a_start_that_fails_is_no_failure_of_ci_though_something_of_it_stays(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise TestbedError("left behind: mount /var/tmp/x")

    monkeypatch.setattr(suite, "bring_up", fails)
    monkeypatch.setattr(suite, "bring_down", fails)
    assert machine.run() == 0
    assert machine.said[-2:] == [
        "after a start that failed: left behind: mount /var/tmp/x",
        "the tests on a real Kubernetes do not run here: the cluster does not start: left behind: mount /var/tmp/x",
    ]


def test_tests_that_do_not_end_are_ended_and_fail_ci(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "_SPARE", -15 * MINUTE + 0.3)
    monkeypatch.setattr(suite, "_RETRY", 0.3)
    monkeypatch.setattr("sys.executable", str(program(Path(os.environ["TESTBED_STATE"]) / "pytest", "exec sleep 600")))
    assert machine.run() == 1
    assert machine.done[-1] == "down"
    assert any("the tests are ended" in line for line in machine.said)


def test_what_a_cluster_leaves_behind_fails_ci(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def leaves(settings: Settings) -> None:
        raise TestbedError("left behind:\n  mount /var/tmp/x")

    monkeypatch.setattr(suite, "bring_down", leaves)
    machine.tests_end_with(0)
    with pytest.raises(TestbedError, match="left behind"):
        machine.run()


@pytest.mark.parametrize("found", ["obstacle", "kernel_obstacle"])
def test_a_machine_that_cannot_is_one_line_and_nothing_is_built(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    monkeypatch.setattr(suite, found, lambda **_: "the test bed needs root")
    assert machine.run() == 0
    assert machine.done == []
    assert machine.said == ["the tests on a real Kubernetes do not run here: the test bed needs root"]


def test_without_time_for_the_tests_nothing_is_started(machine: Machine) -> None:
    assert machine.run(within=5 * MINUTE) == 0
    assert machine.done == []
    assert machine.said[0].endswith("of the time for all of CI, only 2 minutes are left for them")


def test_two_suites_at_once_do_not_share_a_cluster(machine: Machine) -> None:
    settings = suite.settings_of_ci()
    with Cache(settings.cache).locked(name=f".suite-{settings.name}"):
        assert machine.run() == 0
    assert machine.done == []
    assert machine.said[0].endswith("they run here already, in another process")


def built(cache: Cache, folders: Sequence[str]) -> None:
    for item in cache.missing({item.folder for item in PROGRAMS}):
        if item.folder in folders:
            cache.entry(item).mkdir(parents=True)


@pytest.mark.parametrize(
    ("folders", "controllers"),
    [(["kubernetes", "pause", "argo"], "argo"), (["kubernetes", "pause"], "none")],
)
def test_when_the_time_for_builds_is_over_the_cluster_has_the_controllers_that_are_there(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, folders: Sequence[str], controllers: str
) -> None:
    def build(settings: Settings, say: suite.Say, until: float) -> None:
        if not {*settings.controllers} <= {*folders}:
            built(Cache(settings.cache), folders)
            raise OutOfTimeError("`go build` was ended")

    monkeypatch.setattr(suite, "build", build)
    monkeypatch.setattr(suite, "bring_up", lambda settings, say: machine.done.append(",".join(settings.controllers)))
    machine.tests_end_with(0)
    assert machine.run() == 0
    assert machine.done == [controllers.replace("none", ""), "down"]
    assert "parts were built in 0 min 0 s; the next run continues, and this one runs without " in machine.said[0]


def test_when_there_is_no_time_to_build_kubernetes_one_line_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(settings: Settings, say: suite.Say, until: float) -> None:
        raise OutOfTimeError("`go build` was ended")

    monkeypatch.setattr(suite, "build", build)
    assert machine.run() == 0
    assert machine.done == []
    (line,) = machine.said
    assert line.endswith("do not run here: 0 of 9 parts were built in 0 min 0 s; the next run continues")


def test_a_build_ends_with_its_compilers_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    program(tmp_path / "bin" / "go", f"sleep 600 &\necho $! >{compiler}\nwait")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    cache = Cache(tmp_path / "cache")
    with pytest.raises(OutOfTimeError, match="was ended"):
        build_all(cache, (), print, until=time.monotonic() + 1.0)
    assert cache.missing(()) == [PROGRAMS[0], PROGRAMS[1]]
    pid = int(compiler.read_text())
    ends = time.monotonic() + 10
    while runs(pid):
        assert time.monotonic() < ends, "the compiler goes on"
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_a_cache_in_use_where_only_images_lack_is_one_line(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(settings: Settings, say: suite.Say, until: float) -> None:
        assert until < math.inf
        raise OutOfTimeError("another command holds the lock")

    settings = suite.settings_of_ci()
    built(Cache(settings.cache), ["kubernetes", "pause", *settings.controllers])
    monkeypatch.setattr(suite, "build", build)
    assert machine.run() == 0
    assert machine.done == []
    assert machine.said == [
        "the tests on a real Kubernetes do not run here: cannot build the images: another command holds the lock"
    ]


def test_a_cache_in_use_is_waited_for_until_the_time_is_over(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with cache.locked(), pytest.raises(OutOfTimeError, match="another command holds"):
        build_all(cache, (), print, until=time.monotonic() + 0.3)


def test_sigterm_takes_the_cluster_down(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(settings: Settings, say: suite.Say) -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()

    monkeypatch.setattr(suite, "bring_up", started)
    waits = program(Path(os.environ["TESTBED_STATE"]) / "pytest", "exec sleep 600")
    monkeypatch.setattr("sys.executable", str(waits))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit):
        machine.run()
    assert machine.done == ["build", "down"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_kernel_without_control_groups_or_namespaces_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(requirements, "_CGROUPS", tmp_path)
    assert "control groups" in (requirements.kernel_obstacle() or "")
    (tmp_path / "cgroup.procs").touch()
    program(tmp_path / "bin" / "unshare", "echo unshare: Operation not permitted >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert (requirements.kernel_obstacle() or "").endswith("containers: unshare: Operation not permitted")
    program(tmp_path / "bin" / "unshare", "exit 0")
    assert requirements.kernel_obstacle() is None


def test_missing_packages_are_installed_in_ci_alone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(suite, "missing_packages", lambda: ["socat"])
    monkeypatch.setattr(suite, "obstacle", lambda *, building: "missing programs; on Debian: apt-get install socat")
    monkeypatch.setattr(suite, "install_packages", lambda packages: f"no route for {' '.join(packages)}")
    machine.run()
    machine.run(install=True)
    reason = "the tests on a real Kubernetes do not run here: missing programs; on Debian: apt-get install socat"
    assert machine.said == [reason, "installing socat", f"{reason} (which failed: no route for socat)"]


def test_packages_are_installed_after_their_lists_where_those_are_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = (
        f'echo "$DEBIAN_FRONTEND $1" >>{tmp_path}/calls; [ "$1" != install ] || [ -e {tmp_path}/lists ] || exit 100\n'
    )
    script += f"[ $1 != update ] || touch {tmp_path}/lists"
    program(tmp_path / "bin" / "apt-get", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    calls = tmp_path / "calls"
    monkeypatch.setattr(
        requirements, "missing_packages", lambda: [] if len(calls.read_text().split()) == 6 else ["socat"]
    )
    assert requirements.install_packages(["socat"]) == ""
    assert calls.read_text().split() == [
        "noninteractive",
        "install",
        "noninteractive",
        "update",
        "noninteractive",
        "install",
    ]
