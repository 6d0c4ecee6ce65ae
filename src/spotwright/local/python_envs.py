"""Python environments for tasks with ``packages_to_install``: built once for each set of packages, and cached.

A task waits for its environment, in a separate phase without a node, before its attempt is placed. A build is a
process beside the engine. The log is a file of the run, readable during and after the build. Orders
for the same environment share a build; builders of several engines wait for each other (:mod:`.build_environment`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, cast

from spotwright.engine.events import EnvironmentAsked, EnvironmentChanged, Event
from spotwright.engine.ports import Clock, Outcome, Refused
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError, StateError
from spotwright.graph import Executor
from spotwright.kfp.executors import PythonComponent
from spotwright.local.protocol import PythonEnvironment
from spotwright.version import __version__

__all__ = [
    "BuildFailure",
    "EnvironmentBuilds",
    "TaskEnvironments",
    "cache_folder",
    "directory_of",
    "environment_of",
    "find_python",
    "linked_packages",
    "python_of",
    "shown_packages",
    "tail",
]


def cache_folder() -> Path:
    """The default folder of environments, below ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spotwright" / "environments"


def directory_of(environment: PythonEnvironment, cache: Path) -> Path:
    """The directory of an environment, determined by Python, packages and indexes; the packages' order does not matter."""
    from spotwright.local.build_environment import LINKED  # here: few tasks have packages

    packages: Sequence[str] = environment.packages
    if not any(
        package.startswith("-") for package in packages
    ):  # options have values behind them, so the order matters
        packages = sorted(packages)
    # the layout counts, so that environments of older layouts are rebuilt
    request = [
        LINKED,
        python_of(environment),
        sys.version,
        list(packages),
        environment.index_urls,
        environment.trusted_hosts,
    ]
    return cache / hashlib.sha256(json.dumps(request).encode()).hexdigest()[:32]


def find_python(environment: PythonEnvironment, cache: Path) -> str | None:
    """The interpreter of an environment; ``None`` if the environment has to be built first."""
    if not environment.packages:
        return python_of(environment)
    from spotwright.local.build_environment import interpreter, is_built, mark_used  # here: as above

    directory = directory_of(environment, cache)
    if not is_built(directory):
        return None
    _renew_links(directory)
    mark_used(directory)
    return str(interpreter(directory))


def python_of(environment: PythonEnvironment) -> str:
    """The interpreter that an environment is made of."""
    return environment.python or sys.executable


@functools.cache
def linked_packages() -> dict[str, str]:
    """The folders of KFP and Spotwright by package name. KFP is found without importing it, which would take 80 MB."""
    folders = {}
    for name in ("kfp", "spotwright"):
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise StateError(f"{name} cannot be imported by {sys.executable}: install Spotwright with its dependencies")
        folders[name] = os.path.realpath(spec.submodule_search_locations[0])
    return folders


def _renew_links(directory: Path) -> None:
    """Renew the links to packages whose installation was moved or removed."""
    from spotwright.local.build_environment import LINKED  # here: as above

    for name, target in linked_packages().items():
        link = directory / LINKED / name
        if link.is_symlink() and link.exists() and os.path.realpath(link) == target:
            continue
        temporary = link.with_name(f"{name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.rename(link)


_MAX_BYTES = 2000


def tail(descriptor: int, since: int = 0) -> str:
    """The last lines of the output, at most 2000 bytes and none before the position ``since``, decoded and stripped."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, _MAX_BYTES, max(since, size - _MAX_BYTES)).decode(errors="replace").strip()


_BUILDER = Path(__file__).with_name("build_environment.py")
_MAX_LINES = 8
_UNREACHABLE = re.compile(
    r"NewConnectionError|ConnectTimeoutError|Failed to establish a new connection|Temporary failure in name resolution"
    r"|Name or service not known|ProxyError|dns error|tcp connect error|Connection refused",
    re.IGNORECASE,
)
_MISSING = re.compile(r"No matching distribution found for (?P<pip>.+)|Because (?P<uv>\S+) was not found")
_REFUSED = re.compile(r"\b(?:401 (?:Client )?Error|403 (?:Client )?Error|401 Unauthorized|403 Forbidden)")


class BuildFailure(NamedTuple):
    """Why an environment could not be built: a reason for people, and the last lines of the build's log."""

    why: str
    last_lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"packages could not be installed: {self.why}", *self.last_lines])


