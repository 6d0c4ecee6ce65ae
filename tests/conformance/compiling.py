"""Compile every conformance pipeline with the SDK, in a process of its own: ``compiling.py FOLDER``."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from pathlib import Path

from spotwright.pipelines import sdk

PIPELINES = Path(__file__).with_name("pipelines")
IMPORTABLE = PIPELINES / "importable"
"""What components import that comes from neither the SDK nor themselves."""


def compile_all(folder: Path) -> None:
    """Compile them in a process of its own."""
    subprocess.run([sys.executable, __file__, str(folder)], check=True)


def main(folder: Path) -> None:
    """Write ``NAME.json`` for each pipeline that a module below ``pipelines`` names in ``__all__``."""
    warnings.simplefilter("ignore")
    from kfp import compiler

    sys.path[:0] = [str(PIPELINES), str(IMPORTABLE)]
    sys.dont_write_bytecode = True
    with sdk.mended():
        for path in sorted(PIPELINES.glob("*.py")):
            module = importlib.import_module(path.stem)
            for name in getattr(module, "__all__", ()):
                compiler.Compiler().compile(getattr(module, name), str(folder / f"{name}.yaml"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
