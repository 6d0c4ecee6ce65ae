"""What of a run's start need not wait for the rest: a fork server that boots on another processor meanwhile.

Importing the engine, reading the configuration and writing the run take as long as a fork server needs to be ready. So the
command line names the run and starts the server as soon as it knows the pipeline; this module is light for that reason.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from spotwright.local import identity
from spotwright.local.servers import ForkServer

__all__ = ["EarlyServer", "new_name"]

_LETTERS = "abcdefghjkmnpqrstvwxyz23456789"


def new_name(pipeline: str) -> str:
    """A run's name that sorts by nothing, reads well and is short to type: the pipeline's with five random letters."""
    slug = re.sub(r"[^a-z0-9]+", "-", pipeline.lower()).strip("-")[:40] or "run"
    return f"{slug}-{''.join(secrets.choice(_LETTERS) for _ in range(5))}"


class EarlyServer:
    """The fork server of the running interpreter for the run in this folder; ended with the block unless it was taken."""

    def __init__(self, folder: Path) -> None:
        self._server: ForkServer | None = None
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # whoever needs it starts one later, and says why that fails
                self._server = ForkServer(sys.executable, identity.marks(folder.name, folder))

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
            server.close()