OnEnd = Callable[[BuildFailure | None], None]
"""Called at the end of a build; ``None``: the environment is ready."""


@dataclass(slots=True)
class _Build:
    """A running build. ``pidfd`` becomes readable when it ends."""

    environment: PythonEnvironment
    process: subprocess.Popen[bytes]
    pidfd: int
    log: int
    log_begin: int  # earlier builds wrote the text before it
    on_end: list[OnEnd] = field(default_factory=list)


class EnvironmentBuilds:
    """The environments of one engine below the folder ``cache``. Ends of builds come through the selector.

    ``logs`` is the folder of their logs, ``marks`` the variables by which the processes of a run are found.
    """

    def __init__(self, selector: selectors.BaseSelector, cache: Path, logs: Path, marks: Mapping[str, str]) -> None:
        self._selector, self._cache, self._logs, self._marks = selector, cache, logs, marks
        self._running: dict[PythonEnvironment, _Build] = {}

    @property
    def running(self) -> list[int]:
        """The pids of the builders that run."""
        return [build.process.pid for build in self._running.values()]

    def find_python(self, environment: PythonEnvironment) -> str | None:
        """The interpreter of an environment; ``None`` if the environment has to be built first."""
        return None if environment in self._running else find_python(environment, self._cache)

    def log_of(self, environment: PythonEnvironment) -> str:
        """The name of the log of an environment's build in the folder of logs."""
        return f"{directory_of(environment, self._cache).name}.log"

    def build(self, environment: PythonEnvironment, on_end: OnEnd) -> None:
        """Build an environment, or join its running build. Raises ``OSError`` or :class:`StateError`."""
        build = self._running.get(environment)
        if build is None:
            build = self._running[environment] = self._start(environment)
            self._selector.register(build.pidfd, selectors.EVENT_READ, partial(self._ended, build))
        build.on_end.append(on_end)

    def cancel(self) -> None:
        """Kill all builds with their children. An incomplete environment is built again when it is needed."""
        for build in self._running.values():
            self._selector.unregister(build.pidfd)
            os.killpg(build.process.pid, signal.SIGKILL)  # not waited for yet, so the group's number is not reused
            _finish(build)
        self._running.clear()

    def _start(self, environment: PythonEnvironment) -> _Build:
        request = {
            "python": python_of(environment),
            "packages": environment.packages,
            "index_urls": environment.index_urls,
            "trusted_hosts": environment.trusted_hosts,
            "linked": linked_packages(),
            "shown": shown_packages(environment),
        }
        self._logs.mkdir(parents=True, exist_ok=True)
        log = os.open(self._logs / self.log_of(environment), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        log_begin = os.fstat(log).st_size
        try:
            process = subprocess.Popen(
                [sys.executable, str(_BUILDER), str(directory_of(environment, self._cache))],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._marks},
                start_new_session=True,
            )
        except OSError:
            os.close(log)
            raise
        # a builder that failed before reading has reported the reason
        with contextlib.suppress(BrokenPipeError), cast("IO[bytes]", process.stdin) as stdin:
            stdin.write(json.dumps(request).encode())
        return _Build(environment, process, os.pidfd_open(process.pid), log, log_begin)

    def _ended(self, build: _Build) -> None:
        self._selector.unregister(build.pidfd)
        del self._running[build.environment]
        failure = _finish(build)
        for on_end in build.on_end:
            on_end(failure)


