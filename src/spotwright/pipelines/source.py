"""Loading a pipeline: a ``.py`` file, a compiled file, or a function in a notebook.

A ``.py`` file is compiled in a process of its own. ``kfp`` costs 80 MB and most of a second to import, its compiler is
quadratic in the number of tasks, and a user's file may do anything: none of that belongs into the engine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from spotwright.errors import PipelineError
from spotwright.pipelines.compiled import Compiled, digests, read_json
from spotwright.pipelines.documents import read_compiled
from spotwright.pipelines.labels import merged_executors

__all__ = ["compile_function", "load"]

_TRIES = 4  # how often a file is compiled when the SDK gives two tasks one executor, which it does at random
_LARGE = 1_000_000  # bytes of a compiled file from which on it is read in a process of its own, for its memory
_HOME = Path(__file__).resolve().parents[2]  # the folder that holds the package


def load(path: str | os.PathLike[str], *, pipeline: str | None = None, python: str | None = None) -> Compiled:
    """Load a pipeline from a ``.py`` file or from compiled YAML or JSON.

    ``pipeline`` names the one that is meant where a file defines several, by its function or its own name. ``python`` is
    the interpreter that compiles, with ``kfp`` installed; by default the running one. What the file prints while it is
    imported goes to the error stream.

    Raises :class:`PipelineError`, one or two lines with the place and the fix, for everything that is wrong with the file.
    """
    file = Path(path).absolute()
    if file.is_dir():
        raise PipelineError(f"{file}: this is a folder; give the pipeline's .py file or its compiled .yaml")
    if not file.exists():
        raise PipelineError(f"{file}: there is no such file")
    if file.suffix == ".py":
        return _compile(file, pipeline, python or sys.executable)
    if file.suffix not in (".yaml", ".yml", ".json"):
        raise PipelineError(f"{file}: expected a .py file with @dsl.pipeline, or a compiled pipeline (.yaml, .json)")
    large = file.stat().st_size > _LARGE
    compiled = _compile(file, None, sys.executable) if large else read_compiled(file)
    compiled = replace(compiled, files=digests([str(file)]))
    if pipeline is not None and pipeline != compiled.pipeline:
        raise PipelineError(f"{file}: no pipeline {pipeline!r} here; it holds {compiled.pipeline}")
    return compiled


def _compile(file: Path, pipeline: str | None, python: str) -> Compiled:
    for _ in range(_TRIES):
        answer = _run_child(file, pipeline, python)
        if "error" in answer:
            raise PipelineError(answer["error"])
        if not answer["merged"]:
            compiled = Compiled.from_data(answer["compiled"])
            return replace(compiled, files=digests([str(file), *answer.get("files", ())]))
    raise _shared(str(file), answer["merged"][0])


def _shared(place: str, names: Any) -> PipelineError:
    return PipelineError(
        f"{place}: the SDK's compiler gave the components {' and '.join(names)} one executor, so that one has the other's "
        "resources and environment; give their functions different names"
    )


def _run_child(file: Path, pipeline: str | None, python: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="spotwright-compile-") as folder:
        result = Path(folder, "result.json")
        command = [python, "-P", "-m", "spotwright.pipelines.compiler_child", str(file), str(result)]
        try:
            done = subprocess.run(
                [*command, *([pipeline] if pipeline is not None else [])],
                stdin=subprocess.DEVNULL,
                stdout=2,  # the user's prints must not mix with our own output
                env=_environment(python),
                check=False,
            )
        except OSError as error:
            raise PipelineError(f"{python}: cannot be started to compile {file}: {error.strerror}") from error
        if not result.exists():
            raise PipelineError(
                f"{file}: the process that compiles it ended with code {done.returncode} before it was done"
            )
        answer: dict[str, Any] = read_json(result.read_text(encoding="utf-8"))
        return answer


def _environment(python: str) -> dict[str, str]:
    """The child's environment: the running interpreter must find this package again, also where it is not installed.

    Installed packages are never put on the path: there they would come before the standard library.
    """
    if python != sys.executable or _HOME.name in ("site-packages", "dist-packages"):
        return dict(os.environ)
    path = [os.environ.get("PYTHONPATH"), str(_HOME)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in path if part)}


def compile_function(pipeline_func: Any) -> Compiled:
    """Compile a ``@dsl.pipeline`` function in this process, for notebooks, where ``kfp`` is imported already.

    Pipelines inside the pipeline are folded in again, because the SDK may have given two tasks one executor when it did so.
    Raises :class:`PipelineError` when the argument is no pipeline.
    """
    from spotwright.pipelines import sdk

    function = getattr(pipeline_func, "pipeline_func", None)
    if function is None or not hasattr(pipeline_func, "pipeline_spec"):
        name = getattr(pipeline_func, "__name__", repr(pipeline_func))
        raise PipelineError(f"{name}: expected a function under @dsl.pipeline")
    source = function.__code__.co_filename
    compiled = sdk.to_compiled(pipeline_func, source)
    if any("dag" in component for component in (compiled.ir.get("components") or {}).values()):
        with sdk.mended():
            compiled = sdk.to_compiled(sdk.rebuilt(pipeline_func), source)
    for names in merged_executors(compiled.ir):
        raise _shared(source, names)
    return compiled
