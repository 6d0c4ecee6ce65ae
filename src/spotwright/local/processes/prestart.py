"""Starts the fork server of a run while the engine is still being imported.

Importing the engine, reading the configuration and writing the run take longer than a fork server needs to be ready. So the
command line names the run and starts the server as soon as it knows the pipeline, or the run to resume; this module is light for
that reason. The server also forks the shims of the first tasks and lets them prepare the private folders that tasks have if they
name no path of this machine; a shim whose first task names one prepares them again.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from spotwright.local.processes.fork_server_client import MAX_STARTING, ForkServer
from spotwright.local.supervisor import process_identity

__all__ = ["EarlyServer"]


class EarlyServer:
    """The fork server of the running interpreter for the run in this folder; ended with the block unless it was taken.

    ``tasks`` is how many tasks can start at once when the run begins, as far as that is known.
    """

    def __init__(self, folder: Path, tasks: int = 0) -> None:
        self._server: ForkServer | None = None
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # whoever needs it starts one later, and says why that fails
                self._server = ForkServer(sys.executable, process_identity.marks(folder.name, folder))
                _fork_shims(self._server, folder.absolute().parent, min(tasks, MAX_STARTING))

    def take(self) -> ForkServer | None:
        """The server, for whoever ends it from now on; ``None`` where it could not be started."""
        server, self._server = self._server, None
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server = self.take()
        if server is not None:
            server.close(patience=0)  # its shims have no attempts, so nothing is lost if it is killed while it boots


def _fork_shims(server: ForkServer, runs: Path, count: int) -> None:
    """Request shims with the private folders of a task that names no path of this machine."""
    from spotwright.local.visible_paths import private_folder_settings  # imported while the server boots

    private = private_folder_settings(str(runs), "", {}, {})
    if all(Path(path).exists() for path in private.own):  # a folder that is made later could not be seen
        for _ in range(count):
            server.fork_early(private.data)
