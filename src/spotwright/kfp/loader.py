"""Load a pipeline from a ``.py`` file, a compiled file, or a function in a notebook.

A ``.py`` file is compiled in a separate process. ``kfp`` costs 80 MB and most of a second to import, its compiler is
quadratic in the number of tasks, and a user's file may do anything, so none of that runs in the engine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spotwright.errors import PipelineError, PipelineNotFound
from spotwright.interrupts import interrupts_held
from spotwright.kfp.commands import compiled_script, is_script, script_behind
from spotwright.kfp.compiled import Compiled, MergedExecutor, file_digests, merged_executors, read_shared_json
from spotwright.kfp.compiled_files import read_compiled

__all__ = ["compile_function", "load"]


_MAX_COMPILATIONS = 4  # of one file: the SDK merges two tasks' executors at random, so a retry may be sound
_LARGE_FILE = 1_000_000  # bytes; a larger compiled file is read in a separate process, to keep memory here small
_HOME = Path(__file__).resolve().parents[2]  # the folder that holds the package


def load(
    path: str | os.PathLike[str], *, pipeline: str | None = None, python: str | None = None, scripts: bool = False
) -> Compiled:
    """Load a pipeline from a ``.py`` file or from compiled YAML or JSON.

    ``pipeline`` chooses among several, by the function's or the pipeline's name. ``python`` is the
    interpreter that compiles, with ``kfp`` installed; by default the running one. Output of the file while it is imported
    goes to standard error. ``scripts``: a plain script becomes a pipeline of one task, which executes it in the current folder.

    Raises :class:`PipelineError`, one or two lines with the place and the fix, for any fault of the file.
    """
    file = Path(path).absolute()
    if file.is_dir():
        raise PipelineError(f"{file}: this is a folder; give the pipeline's .py file or its compiled .yaml")
    if not file.exists():
        raise PipelineError(f"{file}: there is no such file")
    if scripts and is_script(file):
        return compiled_script(file, Path.cwd())
    if file.suffix == ".py":
        script = script_behind(file)
        if script is not None:
            raise PipelineError(_not_a_pipeline(file, script))
        return _compile(file, pipeline, python or sys.executable)
    if file.suffix not in (".yaml", ".yml", ".json"):
        raise PipelineError(f"{file}: expected a .py file with @dsl.pipeline, or a compiled pipeline (.yaml, .json)")
    is_large = file.stat().st_size > _LARGE_FILE
    compiled = _compile(file, None, sys.executable) if is_large else read_compiled(file)
    compiled = replace(compiled, files=file_digests([str(file)]))
    if pipeline is not None and pipeline != compiled.pipeline:
        raise PipelineNotFound(f"{file}: no pipeline {pipeline!r} here; the file contains {compiled.pipeline}")
    return compiled


def _not_a_pipeline(file: Path, script: Path) -> str:
    """Why a file is not imported: importing it would execute a script."""
    if script == file:
        return (
            f"{file}: expected a pipeline, and this file defines none, so it was not imported; spotwright run {file.name} "
            "executes it as it is, and spotwright plan --trace FILE --work 8h --deadline 12h plans such a job"
        )
    return f"{file}: expected a pipeline, and neither this file nor {script.name}, which it would execute, defines one"


def _compile(file: Path, pipeline: str | None, python: str) -> Compiled:
    for _ in range(_MAX_COMPILATIONS):
        answer = _run_compiler_process(file, pipeline, python)
        if "error" in answer:
            raise (PipelineNotFound if answer["not_found"] else PipelineError)(answer["error"])
        if not answer["merged"]:
            compiled = Compiled.from_data(answer["compiled"])
            return replace(compiled, files=file_digests([str(file), *answer.get("files", ())]))
    raise _merged_error(str(file), MergedExecutor(*answer["merged"][0]))


def _merged_error(place: str, merged: MergedExecutor) -> PipelineError:
    return PipelineError(
        f"{place}: a bug of the SDK's compiler gave the components {' and '.join(merged.components)} one executor, so one gets"
        " the other's resources and environment; rename one of their functions"
    )


def _run_compiler_process(file: Path, pipeline: str | None, python: str) -> dict[str, Any]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="spotwright-compile-") as folder:
        result = Path(folder, "result.json")
        command = [python, "-P", "-m", "spotwright.kfp.compiler_process", str(file), str(result)]
        try:
            code = _run_to_end([*command, *([pipeline] if pipeline is not None else [])], _environment(python))
        except OSError as error:
            raise PipelineError(f"{python}: cannot be started to compile {file}: {error.strerror}") from error
        if not result.exists():
            raise PipelineError(f"{file}: the process that compiles it ended with code {code} before it was done")
        answer: dict[str, Any] = read_shared_json(result.read_text(encoding="utf-8"))
        return answer


def _run_to_end(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Run the compiler's process and return its exit code. Ctrl-C ends it silently, whichever process it reaches first."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with interrupts_held():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=2,  # output of the user's file must not mix with ours
                env=env,
            )
        code = process.wait()
    except BaseException:
        if process is not None:
            process.kill()
            process.wait()
        raise
    if code == -signal.SIGINT:
        raise KeyboardInterrupt
    return code


def _environment(python: str) -> dict[str, str]:
    """The environment of the compiler's process: it must find this package, also where it is not installed.

    A folder of installed packages is never added: it would precede the standard library.
    """
    if python != sys.executable or _HOME.name in ("site-packages", "dist-packages"):
        return dict(os.environ)
    path = [os.environ.get("PYTHONPATH"), str(_HOME)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in path if part)}


def compile_function(pipeline_func: Any) -> Compiled:
    """Compile a ``@dsl.pipeline`` function in this process, for notebooks, where ``kfp`` is imported already.

    Inner pipelines are merged again, because the SDK may have given two tasks one executor.
    Raises :class:`PipelineError` if the argument is not a pipeline.
    """
    from spotwright.kfp import dsl_compiler

    function = getattr(pipeline_func, "pipeline_func", None)
    if function is None or not hasattr(pipeline_func, "pipeline_spec"):
        name = getattr(pipeline_func, "__name__", repr(pipeline_func))
        raise PipelineError(f"{name}: expected a function under @dsl.pipeline")
    source = function.__code__.co_filename
    compiled = dsl_compiler.to_compiled(pipeline_func, source)
    if any("dag" in component for component in (compiled.ir.get("components") or {}).values()):
        with dsl_compiler.patched_compiler():
            compiled = dsl_compiler.to_compiled(dsl_compiler.rebuild(pipeline_func), source)
    for merged in merged_executors(compiled.ir):
        raise _merged_error(source, merged)
    return compiled
