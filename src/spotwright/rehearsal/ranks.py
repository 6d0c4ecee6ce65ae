"""The ranks of a distributed training: the processes that a launcher such as torchrun starts, each of which represents a node.

The node of a rank is the rank's process with its descendants, such as data loaders. Each rank has a separate notice file;
``SPOTWRIGHT_NOTICE_FILE`` names the pattern. SIGTERM reaches the rank's process group if the rank leads one, as with torchrun,
which starts each worker in a new session; SIGKILL reaches every process of the node. As on a cluster, the launcher and the
other ranks see a lost peer.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

from spotwright.errors import InputError
from spotwright.local.supervisor import process_identity
from spotwright.notices.from_env import RANK, RANK_VARIABLES, rank_of
from spotwright.rehearsal.attempt_trace import AttemptTrace
from spotwright.rehearsal.syscall_tracer import command_of, process_tree

__all__ = ["TakenRanks", "launcher_of", "notice_pattern", "rank_processes", "require_ranks", "write_notices"]


_FILE = f"notice-{RANK}.json"


def notice_pattern(folder: str) -> str:
    """The value of ``SPOTWRIGHT_NOTICE_FILE`` for the ranks of an attempt with this folder."""
    return f"{folder}/{_FILE}"


def write_notices(folder: str, ranks: Iterable[int], noticed_at: float, goes_at: float, why: str) -> None:
    """Write the notice files of some ranks, each atomically. Times are Unix seconds."""
    content = {"noticed_at": noticed_at, "goes_at": goes_at, "seconds": goes_at - noticed_at, "why": why}
    for rank in ranks:
        path = Path(notice_pattern(folder).replace(RANK, str(rank)))
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(content), "utf-8")
        temporary.replace(path)


def rank_processes(main: int) -> dict[int, int]:
    """The process of each rank below an attempt's main process, by rank: the topmost with that rank in its environment.

    A forked process shows its parent's environment, so it is found only if it was executed with its rank, or has a rank of its
    own.
    """
    environments = {
        process: _environ(process) for process in process_tree(main) if process != main and _is_alive(process)
    }
    for name in RANK_VARIABLES:  # a launcher may itself have been started with a rank of another kind
        found: dict[int, int] = {}
        for process, environ in environments.items():
            rank = rank_of({name: environ.get(name, "")})
            if rank is not None:
                found.setdefault(rank, process)
        if found:
            return dict(sorted(found.items()))
    return {}


def _environ(process: int) -> Mapping[str, str]:
    pairs = (os.fsdecode(each).partition("=") for each in process_identity.environ(process))
    return {name: value for name, _, value in pairs}


def launcher_of(ranks: Mapping[int, int], main: int) -> int | None:
    """The process that started the ranks; ``None`` if they do not share one parent, or if it is the attempt's main process."""
    parents = {stat.parent for each in ranks.values() if (stat := process_identity.stat(each)) is not None}
    return parents.pop() if len(parents) == 1 and main not in parents else None


def require_ranks(count: int, undisturbed: AttemptTrace) -> None:
    """Raise :class:`InputError` if the undisturbed step had other ranks than stated; 0: not stated."""
    if count and not undisturbed.failure and undisturbed.ranks != tuple(range(count)):
        had = ", ".join(map(str, undisturbed.ranks)) or "none"
        raise InputError(
            f"--ranks {count}: expected processes with RANK=0 to RANK={count - 1} in their environment, as torchrun starts "
            f"them, and the ranks of this step were {had}"
        )


class TakenRanks:
    """The nodes of some ranks of an attempt, or the launcher of all of them, while they are reclaimed.

    ``missing`` says why they cannot be reclaimed: the attempt has no such process. ``main`` is the attempt's main process,
    Spotwright's.
    """

    def __init__(self, main: int, ranks: Iterable[int], *, of_launcher: bool) -> None:
        found = rank_processes(main)
        absent = [str(rank) for rank in ranks if rank not in found]
        self._main, self._launcher = main, launcher_of(found, main) if of_launcher else None
        self._nodes = found if of_launcher else {rank: found[rank] for rank in ranks if rank in found}
        self.missing = f"no process has RANK={absent[0]} in its environment" if absent else ""
        if of_launcher and self._launcher is None:
            self.missing = "no process has started the ranks" if found else "no process has a RANK in its environment"

    def terminate(self) -> None:
        """Send SIGTERM to each rank: to its process group if it leads one, else to its process."""
        for process in self._nodes.values():
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(process) == process:
                    os.killpg(process, signal.SIGTERM)
                else:
                    os.kill(process, signal.SIGTERM)

    def kill(self) -> None:
        """Kill every process of the nodes; or the launcher alone, while the main process is stopped."""
        if self._launcher is not None:
            _signal(self._main, signal.SIGSTOP)
            _signal(self._launcher, signal.SIGKILL)
            return
        for node in self._nodes.values():
            for process in list(process_tree(node)):  # the top first, so that it does not restart the others
                _signal(process, signal.SIGKILL)

    def end_orphans(self) -> dict[int, str]:
        """End the ranks that outlived their launcher, resume the main process, and return the command of each rank."""
        orphans = {rank: command_of(process) for rank, process in self._nodes.items() if _is_alive(process)}
        for rank in orphans:
            for process in list(process_tree(self._nodes[rank])):
                _signal(process, signal.SIGKILL)
        _signal(self._main, signal.SIGCONT)
        return orphans


def _signal(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _is_alive(process: int) -> bool:
    stat = process_identity.stat(process)
    return stat is not None and stat.state not in "ZX"
