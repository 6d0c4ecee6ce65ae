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


def compile_each(folder: Path) -> None:
    """Compile the last pipeline of each module in a folder: ``NAME.yaml``, or ``NAME.refused`` with the SDK's words."""
    subprocess.run([sys.executable, __file__, str(folder), "each"], check=True)


def _check(spec: Any) -> None:
    """Refuse what SDK 2.17 writes wrongly, so that no backend could run it.

    A loop of a pipeline inside takes the component of a loop around it, which is left empty; a loop in branches reads its item
    from where it is not; and a list of artifacts is not passed into the groups around the loop that goes over it.
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


def each(folder: Path) -> None:
    """What :func:`compile_each` does, in this process."""
    warnings.simplefilter("ignore")
    from kfp import compiler

    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    with sdk.mended():
        for path in sorted(folder.glob("*.py")):
            try:
                pipeline = importlib.import_module(path.stem).PIPELINE
                _check(pipeline.pipeline_spec)
                compiler.Compiler().compile(pipeline, str(path.with_suffix(".yaml")))
            except Exception as error:  # noqa: BLE001 (whatever the SDK says of a pipeline)
                path.with_suffix(".refused").write_text(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    (each if sys.argv[2:] == ["each"] else main)(Path(sys.argv[1]))
