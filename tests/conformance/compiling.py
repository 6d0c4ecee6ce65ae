"""Compile every conformance pipeline with the SDK, in a process of its own: ``compiling.py FOLDER``.

With ``compiling.py FOLDER each`` it compiles what lies in that folder.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

from spotwright.kfp import dsl_compiler

PIPELINES = Path(__file__).with_name("pipelines")
IMPORTABLE = PIPELINES / "importable"
"""Modules that components import from outside the SDK."""


def compile_all(folder: Path) -> None:
    """Compile every conformance pipeline into a folder, in a separate process."""
    subprocess.run([sys.executable, __file__, str(folder)], check=True)


def compile_all_here(folder: Path) -> None:
    """Write ``NAME.json`` for each pipeline that a module below ``pipelines`` names in ``__all__``."""
    warnings.simplefilter("ignore")
    from kfp import compiler

    sys.path[:0] = [str(PIPELINES), str(IMPORTABLE)]
    sys.dont_write_bytecode = True
    with dsl_compiler.patched_compiler():
        for path in sorted(PIPELINES.glob("*.py")):
            module = importlib.import_module(path.stem)
            for name in getattr(module, "__all__", ()):
                compiler.Compiler().compile(getattr(module, name), str(folder / f"{name}.yaml"))


def compile_each(folder: Path) -> None:
    """Compile the last pipeline of each module in a folder: ``NAME.yaml``, or ``NAME.refused`` with the SDK's error."""
    subprocess.run([sys.executable, __file__, str(folder), "each"], check=True)


def _check(spec: Any) -> None:
    """Raise ``ValueError`` for a pipeline that SDK 2.17 compiles wrongly, so that no backend could run it.

    A loop of a nested pipeline takes the component of a loop around it, which is left empty; a loop in branches reads its item
    from a place where it does not exist; and a list of artifacts is not passed into the groups around the loop over it.
    """
    for name, component in [*spec.components.items(), ("root", spec.root)]:
        if not component.HasField("dag") and not component.executor_label:
            raise ValueError(f"the SDK left {name} empty")
        given = component.input_definitions
        for inputs in (task.inputs for task in component.dag.tasks.values()):
            read = {each.component_input_artifact for each in inputs.artifacts.values()} - {"", *given.artifacts}
            if read:
                raise ValueError(f"the SDK does not pass {read} into {name}")
    if re.search(r'output_parameter_key: "[^"]*loop-item|component_input_parameter: "loop-item', str(spec)):
        raise ValueError("the SDK reads an item from elsewhere")


def compile_each_here(folder: Path) -> None:
    """Compile as :func:`compile_each` does, in this process."""
    warnings.simplefilter("ignore")
    from kfp import compiler

    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    with dsl_compiler.patched_compiler():
        for path in sorted(folder.glob("*.py")):
            try:
                pipeline = importlib.import_module(path.stem).PIPELINE
                _check(pipeline.pipeline_spec)
                compiler.Compiler().compile(pipeline, str(path.with_suffix(".yaml")))
            except Exception as error:  # noqa: BLE001 (any error of the SDK counts as a refusal)
                path.with_suffix(".refused").write_text(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    (compile_each_here if sys.argv[2:] == ["each"] else compile_all_here)(Path(sys.argv[1]))
