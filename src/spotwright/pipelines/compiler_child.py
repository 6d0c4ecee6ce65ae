"""The compiler's own process: imports the user's file and ``kfp``, so that the engine never has to.

It also reads large compiled files: parsing 2,000 tasks takes 80 MB, 10,000 take 400 MB, and the result a tenth of that.

Started as ``python -m spotwright.pipelines.compiler_child FILE RESULT [PIPELINE]``. The answer is one JSON object in the
file RESULT, so that nothing the user's code prints or closes can spoil it; without that file the process died.
"""

from __future__ import annotations

import difflib
import gc
import importlib.util
import inspect
import json
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from spotwright.errors import PipelineError
from spotwright.pipelines import mismatch, pinned, sdk
from spotwright.pipelines.documents import read_compiled
from spotwright.pipelines.labels import merged_executors
from spotwright.pipelines.legacy import advise, outdated

__all__ = ["main"]

_UNEXPECTED = re.compile(r"(?:(\w+)\.)?(\w+)\(\) got an unexpected keyword argument '(\w+)'")
_FIELD_INSIDE = re.compile(r"component_input_parameter: \S*loop-item\S* not found")
_OUTPUT_INSIDE = re.compile(r"component_input_parameter: pipelinechannel--\S+ not found")
_LONGEST = 400
_LARGEST = 10_000_000  # bytes of a file that is looked at for changes: data of that size makes no pipeline
_HOME = Path(__file__).resolve().parents[2]


class _Refused(Exception):
    """The file cannot be compiled; the text is for the user."""


class _EndsHere(BaseException):
    """From here on the file does something else than say what its pipeline is. No handler of its own catches this."""


class _NoClient:
    """Stands in for ``kfp.Client``: reading a pipeline file must not start a run on somebody's cluster."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise _EndsHere("kfp.Client talks to a cluster")


def _no_run(*_: object, **__: object) -> None:
    """Stand in for ``spot.run`` and ``spot.open_run``: a script that starts a run is read again when that is resumed."""
    raise _EndsHere("spot.run starts a run")


def main(arguments: list[str]) -> int:
    """Compile and write the answer: ``{"compiled": {...}, "merged": [...]}`` or ``{"error": text}``."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends this process without a word; the parent has its own
    file, result = Path(arguments[0]), Path(arguments[1])
    wanted = arguments[2] if len(arguments) > 2 else None
    answer: dict[str, Any]
    try:
        answer = _compile(file, wanted) if file.suffix == ".py" else _read(file)
    except (_Refused, PipelineError) as refusal:
        answer = {"error": str(refusal)}
    result.write_text(json.dumps(answer))
    gc.freeze()  # an interpreter that ends looks for garbage in everything there is
    return 0


def _compile(file: Path, wanted: str | None) -> dict[str, Any]:
    gc.disable()  # what comes now stays: looking for garbage in it is a third of the time
    try:
        import kfp.compiler  # before the user's file, which may be called kfp.py
    except ImportError as error:
        fix = "pip install 'kfp[kubernetes]>=2.17,<3'"
        raise _Refused(f"{file}: compiling needs kfp 2.17 or later beside Spotwright ({error}): {fix}") from error
    gc.freeze()
    gc.enable()
    kfp.Client = kfp.client.Client = _NoClient
    vars(sys.modules["spotwright"]).update(run=_no_run, open_run=_no_run)
    opened: list[str] = []
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
    with (
        warnings.catch_warnings(record=True) as heard, sdk.mended(), mismatch.explained(), pinned.checked() as loaded,
    ):  # fmt: skip
        warnings.simplefilter("default")
        module, left_out = _import(file)
    files = _files_of_user(opened)
    pipeline, chosen = _choose(file, module, wanted, left_out)
    loose = [
        f"{file}: {url} can change: #sha256={digest} behind it has it checked" for url, digest in loaded.loose.items()
    ]
    said = [
        *left_out,
        *chosen,
        *loose,
        *_outdated(file),
        *(_said(warning, file) for warning in heard if _concerns(warning)),
    ]
    compiled = replace(sdk.to_compiled(pipeline, str(file), tuple(dict.fromkeys(said))), commits=loaded.commits)
    return {"compiled": compiled.to_data(), "merged": merged_executors(compiled.ir), "files": files}


def _files_of_user(opened: Iterable[str]) -> list[str]:
    """What the user's file was made from: modules beside it, component files and whatever else it read while it was imported.

    Not what belongs to the interpreter or to installed packages.
    """
    modules = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    found = {Path(path).absolute() for path in (*modules, *opened) if path and not path.endswith(".pyc")}
    installed = (sys.prefix, sys.base_prefix, str(_HOME), "/proc", "/sys", "/dev", "/etc")
    own = (path for path in sorted(found) if not any(path.is_relative_to(part) for part in installed))
    return [str(path) for path in own if path.is_file() and path.stat().st_size <= _LARGEST]


def _read(file: Path) -> dict[str, Any]:
    return {"compiled": read_compiled(file).to_data(), "merged": []}


