"""Collects the modules of spotwright-train from the clone before anything is built; everything else stands in pyproject.toml.

They are those of the one-file form (``spotwright.checkpoint_file``), unchanged. The source distribution holds them, so what is
built from it needs no clone.
"""

import shutil
import sys
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
MODULES = HERE / "spotwright_train"


def collect() -> None:
    """Copy the modules and the licence out of the clone around this folder."""
    sys.path.insert(0, str(SOURCE))
    from spotwright.checkpoint_file import library_modules

    shutil.rmtree(MODULES, ignore_errors=True)
    for path in library_modules():
        if path.parts != ("__init__.py",):  # spotwright.py stands in its place
            target = MODULES / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / "spotwright" / path, target)
    shutil.copy(HERE.parents[1] / "LICENSE", HERE)


if HERE.parent.name == "distributions":  # else this is the source distribution, unpacked
    collect()
setup()
