"""Runs the CI tests on a separate cluster, if this machine can and as long as there is time.

CI must not fail because a machine has no root, no Go, does not allow nodes, or is too busy for timing: then one line says so.
Failures are a test that fails twice, a test that does not end, and a cluster with leftovers. Builds have a separate limit: the
cache keeps their results for the next run.
"""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from testbed.building.builds import Cache
from testbed.building.requirements import install_packages, kernel_obstacle, missing_packages, obstacle
from testbed.cluster import bring_down, bring_up, build
from testbed.errors import OutOfTimeError, TestbedError, one_line
from testbed.machine.processes import MARK, ended_by_sigterm
from testbed.settings import Settings

__all__ = ["Limits", "limits", "run_suite", "settings_of_ci"]

DEFAULTS: Mapping[str, str] = {
    "TESTBED_NAME": "swci",
    "TESTBED_PORT": "16453",
    "TESTBED_CONTROLLERS": "argo,jobset,trainer",
}
"""A cluster beside a person's, without Kueue: no death needs it, and it takes a third of all building."""

SECONDS = "SPOTWRIGHT_CLUSTER_SECONDS"
"""Environment variable: tests on the cluster that would start more than so many seconds after the first one are skipped."""

PATIENCE = "SPOTWRIGHT_CLUSTER_PATIENCE"
"""Environment variable: how many times as long as otherwise tests on the cluster wait for what they expect."""

_MARKER = "cluster_ci"
_BUILD, _SUITE = 25 * 60.0, 15 * 60.0  # seconds
_START = 3 * 60.0  # seconds for the start of the cluster and its end
_RETRY = 10 * 60.0  # seconds in which the failed tests run once more
_IMAGES = 2 * 60.0  # seconds for the images, while another command may have the cache
_PATIENT = 2  # a machine of CI has other work as well; a condition that holds is not waited for
_BUSY = 8.0  # processes that want each processor; with more of them a wait that was too short says nothing about us
_SPARE = 5 * 60.0  # seconds for the test in hand when the time is over; one that takes longer hangs
_LEAST = 5 * 60.0  # seconds; with less time for the tests there is no point in a start
_TEARDOWN = 60.0  # seconds in which the tests undo what they did when they are ended

_ROOT = Path(__file__).resolve().parent.parent

Say = Callable[[str], None]


class CannotHere(TestbedError):
    """Why the tests do not run on this machine."""


class Limits(NamedTuple):
    """How many seconds the builds and the tests may take."""

    build: float
    suite: float


def limits(within: float = math.inf) -> Limits:
    """The division of so many seconds: first a start and its tests, then builds."""
    suite = max(0.0, min(_SUITE, within - _START))
    return Limits(build=max(0.0, min(_BUILD, within - _START - suite)), suite=suite)


