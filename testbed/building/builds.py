"""Builds the programs of the test bed into a cache, each on its own, and never twice.

An entry of the cache is a folder `<name>-<version>-<digest of its sources>`. It appears by a rename once it is complete, so
an interrupted build leaves only a folder `.partial-*`, which the next build of that entry replaces, and the entries before
it stay. Go keeps compiled packages in its own cache, which makes the second attempt shorter too. The lock of the cache,
which is held for one entry at a time, lets two commands at once build everything once.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.building.programs import GO, MANIFESTS, PROGRAMS, Manifests, Program, digest_of, version_of
from testbed.errors import OutOfTimeError, TestbedError

__all__ = ["FIRST_TIME", "MINUTE", "Cache", "build_all", "build_one"]

FIRST_TIME = "45 minutes"
"""With empty caches, as the README, the help and the command say it: 43 minutes were measured on two busy cores."""

_ALWAYS = ("kubernetes", "pause")
"""The folders whose programs every cluster needs; all others are named after the controller that they are for."""

_FOLDERS = tuple(dict.fromkeys(program.folder for program in PROGRAMS))
_ITEMS: tuple[Program | Manifests, ...] = tuple(
    sorted((*PROGRAMS, *MANIFESTS), key=lambda item: _FOLDERS.index(item.folder))
)
"""A controller's programs and then its manifests, so that a build which is ended leaves whole controllers."""

_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}

_POLL = 0.2  # seconds

MINUTE = 60.0
"""Seconds between two lines of build progress."""


class Cache:
    """The folder with everything that has been built."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def entry(self, item: Program | Manifests) -> Path:
        """The folder of a program or of manifests, which need not exist."""
        return self.root / f"{item.name}-{version_of(item.folder, item.module)}-{digest_of(item.folder)}"

    def program(self, name: str) -> Path:
        """The executable of a program."""
        return self.entry(next(program for program in PROGRAMS if program.name == name)) / name

    def component(self, name: str) -> Path:
        """The link under which the program ``kubernetes`` is this component."""
        return self.program("kubernetes").parent / name

    def manifests(self, name: str) -> Path:
        """The folder with a module's manifests: ``argo``, ``jobset`` and so on."""
        return self.entry(next(item for item in MANIFESTS if item.name == f"{name}-manifests"))

    def missing(self, controllers: Collection[str]) -> list[Program | Manifests]:
        """What has still to be built for a cluster with these controllers, in order."""
        needed = [item for item in _ITEMS if item.folder in _ALWAYS or item.folder in controllers]
        return [item for item in needed if not self.entry(item).is_dir()]

    @contextmanager
    def locked(self, until: float = math.inf, name: str = ".lock") -> Iterator[None]:
        """Keep other commands from building into the same cache; wait for one that does.

        Raise :class:`OutOfTimeError` if it still does at ``until``, in seconds of ``time.monotonic()``.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / name).open("w") as lock:
            while not _take(lock.fileno()):
                if time.monotonic() >= until:
                    raise OutOfTimeError(f"another command holds {self.root / name}")
                time.sleep(_POLL)
            yield

    @contextmanager
    def new_entry(self, name: str) -> Iterator[Path]:
        """A folder to fill, which is moved to the cache as ``name`` if the block succeeds."""
        partial = self.root / f".partial-{name}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        partial.rename(self.root / name)


def build_all(
    cache: Cache, controllers: Collection[str], progress: Callable[[str], None], *, until: float = math.inf
) -> None:
    """Build what the cache lacks for these controllers; ``progress`` gets one line for each entry.

    Raises :class:`OutOfTimeError` if something is still missing at ``until``, in seconds of ``time.monotonic()``. Complete
    entries stay, and Go keeps its compiled packages, so the next build continues from there.
    """
    missing = cache.missing(controllers)
    for number, item in enumerate(missing, 1):
        build_one(cache, item, progress, until=until, place=f", {number} of {len(missing)}")


def build_one(
    cache: Cache,
    item: Program | Manifests,
    progress: Callable[[str], None],
    *,
    until: float = math.inf,
    place: str = "",
) -> None:
    """Build one entry, unless another command has built it meanwhile; see :func:`build_all`. ``place`` ends its first line."""
    with cache.locked(until):
        if cache.entry(item).is_dir():
            return
        started = time.monotonic()
        what = f"{item.name} {version_of(item.folder, item.module)}"
        progress(f"building {what}{place}")
        with cache.new_entry(cache.entry(item).name) as folder, _told_every_minute(what, progress):
            if isinstance(item, Program):
                _build(item, folder, until)
            else:
                _copy_manifests(item, folder, until)
    progress(f"built {what} in {time.monotonic() - started:.0f} s")


@contextmanager
def _told_every_minute(what: str, progress: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, print each minute what is being built: Go is silent for ten minutes."""
    started, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        while not ended.wait(MINUTE):
            progress(f"still building {what}, since {time.monotonic() - started:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def _build(program: Program, folder: Path, until: float) -> None:
    flags = "-s -w"
    if program.version_variable:
        flags += f" -X {program.version_variable}={version_of(program.folder, program.module)}"
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", str(folder / program.name)]
    if program.vendored:
        source = folder / "source"
        _vendor(program, source, until)
        _go([*command, "-mod=vendor", program.package], source, until)
        shutil.rmtree(source)
    else:
        _go([*command, "-mod=readonly", program.package], GO / program.folder, until)
    for link in program.links:
        (folder / link).symlink_to(program.name)


def _vendor(program: Program, source: Path, until: float) -> None:
    """Copy the module with all it depends on to ``source``, and add the files that the published module lacks."""
    shutil.copytree(GO / program.folder, source, ignore=shutil.ignore_patterns("linux"))
    _go(["go", "mod", "vendor"], source, until)
    for ours, place in program.vendored.items():
        shutil.copy(GO / program.folder / ours, source / "vendor" / program.module / place)


def _copy_manifests(item: Manifests, folder: Path, until: float) -> None:
    listed = _go(["go", "list", "-mod=readonly", "-m", "-json", item.module], GO / item.folder, until)
    module = Path(json.loads(listed)["Dir"])
    for pattern in item.patterns:
        paths = sorted(module.glob(pattern))
        if not paths:
            raise TestbedError(f"{item.module} has no files {pattern}; was its version changed?")
        for path in paths:
            target = folder / path.relative_to(module)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())  # the module's own files are read-only


def _go(command: list[str], folder: Path, until: float) -> str:
    """Run Go, in a new session: its compilers end with it when the time is over or on Ctrl-C.

    The kernel ends it if this process is killed; see PR_SET_PDEATHSIG in prctl(2).
    """
    left = until - time.monotonic()
    if left <= 0:
        raise OutOfTimeError("out of time")
    setpriv = shutil.which("setpriv")  # of util-linux
    process = subprocess.Popen(
        [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), *command],
        cwd=folder,
        env={**os.environ, **_ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            _hand_on_priority(process.pid)
            output, errors = process.communicate(timeout=None if math.isinf(left) else left)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise OutOfTimeError(f"`{' '.join(command)}` was ended") from error
            raise
    if process.returncode != 0:
        raise TestbedError(f"`{' '.join(command)}` failed in {folder}:\n{errors.strip()[-4000:]}")
    return output


def _hand_on_priority(pid: int) -> None:
    """Give a session the priority of this process: Linux weighs sessions first, see "The autogroup feature" in sched(7)."""
    try:
        Path(f"/proc/{pid}/autogroup").write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))
    except OSError:  # it has ended, or Linux weighs processes alone, which inherit their priority
        return


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
