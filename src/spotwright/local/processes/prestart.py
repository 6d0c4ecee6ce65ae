"""Starts the fork server of a run while the engine is still being imported.

Importing the engine, reading the configuration and writing the run take as long as a fork server needs to be ready. So the
command line names the run and starts the server as soon as it knows the pipeline, or the run to resume; this module is light for
that reason.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from spotwright.local.processes.fork_server_client import ForkServer
from spotwright.local.supervisor import process_identity

__all__ = ["EarlyServer"]


class EarlyServer:
    """The fork server of the running interpreter for the run in this folder; ended with the block unless it was taken."""

    def __init__(self, folder: Path) -> None:
        self._server: ForkServer | None = None
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # whoever needs it starts one later, and says why that fails
                self._server = ForkServer(sys.executable, process_identity.marks(folder.name, folder))

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
            server.close(patience=0)  # it has no shims, so nothing is lost if it is killed while it boots
