"""Compile every pipeline of ``pipelines.py`` into a folder: the SDK's part, done before anything is measured."""

import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")  # the SDK's advice to authors of components

import pipelines  # noqa: E402
from kfp import compiler  # noqa: E402

for name in ("chain", "packaged_chain", "independent", "sleeping", "looping", "waiting"):
    compiler.Compiler().compile(getattr(pipelines, name), str(Path(sys.argv[1]) / f"{name}.yaml"))