def _import(file: Path) -> tuple[ModuleType, list[str]]:
    """Import the file as a module of its own name, with its folder first on the path, as ``python FILE`` would have it.

    Gives the module, and the note that its end was left out where it talks to a cluster or starts a run.
    """
    name = file.stem if file.stem not in sys.modules else f"{file.stem}_pipeline"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise _Refused(f"{file}: this is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.parent))
    sys.argv = [str(file)]
    sys.dont_write_bytecode = True  # reading a user's file leaves nothing beside it
    try:
        spec.loader.exec_module(module)
    except _EndsHere as end:
        return module, [f"{file}:{_line_of(end, file)}: left out from here on, because {end}"]
    except SystemExit as end:
        place = f"{file}:{_line_of(end, file)}"
        raise _Refused(
            f"{place}: the file ends itself with sys.exit; put that under if __name__ == '__main__'"
        ) from end
    except BaseException as error:
        raise _Refused(_explain(file, error)) from error
    return module, []


def _choose(file: Path, module: ModuleType, wanted: str | None, left_out: list[str]) -> tuple[Any, list[str]]:
    """The pipeline that is meant, and what the user should know of the choice."""
    found = sdk.candidates(module) or sdk.lone_component(module)
    if not found and left_out:
        raise _Refused(f"{left_out[0]}; no pipeline before that: put it under if __name__ == '__main__'")
    if not found:
        raise _Refused(
            f"{file}: no pipeline here: expected a function under @dsl.pipeline at the top level of the file"
        )
    if wanted is not None:
        matching = [p for name, p in found.items() if wanted in (name, _function(p), _name(p))]
        if not matching:
            raise _Refused(f"{file}: no pipeline {wanted!r} here; it has {_list(found)}")
        return matching[0], []
    outer = sdk.outermost(found) if len(found) > 1 else found
    if len(outer) != 1:
        raise _Refused(f"{file}: {len(found)} pipelines here: {_list(found)}; say which with --pipeline NAME")
    [(name, pipeline)] = outer.items()
    if len(found) == 1:
        return pipeline, []
    return pipeline, [f"{file}: the pipeline is {name}, which uses the others; --pipeline NAME takes another"]


def _function(pipeline: Any) -> str:
    return str(getattr(getattr(pipeline, "pipeline_func", None), "__name__", ""))


def _name(pipeline: Any) -> str:
    return str(pipeline.pipeline_spec.pipeline_info.name)


def _list(found: Mapping[str, Any]) -> str:
    names = []
    for name, pipeline in found.items():
        own = _name(pipeline)
        names.append(name if own.replace("-", "_") == name else f"{name} ({own})")
    return ", ".join(names)


def _explain(file: Path, error: BaseException) -> str:
    """One or two lines: the place in the user's file, the error, and what to write instead where that is known."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {error.msg}"
    line = _line_of(error, file)
    if isinstance(error, PipelineError):
        return f"{_place_of(error, file)}: {error}"
    text = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:_LONGEST].removesuffix(": ")
    text = text.removesuffix(". All inputs: parameters {")
    finding = advise(file.read_text(encoding="utf-8", errors="replace"), line, str(error))
    if finding is not None:
        return f"{file}:{finding.line}: {finding.what} is kfp 1; write {finding.instead}\n({text})"
    return f"{_place_of(error, file)}: {text}{_hint(error, file)}"


def _hint(error: BaseException, file: Path) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"; install {error.name} beside kfp, or import it inside the component"
    if isinstance(error, KeyError) and (line := _own_frames(error, file)[-1:]):
        return f": nothing has that name in {line[0].line}"
    if "Missing type annotation for argument" in str(error):
        return "; kfp 2 wants a type for every argument, such as url: str"
    if _FIELD_INSIDE.match(str(error)):
        return (
            "; this kfp cannot use a field of an item of a constant list in a loop or condition inside: pass it through a task "
            "that stands before that, or make the list a parameter of the pipeline"
        )
    if _OUTPUT_INSIDE.match(str(error)):
        return (
            "; this kfp does not pass what settings of a task read into a loop, condition or exit handler: give it to a "
            "task in there as an input too"
        )
    match = _UNEXPECTED.search(str(error))
    if match is None:
        return ""
    from kfp import dsl

    function = getattr(getattr(dsl, match.group(1) or "", dsl), match.group(2), None)
    names = list(inspect.signature(function).parameters) if callable(function) else []
    close = difflib.get_close_matches(match.group(3), names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _line_of(error: BaseException, file: Path) -> int:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return (lines[-1] if lines else None) or 1


def _place_of(error: BaseException, file: Path) -> str:
    """The innermost line of the user's own code: in the file itself or in a module beside it."""
    own = _own_frames(error, file)
    return f"{own[-1].filename}:{own[-1].lineno}" if own else f"{file}:1"


def _own_frames(error: BaseException, file: Path) -> list[traceback.FrameSummary]:
    own = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(file.parent)]
    return [frame for frame in own if "site-packages" not in frame.filename]


def _outdated(file: Path) -> list[str]:
    found = outdated(file.read_text(encoding="utf-8", errors="replace"))
    return [f"{file}:{finding.line}: {finding.what} is kfp 1; write {finding.instead}" for finding in found]


def _concerns(warning: warnings.WarningMessage) -> bool:
    """Warnings about the pipeline; not what kfp says about its own future, nor about what :func:`_outdated` says better."""
    if issubclass(warning.category, FutureWarning | ImportWarning | PendingDeprecationWarning):
        return False
    return not (issubclass(warning.category, DeprecationWarning) and "kfp" in Path(warning.filename).parts)


def _said(warning: warnings.WarningMessage, file: Path) -> str:
    place = f"{warning.filename}:{warning.lineno}" if warning.filename == str(file) else str(file)
    return f"{place}: {(str(warning.message).splitlines() or [''])[0]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
