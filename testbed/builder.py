"""Builds what a cluster lacked when it started, and starts each controller as soon as it is built.

It is one of the cluster's processes, so it ends with it, and its log is among theirs. How far it is stands in a folder of the
cluster, in which others write too:

| file | meaning |
|---|---|
| `NAME` | this controller, or tool of tests, is still to come |
| `NAME.wanted` | somebody waits for it: it is next |
| `NAME.failed` | why it does not come |
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed.building.builds import MINUTE, Cache, build_one
from testbed.building.images import archives, make_images
from testbed.building.programs import TOOLS
from testbed.building.requirements import check_machine
from testbed.control import controllers
from testbed.control.api import Api
from testbed.errors import TestbedError, one_line
from testbed.machine import nodes
from testbed.machine.processes import Processes, ended_by_sigterm, wait_until
from testbed.settings import CONTROLLERS, ON_REQUEST, Settings

__all__ = ["NAME", "coming", "failed", "start", "wait_for", "work"]

NAME = "builder"
"""The name of the process."""

_ORDER = (*CONTROLLERS, *ON_REQUEST, *TOOLS)
_PRIORITY = 10  # of builds; 19 is the lowest. Tests beside them are timed, and one of them may wait for the build
_POLL = 0.2  # seconds
_TURN = 0.5  # seconds between two entries, in which another command can take the lock of the cache
_TRIES, _API = 2, 180.0  # a test may have ended the API server while a controller started; seconds until it is back

Say = Callable[[str], None]


def start(settings: Settings, names: Sequence[str]) -> None:
    """Start the process that builds and starts these controllers of a cluster that is up, and builds these tools."""
    _folder(settings).mkdir(parents=True, exist_ok=True)
    for name in names:
        _file(settings, name).touch()
    root = {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    command = [sys.executable, "-m", "testbed.builder"]
    Processes(settings).start(NAME, command, environment={**settings.environment(), **root})


def coming(settings: Settings) -> tuple[str, ...]:
    """The pending controllers and tools, in build order unless somebody waits for one."""
    return tuple(name for name in _ORDER if _file(settings, name).exists())


def failed(settings: Settings) -> dict[str, str]:
    """What does not come, each with the reason."""
    files = {name: _file(settings, name, "failed") for name in _ORDER}
    return {name: file.read_text(encoding="utf-8") for name, file in files.items() if file.exists()}


def wait_for(settings: Settings, name: str, say: Say) -> str:
    """Prefer a pending controller or tool in the build, and wait until it is ready. Returns why it is not, or "".

    ``say`` gets a line at once and one each minute.
    """
    file, processes = _file(settings, name), Processes(settings)
    started = told = time.monotonic()
    if file.exists():
        _file(settings, name, "wanted").touch()
        say(f"waiting for {name}, which is built beside the cluster; see {processes.log(NAME)}")
    while file.exists():
        if processes.pid(NAME) is None and file.exists():
            return f"what builds it has ended; see {processes.log(NAME)}"
        if time.monotonic() - told >= MINUTE:
            told = time.monotonic()
            say(f"still waiting for {name}, since {told - started:.0f} s: {_last_line(processes.log(NAME))}")
        time.sleep(_POLL)
    return failed(settings).get(name, "")


def work(settings: Settings, say: Say) -> None:
    """Build and start everything pending, one entry of the cache after the other; failures are noted."""
    while name := _next(settings):
        try:
            if missing := Cache(settings.cache).missing((name,)):
                check_machine(building=True)
                with _low_priority():
                    build_one(Cache(settings.cache), missing[0], say)
                time.sleep(_TURN)
                continue
            if name not in TOOLS:
                _add(settings, name, say)
        except (TestbedError, OSError) as error:
            say(f"{name} cannot be started: {error}")
            Processes(settings).end(name)
            _file(settings, name, "failed").write_text(one_line(error), encoding="utf-8")
        _file(settings, name).unlink()


def _next(settings: Settings) -> str | None:
    """The next entry to build: an awaited one, else the first; before it, the ones that must run before it."""
    left = coming(settings)
    wanted = [name for name in left if _file(settings, name, "wanted").exists()]
    for name in (*wanted, *left):
        return next((needed for needed in left if needed in controllers.NEEDS.get(name, ())), name)
    return None


def _add(settings: Settings, name: str, say: Say) -> None:
    """Add a controller whose programs are built to the cluster, which runs."""
    cache = Cache(settings.cache)
    if settings.nodes:
        make_images(cache, (name,), say)
        known = archives(cache, ())
        for number in settings.numbers:
            nodes.import_images(settings, number, [path for path in archives(cache, (name,)) if path not in known])
    for left in reversed(range(_TRIES)):
        try:
            controllers.start(settings, (name,))
            break
        except (TestbedError, OSError) as error:
            if not left:
                raise
            say(f"{name} is started once more: {error}")
            wait_until(Api(settings).ready, "the API server", _API)
    say(f"{name} runs")


@contextmanager
def _low_priority() -> Iterator[None]:
    """Give this process and its children a low priority, which controllers must not inherit."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, max(before, _PRIORITY))
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def _folder(settings: Settings) -> Path:
    return settings.folder / "coming"


def _file(settings: Settings, name: str, about: str = "") -> Path:
    return _folder(settings) / (f"{name}.{about}" if about else name)


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1] if lines else ""


def _main() -> None:
    settings = Settings.from_environment()
    with ended_by_sigterm():
        work(settings, lambda line: print(line, flush=True))  # noqa: T201  # its log
        Processes(settings).forget(NAME)


if __name__ == "__main__":
    _main()
