"""The script that a task environment's interpreter executes: it imports the modules beside it and calls one of them.

Spotwright is not installed in the environments of tasks. User code must neither import the modules of this folder by their short
names nor find the folder on ``sys.path``. So the modules become a package with a private name, and the folder leaves the path.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

_PACKAGE = "_spotwright_supervisor"


def main() -> None:
    """``bootstrap.py server FD`` runs the fork server on a socket; ``bootstrap.py task FD`` runs the attempt in a file."""
    mode, descriptor = sys.argv[1:]
    folder = str(Path(__file__).parent)
    if sys.path and sys.path[0] == folder:
        del sys.path[0]
    package = types.ModuleType(_PACKAGE)
    package.__path__ = [folder]
    sys.modules[_PACKAGE] = package
    if mode == "server":
        importlib.import_module(f"{_PACKAGE}.fork_server").serve(int(descriptor))
    else:
        importlib.import_module(f"{_PACKAGE}.executor_main").run_executed(int(descriptor))


if __name__ == "__main__":
    main()
