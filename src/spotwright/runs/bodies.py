"""The link from runs to the local backend, which no other module of the package imports.

Reading a run needs the backend only to check whether its engine is alive. So the local backend is imported on use; a test
ensures that listing and showing runs do not import it. The engine is imported only for annotations: the command line uses this
module to start a run's fork server, which boots while the engine is being imported.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spotwright.records.state_folder import Cache, RunFolder, StateFolder

if TYPE_CHECKING:  # `as` offers a name to annotations elsewhere; __all__ has only what exists at run time
    from spotwright.engine.events import Event
    from spotwright.engine.plan import Plan
    from spotwright.engine.ports import Clock, Holder
    from spotwright.engine.state import RunState
    from spotwright.kfp.secrets import Secrets
    from spotwright.local.attempt_orders import AttemptPaths
    from spotwright.local.backend import LocalBackend
    from spotwright.local.backend import LocalHooks as LocalHooks  # noqa: PLC0414
    from spotwright.local.fork_server_client import EarlyServer as EarlyServer  # noqa: PLC0414
    from spotwright.local.preflight import HostResources as HostResources  # noqa: PLC0414
    from spotwright.records.stored_plan import StoredPlan

__all__ = [
    "REQUEST_SIGNAL",
    "CachedEnvironment",
    "RunToExecute",
    "cached_environments",
    "check_machine",
    "early_server",
    "environments_folder",
    "hide_secrets",
    "is_alive",
    "local_clock",
    "local_hooks",
    "open_backend",
    "read_secrets",
    "read_secrets_again",
    "require_lasting",
    "require_platform",
    "run_folders_in_use",
    "settle",
    "this_process",
    "unmet_requests",
    "wake",
]

_ENVIRONMENT = re.compile("[0-9a-f]{32}")
"""The local backend's names of environments."""

REQUEST_SIGNAL = getattr(signal, "SIGUSR1", None)
"""The signal to an engine after a request was written to its journal; ``None`` on platforms without an engine."""


def require_platform() -> None:
    """Raise :class:`~spotwright.errors.UnsupportedPlatform` on platforms that cannot run attempts."""
    from spotwright.local.host import require_linux

    require_linux()


def require_lasting(folder: Path) -> None:
    """Raise :class:`InputError` for a folder that is private to each attempt: a script's files there are lost."""
    from spotwright.errors import InputError
    from spotwright.local.supervisor.private_folders import private_folders

    if str(folder.resolve()) in private_folders():
        raise InputError(
            f"{folder}: files that a script writes here are lost with its attempt, as on a reclaimed node; run it in another"
            " folder"
        )


def local_clock() -> Clock:
    """The clock of an engine on this machine."""
    from spotwright.local.host import steady_clock

    return steady_clock()


# The lease of a run


def this_process() -> Holder:
    """This process as the holder of a lease."""
    from spotwright.local.supervisor.process_identity import mine

    return mine()._asdict()