def shown_packages(environment: PythonEnvironment) -> tuple[str, ...]:
    """The packages of an environment for people: without credentials."""
    from spotwright.local.build_environment import without_credentials  # here: few tasks have packages

    return tuple(map(without_credentials, environment.packages))


def _finish(build: _Build) -> BuildFailure | None:
    """Wait for a builder that has ended or was killed. Returns why it failed."""
    from spotwright.local.build_environment import without_credentials  # here: few tasks have packages

    status = build.process.wait()
    output = without_credentials(tail(build.log, build.log_begin))
    os.close(build.pidfd)
    os.close(build.log)
    if status == 0:
        return None
    return BuildFailure(_reason(build.environment, output, status), tuple(output.splitlines()[-_MAX_LINES:]))


def _reason(environment: PythonEnvironment, output: str, status: int) -> str:
    """The cause of a failure by pip's or uv's output. Without a network pip also reports a missing package."""
    from spotwright.local.build_environment import UNWRITABLE  # here: few tasks have packages

    if status == UNWRITABLE:
        return output.splitlines()[-1]
    missing = _MISSING.search(output)
    packages = " ".join(shown_packages(environment))
    if _UNREACHABLE.search(output):
        return f"the package index cannot be reached, for {packages}"
    if _REFUSED.search(output):
        return f"the package index refuses the credentials, for {packages}"
    if missing is not None:
        return f"no package index has {(missing['pip'] or missing['uv']).strip()}"
    how = f"was killed by signal {-status}" if status < 0 else f"ended with exit code {status}"
    return f"the installation of {packages} {how}"


_PRESENT = frozenset(
    f"{name}{version}" for name in ("spotwright", "spotwright-train") for version in ("", f"=={__version__}")
)
"""Components' requirements that every environment of a run meets."""


def environment_of(executor: Executor | None) -> PythonEnvironment:
    """The environment of a task's attempts. Every environment has this version of Spotwright, without pip."""
    if not isinstance(executor, PythonComponent):
        return PythonEnvironment()
    packages = tuple(package for package in executor.packages if package.replace(" ", "") not in _PRESENT)
    return PythonEnvironment(packages, executor.index_urls, executor.trusted_hosts)


class TaskEnvironments:
    """The local backend's answers to the engine's requests for environments."""

    def __init__(self, builds: EnvironmentBuilds, clock: Clock) -> None:
        self._builds, self._clock = builds, clock
        self._facts: list[Event] = []

    def look_up(self, state: RunState, event: EnvironmentAsked) -> EnvironmentChanged:
        """Whether the environment of a task is ready or will be built. It starts no build."""
        environment = environment_of(state.tasks[event.task].plan.spec.executor)
        if self._is_ready(environment):
            return EnvironmentChanged(event.at, event.task, state="ready")
        return EnvironmentChanged(
            event.at,
            event.task,
            state="building",
            packages=shown_packages(environment),
            log=self._builds.log_of(environment),
        )

    def build(self, state: RunState, event: EnvironmentAsked) -> Outcome:
        """Build the environment of a task that waits for it."""
        if event.task not in state.preparing:
            return None
        environment = environment_of(state.tasks[event.task].plan.spec.executor)
        try:
            self._builds.build(environment, partial(self._on_end, event.task))
        except (OSError, SpotwrightError) as error:
            return Refused(str(error))
        return None

    def take_facts(self) -> list[Event]:
        """The ends of builds since the last call."""
        facts, self._facts = self._facts, []
        return facts

    def _is_ready(self, environment: PythonEnvironment) -> bool:
        return not environment.packages or self._builds.find_python(environment) is not None

    def _on_end(self, task: str, failure: BuildFailure | None) -> None:
        if failure is None:
            changed = EnvironmentChanged(self._clock(), task, state="ready")
        else:
            changed = EnvironmentChanged(
                self._clock(), task, state="failed", why=failure.why, last_lines=failure.last_lines
            )
        self._facts.append(changed)
