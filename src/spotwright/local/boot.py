"""The file an environment's interpreter executes: it makes the modules beside it importable and hands over.

The environments of tasks do not contain Spotwright, and user code must neither see this folder's modules by their short names
nor find this folder on ``sys.path``. So they become a package of a private name, and the folder is taken off the path.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

_PACKAGE = "_spotwright_local"


def main() -> None:
    """``boot.py server FD`` serves forks on a socket; ``boot.py task FD`` runs the one attempt that a file holds."""
    what, descriptor = sys.argv[1:]
    folder = str(Path(__file__).parent)
    if sys.path and sys.path[0] == folder:
        del sys.path[0]
    package = types.ModuleType(_PACKAGE)
    package.__path__ = [folder]
    sys.modules[_PACKAGE] = package
    if what == "server":
        importlib.import_module(f"{_PACKAGE}.forkserver").serve(int(descriptor))
    else:
        importlib.import_module(f"{_PACKAGE}.taskmain").run_executed(int(descriptor))


if __name__ == "__main__":
    main()