def is_alive(holder: Holder) -> bool:
    """Whether the process that holds a lease is alive. Never on macOS and Windows: engines run on Linux."""
    descriptor = _open(holder)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def wake(journal: Path, holder: Holder) -> bool:
    """Wake the engine of this journal to read its requests. Returns whether the lease's holder is that engine.

    The journal, which names the holder, may be untrusted. So the kernel must confirm that this process has the journal open for
    writing and handles the signal.
    """
    descriptor = _open(holder)
    if descriptor is None or REQUEST_SIGNAL is None:
        return False
    from spotwright.local import host

    try:
        if not (host.writes(holder["pid"], journal) and host.handles(holder["pid"], REQUEST_SIGNAL)):
            return False
        signal.pidfd_send_signal(descriptor, REQUEST_SIGNAL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _open(holder: Holder) -> int | None:
    if sys.platform != "linux":
        return None
    from spotwright.local.supervisor.process_identity import open_process, read_identity

    try:
        return open_process(read_identity(holder))
    except ValueError:
        return None


def run_folders_in_use() -> frozenset[Path]:
    """The folders of runs with a live process on this machine, whether or not an engine drives them."""
    from spotwright.local import host as activity

    return activity.run_folders_in_use()


class CachedEnvironment(NamedTuple):
    """A Python environment in the user's cache. ``used_at`` is in Unix seconds."""

    path: Path
    used_at: float
    in_use: bool  # one of its processes is alive, or it is being built


def environments_folder() -> Path:
    """The cache of Python environments for ``packages_to_install``, shared by all projects of this user."""
    from spotwright.local.python_envs import cache_folder

    return cache_folder()


def cached_environments() -> list[CachedEnvironment]:
    """The Python environments in that cache."""
    from spotwright.local import host as activity
    from spotwright.local.build_environment import used_at

    cache = environments_folder()
    paths = [path for path in cache.iterdir() if _ENVIRONMENT.fullmatch(path.name)] if cache.is_dir() else []
    in_use = activity.environments_in_use(cache)
    return [CachedEnvironment(path, used_at(path), path.name in in_use) for path in sorted(paths)]


# Before a run


def early_server(folder: Path, tasks: int) -> EarlyServer:
    """Start the fork server for the run in this folder, where ``tasks`` start at once, while the engine is being imported."""
    from spotwright.local.fork_server_client import EarlyServer

    return EarlyServer(folder, tasks)


def local_hooks(server: EarlyServer) -> LocalHooks:
    """The hooks of a run whose fork server was started early."""
    from spotwright.local.backend import LocalHooks

    return LocalHooks(server)


def read_secrets(plan: Plan, arguments: Mapping[str, Any]) -> HostResources:
    """The secrets, config maps and stored arguments of a plan; see :mod:`spotwright.local.preflight`."""
    from spotwright.local import preflight

    return preflight.read_secrets(plan, arguments)


def read_secrets_again(plan: Plan, given: Mapping[str, Any], *, textual: bool) -> HostResources:
    """The same as :func:`read_secrets`, from the journal's form of arguments."""
    from spotwright.local import preflight

    return preflight.read_secrets_again(plan, given, textual=textual)


def check_machine(stored: StoredPlan, host: HostResources, containers: str) -> HostResources:
    """Check that this machine can run the tasks of a plan. Raises :class:`~spotwright.errors.PipelineError`."""
    from spotwright.local import preflight

    return preflight.check_machine(stored.place_of, stored.plan.graph, host, containers)


def unmet_requests(plan: Plan, host: HostResources) -> Sequence[str]:
    """Warnings for settings that this machine cannot honour."""
    from spotwright.local import preflight

    return preflight.unmet_requests(plan, host.containers)


# A run


class RunToExecute(NamedTuple):
    """A run whose lease is held under this epoch. ``caching``: earlier results may be used."""

    folder: RunFolder
    epoch: int
    state: RunState
    stored: StoredPlan
    host: HostResources
    caching: bool


def open_backend(
    run: RunToExecute,
    selector: selectors.BaseSelector,
    clock: Clock,
    facts: Callable[[], list[Event]],
    hooks: LocalHooks | None = None,
) -> AbstractContextManager[LocalBackend]:
    """The backend of a run on this machine. ``facts`` returns the stops and requests since its last call."""
    from spotwright.local import backend
    from spotwright.local.result_cache import Results

    host, stored = run.host, run.stored
    paths = replace(_paths(run.folder, run.epoch, host.secrets), containers=host.containers, objects=host.objects)
    cache = Cache(StateFolder(paths.folder.parent.parent).cache)
    results = Results(cache.find, cache.keep) if run.caching else None
    engine = backend.EngineSide(selector, clock, facts)
    traces, pools = stored.traces, stored.plan.config.pools
    return backend.open_backend(engine, paths, run.state, pools, traces, results, hooks or backend.LocalHooks())


def settle(folder: RunFolder, epoch: int, state: RunState, secrets: Secrets | None) -> list[Event]:
    """End the attempts of a dead engine, for a run that is cancelled. Returns the facts about them.

    ``secrets`` is ``None`` if they cannot be read.
    """
    from spotwright.kfp.secrets import Secrets as NoSecrets
    from spotwright.local.recovery import settle_run

    paths = _paths(folder, epoch, secrets or NoSecrets())
    return settle_run(state, paths, secrets_known=secrets is not None)


def hide_secrets(folder: RunFolder, state: RunState, secrets: Secrets) -> None:
    """Hide secrets in the outputs of every attempt, once the facts of :func:`settle` are committed."""
    from spotwright.local.recovery import hide_secrets_everywhere

    hide_secrets_everywhere(state, _paths(folder, state.epoch, secrets))


def _paths(folder: RunFolder, epoch: int, secrets: Secrets) -> AttemptPaths:
    """The absolute paths that the attempts of a run use."""
    from spotwright.local.attempt_orders import AttemptPaths

    here = RunFolder(folder.path.absolute())
    state = StateFolder(here.path.parent.parent)
    return AttemptPaths(folder.name, epoch, str(here.path.parent), here.attempt, here.checkpoint, state.volume, secrets)