def settings_of_ci(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of the cluster: CI's, unless the environment names others."""
    return Settings.from_environment({**DEFAULTS, **environment})


def run_suite(say: Say, *, within: float = math.inf, install: bool = False, arguments: Sequence[str] = ()) -> int:
    """Build, start the cluster, run the tests, stop the cluster. Returns 0 or 1; 0 also if this machine cannot.

    ``within`` is the time for all of it in seconds, ``install`` lets it install Debian packages, ``arguments`` are pytest's.
    """
    settings, ends = settings_of_ci(), time.monotonic() + within
    try:
        _try(lambda: check(say, settings, limits(within), install=install))
        allowed = limits(ends - time.monotonic())  # packages may have taken their time
        with ended_by_sigterm(), _alone(settings):
            built = _built(settings, allowed.build, say)
            return _on_cluster(built, allowed.suite, ends, say, arguments)
    except CannotHere as error:
        say(f"the tests on a real Kubernetes do not run here: {error}")
        return 0


def _try(look: Callable[[], None]) -> None:
    """Do what needs files of this machine; raise :class:`CannotHere` where it has them not."""
    try:
        look()
    except OSError as error:
        raise CannotHere(one_line(error)) from error


def check(say: Say, settings: Settings, allowed: Limits, *, install: bool) -> None:
    """Raise :class:`CannotHere` where time or something of this machine lacks; with ``install``, install programs first."""
    if allowed.suite < _LEAST:
        raise CannotHere(f"of the time for all of CI, only {allowed.suite / 60:.0f} minutes are left for them")
    if install and sys.platform == "linux" and os.geteuid() == 0 and (missing := missing_packages()):
        say(f"installing {' '.join(missing)}")
        if why := install_packages(missing):
            raise CannotHere(f"{obstacle(building=False)} (which failed: {why})")
    building = bool(Cache(settings.cache).missing(settings.controllers))
    if reason := obstacle(building=building) or kernel_obstacle():
        raise CannotHere(reason)


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """One suite at a time has a cluster of this name."""
    with ExitStack() as stack:
        try:
            stack.enter_context(Cache(settings.cache).locked(time.monotonic(), f".suite-{settings.name}"))
        except OutOfTimeError as error:
            raise CannotHere("they run here already, in another process") from error
        except OSError as error:
            raise CannotHere(f"cannot write to {settings.cache}: {one_line(error)}") from error
        yield


def _built(settings: Settings, seconds: float, say: Say) -> Settings:
    """Build what is missing. Returns the settings of a cluster with the available controllers."""
    cache, started = Cache(settings.cache), time.monotonic()
    missing = cache.missing(settings.controllers)
    try:
        build(settings, say, until=started + seconds)
    except OutOfTimeError as error:
        left = cache.missing(settings.controllers)
        kept = f"{len(missing) - len(left)} of {len(missing)} parts were built in {_minutes(started)}; the next run continues"
        if cache.missing(()):
            raise CannotHere(kept) from error
        there = tuple(each for each in settings.controllers if not cache.missing((each,)))
        if left:
            say(f"{kept}, and this one runs without {', '.join(sorted(set(settings.controllers) - set(there)))}")
        settings = dataclasses.replace(settings, controllers=there)
        _make_images(settings, say)
    except (TestbedError, OSError) as error:
        raise CannotHere(f"Kubernetes could not be built: {one_line(error)}") from error
    if missing:
        say(f"the builds took {_minutes(started)}")
    return settings


def _make_images(settings: Settings, say: Say) -> None:
    """Create the images of the available programs."""
    try:
        build(settings, say, until=time.monotonic() + _IMAGES)
    except (TestbedError, OSError) as error:
        raise CannotHere(f"cannot build the images: {one_line(error)}") from error


def _on_cluster(settings: Settings, seconds: float, ends: float, say: Say, arguments: Sequence[str]) -> int:
    started = time.monotonic()
    _start(settings, say)
    up = time.monotonic()
    try:
        code = _tests(settings, say, arguments, enough=seconds, most=min(seconds + _SPARE, ends - up))
        if code:
            code = _once_more(settings, ends, say, arguments)
    finally:
        bring_down(settings)
    say(f"the cluster started in {_minutes(started, up)}, its tests took {_minutes(up)}, and it left nothing behind")
    return int(code != 0)


def _once_more(settings: Settings, ends: float, say: Say, arguments: Sequence[str]) -> int:
    """Run the failed tests again, and return the exit code of CI: 0 too where this machine lets nobody judge them."""
    load = _load()
    left = ends - time.monotonic() - _START
    if left < _LEAST:
        say("tests failed once, without time to run them again: not a failure of CI")
        return 0
    say("the failed tests once more, alone, on a cluster that starts afresh")
    try:
        bring_up(settings, say)
    except (TestbedError, OSError) as error:
        say(f"it does not start again: not a failure of CI: {one_line(error)}")
        return 0
    again = [*arguments, "--last-failed", "--last-failed-no-failures=none"]
    code = _tests(settings, say, again, most=min(_RETRY, left))
    load = min(load, _load())
    if not code:
        say("flaky tests, to be fixed: they passed only alone")
    elif load > _BUSY:
        say(f"{load:.0f} processes wanted each processor of this machine both times: not a failure of CI")
        return 0
    return code


def _load() -> float:
    """How many processes wanted each processor in the last minutes; the most of the last one, five and fifteen."""
    return max(os.getloadavg()) / (os.cpu_count() or 1)


def _start(settings: Settings, say: Say) -> None:
    """Start the cluster. Where that fails, what there is of it is removed as far as this machine lets us."""
    try:
        bring_up(settings, say)
    except BaseException as error:
        try:
            bring_down(settings)
        except (TestbedError, OSError) as left:
            say(f"after a start that failed: {one_line(left)}")
        if isinstance(error, TestbedError | OSError):
            raise CannotHere(f"the cluster does not start: {one_line(error)}") from error
        raise


def _tests(settings: Settings, say: Say, arguments: Sequence[str], *, most: float, enough: float = math.inf) -> int:
    """Run pytest, and return its exit code. Its leftover processes have the cluster's mark, and end with it.

    After ``enough`` seconds tests no longer begin, after ``most`` it is killed.
    """
    environment = {
        **settings.environment(),
        "KUBECONFIG": str(settings.kubeconfig),
        MARK: str(settings.folder),
        SECONDS: str(enough),
        PATIENCE: str(_PATIENT),
    }
    command = [sys.executable, "-m", "pytest", "-m", _MARKER, "tests/cluster", *arguments]
    process = subprocess.Popen(command, cwd=_ROOT, env={**os.environ, **environment}, start_new_session=True)
    try:
        return process.wait(most)
    except subprocess.TimeoutExpired:
        say(f"the tests are ended: they have not ended within {most / 60:.0f} minutes")
        return 1
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what runs still, as Ctrl-C does, so that tests undo their faults."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(_TEARDOWN)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _minutes(since: float, until: float | None = None) -> str:
    minutes, seconds = divmod(round((time.monotonic() if until is None else until) - since), 60)
    return f"{minutes} min {seconds} s"
