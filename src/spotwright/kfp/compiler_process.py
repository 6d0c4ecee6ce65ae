"""The compiler's process, which imports the user's file and ``kfp`` so that the engine need not.

It also reads large compiled files: parsing 2,000 tasks takes 80 MB and 10,000 tasks 400 MB; the result takes a tenth of that.

Started as ``python -m spotwright.kfp.compiler_process FILE RESULT [PIPELINE]``. The answer is one JSON object in the
file RESULT, so that prints and closed streams of the user's code cannot spoil it; without that file the process died.

As ``kfp`` is imported here, the SDK's type errors are explained with both ends, and the digests of components from addresses
are checked.
"""

from __future__ import annotations

import ast
import difflib
import gc
import hashlib
import importlib.util
import inspect
import json
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from spotwright.errors import PipelineError, PipelineNotFound
from spotwright.interrupts import release_interrupts
from spotwright.kfp import dsl_compiler
from spotwright.kfp.compiled import merged_executors
from spotwright.kfp.compiled_files import read_compiled
from spotwright.kfp.dsl_compiler import UnknownArgument, unknown_arguments
from spotwright.kfp.ir_pass import KFP_1
from spotwright.kfp.kfp1 import advise, outdated

__all__ = ["Downloads", "checked_downloads", "explained_type_errors", "main"]


_COMMIT = re.compile(r"[/=@]([0-9a-f]{40}|[0-9a-f]{64})(?=[/?&]|$)")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(slots=True)
class Downloads:
    """Digests of the loaded texts by address: of addresses that name a commit, and of unpinned ones."""

    commits: dict[str, str] = field(default_factory=dict)
    unpinned: dict[str, str] = field(default_factory=dict)


@contextmanager
def checked_downloads() -> Iterator[Downloads]:
    """Let ``load_component_from_url`` check digests, and record the loaded components, while the block runs."""
    from kfp import components
    from kfp.components import load_yaml_utilities as module

    load_url, load_text = module.load_component_from_url, module.load_component_from_text
    downloads, current = Downloads(), [""]

    def from_url(url: Any, *args: Any, **options: Any) -> Any:
        current[0] = str(url)
        try:
            return load_url(str(url).partition("#")[0] if isinstance(url, str) else url, *args, **options)
        finally:
            current[0] = ""

    def from_text(text: str) -> Any:
        if current[0]:
            _check(current[0], text, downloads)
        return load_text(text)

    try:
        module.load_component_from_url = components.load_component_from_url = from_url
        module.load_component_from_text = from_text
        yield downloads
    finally:
        module.load_component_from_url = components.load_component_from_url = load_url
        module.load_component_from_text = load_text


def _check(url: str, text: str, downloads: Downloads) -> None:
    """Compare a text with the digest in its address, or record it. Raises :class:`PipelineError` where they differ."""
    address, _, fragment = url.partition("#")
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    if fragment.startswith("sha256"):
        pinned = fragment[len("sha256=") :]
        if fragment[6:7] not in ("=", ":") or not _DIGEST.fullmatch(pinned):
            raise PipelineError(f"{address}: expected #sha256= and 64 hexadecimal digits after it, found #{fragment}")
        if pinned.lower() != digest:
            raise PipelineError(
                f"{address}: its content changed: sha256 {digest}, and the pipeline pins {pinned.lower()}"
            )
    else:
        (downloads.commits if _COMMIT.search(address) else downloads.unpinned)[address] = digest


_TYPES = re.compile(
    r"type '(.+?)' (?:is incompatible with the input|cannot be surfaced as pipeline output) type '(.+?)'"
)
_INPUT = re.compile(r"to the input '(.+?)' of component '(.+?)'")
_VERSION = re.compile(r"@[\d.]+")


@contextmanager
def explained_type_errors() -> Iterator[None]:
    """Let ``InconsistentTypeException`` name both ends, and the types of kfp 1, while the block runs."""
    from kfp.dsl import structures
    from kfp.dsl.types import type_utils

    verify, convert = type_utils.verify_type_compatibility, structures.ComponentSpec.from_v1_component_spec
    declared: dict[int, str] = {}
    inputs: list[Any] = []  # kept alive, because their identities are the keys of ``declared``

    def verify_with_both_ends(*args: Any, **options: Any) -> Any:
        try:
            return verify(*args, **options)
        except type_utils.InconsistentTypeException as error:
            names = ("given_value", "expected_spec", "error_message_prefix")
            arguments = dict(zip(names, args, strict=False)) | options
            text = _text(arguments["given_value"], arguments["expected_spec"], declared, str(error))
            raise type_utils.InconsistentTypeException(text) from None

    def convert_and_remember(spec: Any) -> Any:
        converted = convert(spec)
        for old, new in zip(spec.inputs or (), (converted.inputs or {}).values(), strict=False):
            if isinstance(old.type, str) and str(new.type).startswith("system.Artifact"):
                declared[id(new)] = old.type
                inputs.append(new)
        return converted

    try:
        type_utils.verify_type_compatibility = verify_with_both_ends
        structures.ComponentSpec.from_v1_component_spec = convert_and_remember
        yield
    finally:
        type_utils.verify_type_compatibility = verify
        structures.ComponentSpec.from_v1_component_spec = convert


def _text(given: Any, expected: Any, declared: dict[int, str], error: str) -> str:
    task, name = getattr(given, "task_name", None), getattr(given, "name", None)
    end = f"the constant {given!r:.60}" if name is None else f"the pipeline's input {name}"
    if task and name is not None:
        end = f"{task}.{name}"
    types, target = _TYPES.search(error), _INPUT.search(error)
    if types is None:
        return f"{end} does not fit: {error}"
    other_end = f"{target[2]}.{target[1]}" if target is not None else "the output of the pipeline"
    text = f"{end} ({_VERSION.sub('', types[1])}) does not fit {other_end} ({_VERSION.sub('', types[2])})"
    kind = declared.get(id(expected))
    return text if kind is None else f"{text}, which is declared {kind}: {KFP_1}"


_UNEXPECTED_ARGUMENT = re.compile(r"(?:(\w+)\.)?(\w+)\(\) got an unexpected keyword argument '(\w+)'")
_ITEM_FIELD_IN_GROUP = re.compile(r"component_input_parameter: \S*loop-item\S* not found")
_OUTPUT_IN_GROUP = re.compile(r"component_input_parameter: pipelinechannel--\S+ not found")
_MAX_ERROR_LENGTH = 400
_MAX_SOURCE_SIZE = 10_000_000  # bytes of a file that is checked for changes: pipelines are not made from larger data
_HOME = Path(__file__).resolve().parents[2]


class _CompileError(Exception):
    """The file cannot be compiled; the text is for the user."""


class _EndOfDefinition(BaseException):
    """From here on the file acts (on a cluster, or by starting a run) instead of defining its pipeline.

    Handlers of ``Exception`` in the file do not catch it.
    """


class _NoClient:
    """Replaces ``kfp.Client``: reading a pipeline file must not start a run on a cluster."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise _EndOfDefinition("kfp.Client talks to a cluster")


def _no_run(*_: object, **__: object) -> None:
    """Replace ``spot.run`` and ``spot.open_run``: a script that starts a run is read again when that run is resumed."""
    raise _EndOfDefinition("spot.run starts a run")


def main(arguments: list[str]) -> int:
    """Compile and write the answer: ``{"compiled": {...}, "merged": [...]}`` or ``{"error": text}``."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends this process silently; the parent says what it does
    release_interrupts()
    file, result = Path(arguments[0]), Path(arguments[1])
    wanted = arguments[2] if len(arguments) > 2 else None
    answer: dict[str, Any]
    try:
        answer = _compile(file, wanted) if file.suffix == ".py" else _read(file)
    except (_CompileError, PipelineError) as error:
        answer = {"error": str(error), "not_found": isinstance(error, PipelineNotFound)}
    result.write_text(json.dumps(answer), encoding="utf-8")
    gc.freeze()  # otherwise the interpreter collects garbage among all objects at exit
    return 0


def _compile(file: Path, wanted: str | None) -> dict[str, Any]:
    gc.disable()  # the objects made now stay: collecting would take a third of the time for nothing
    try:
        import kfp.compiler  # before the user's file, which may be called kfp.py
    except ImportError as error:
        fix = "pip install 'kfp[kubernetes]>=2.17,<3'"
        raise _CompileError(f"{file}: compiling needs kfp 2.17 or later beside Spotwright ({error}): {fix}") from error
    gc.freeze()
    gc.enable()
    kfp.Client = kfp.client.Client = _NoClient
    vars(sys.modules["spotwright"]).update(run=_no_run, open_run=_no_run)
    opened: list[str] = []
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
    with (
        warnings.catch_warnings(record=True) as caught, dsl_compiler.patched_compiler(), explained_type_errors(),
        checked_downloads() as downloads,
    ):  # fmt: skip
        warnings.simplefilter("default")
        module, notes = _import(file)
    files = _source_files(opened)
    pipeline, choice = _choose(file, module, wanted, notes)
    messages = [
        *notes,
        *choice,
        *(
            f"{file}: the text behind {url} can change; write #sha256={digest} after the address to have it verified"
            for url, digest in downloads.unpinned.items()
        ),
        *_outdated(file),
        *(_warning_text(warning, file) for warning in caught if _is_about_pipeline(warning)),
    ]
    compiled = replace(
        dsl_compiler.to_compiled(pipeline, str(file), tuple(dict.fromkeys(messages))), commits=downloads.commits
    )
    return {"compiled": compiled.to_data(), "merged": merged_executors(compiled.ir), "files": files}


def _source_files(opened: Iterable[str]) -> list[str]:
    """The user's source files of the pipeline: its modules, component files and all else that its import opened.

    Files of the interpreter and of installed packages do not count.
    """
    modules = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    paths = {Path(path).absolute() for path in (*modules, *opened) if path and not path.endswith(".pyc")}
    installed = (sys.prefix, sys.base_prefix, str(_HOME), "/proc", "/sys", "/dev", "/etc")
    own = (path for path in sorted(paths) if not any(path.is_relative_to(folder) for folder in installed))
    return [str(path) for path in own if path.is_file() and path.stat().st_size <= _MAX_SOURCE_SIZE]


def _read(file: Path) -> dict[str, Any]:
    return {"compiled": read_compiled(file).to_data(), "merged": []}


def _import(file: Path) -> tuple[ModuleType, list[str]]:
    """Import the file as a module under its name, with its folder first on the path, as under ``python FILE``.

    Returns the module, and a note if the rest was skipped because the file talks to a cluster or starts a run.
    """
    name = file.stem if file.stem not in sys.modules else f"{file.stem}_pipeline"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise _CompileError(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.parent))
    sys.argv = [str(file)]
    sys.dont_write_bytecode = True  # reading a user's file leaves no cache beside it
    try:
        spec.loader.exec_module(module)
    except _EndOfDefinition as end:
        return module, [f"{file}:{_line_of(end, file)}: left out from here on, because {end}"]
    except SystemExit as end:
        place = f"{file}:{_line_of(end, file)}"
        raise _CompileError(f"{place}: the file calls sys.exit; put that below if __name__ == '__main__'") from end
    except BaseException as error:
        raise _CompileError(_explain(file, error)) from error
    return module, []


def _choose(file: Path, module: ModuleType, wanted: str | None, notes: list[str]) -> tuple[Any, list[str]]:
    """The pipeline that the user means, and a note on the choice where there are several."""
    pipelines = dsl_compiler.find_pipelines(module) or dsl_compiler.find_lone_component(module)
    if not pipelines and notes:
        raise PipelineNotFound(f"{notes[0]}; no pipeline before that: put it below if __name__ == '__main__'")
    if not pipelines:
        raise PipelineNotFound(
            f"{file}: no pipeline here: expected a function under @dsl.pipeline at the top level of the file"
        )
    if wanted is not None:
        matching = [p for name, p in pipelines.items() if wanted in (name, _function_name(p), _pipeline_name(p))]
        if not matching:
            raise PipelineNotFound(f"{file}: no pipeline {wanted!r} here; it has {_list(pipelines)}")
        return matching[0], []
    outer = dsl_compiler.outermost(pipelines) if len(pipelines) > 1 else pipelines
    if len(outer) != 1:
        raise _CompileError(f"{file}: {len(pipelines)} pipelines here: {_list(pipelines)}; choose with --pipeline NAME")
    [(name, pipeline)] = outer.items()
    if len(pipelines) == 1:
        return pipeline, []
    return pipeline, [f"{file}: the pipeline is {name}, which uses the others; --pipeline NAME takes another"]


def _function_name(pipeline: Any) -> str:
    return str(getattr(getattr(pipeline, "pipeline_func", None), "__name__", ""))


def _pipeline_name(pipeline: Any) -> str:
    return str(pipeline.pipeline_spec.pipeline_info.name)


def _list(pipelines: Mapping[str, Any]) -> str:
    names = []
    for name, pipeline in pipelines.items():
        own = _pipeline_name(pipeline)
        names.append(name if own.replace("-", "_") == name else f"{name} ({own})")
    return ", ".join(names)


def _explain(file: Path, error: BaseException) -> str:
    """One or two lines: the place in the user's file, the error, and its fix where that is known."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {error.msg}"
    line = _line_of(error, file)
    if isinstance(error, PipelineError):
        return f"{_place_of(error, file)}: {error}"
    text = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:_MAX_ERROR_LENGTH].removesuffix(": ")
    text = text.removesuffix(". All inputs: parameters {")
    finding = advise(file.read_text(encoding="utf-8", errors="replace"), line, str(error))
    if finding is not None:
        return f"{file}:{finding.line}: {finding.message}\n({text})"
    argument = _unknown_argument(file, line)
    if argument is not None:
        return f"{file}:{argument.line}: {argument.message}\n({text})"
    return f"{_place_of(error, file)}: {text}{_hint(error, file)}"


def _unknown_argument(file: Path, line: int) -> UnknownArgument | None:
    """The argument on an error's line that the SDK's function lacks, as ``lint`` finds it."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8", errors="replace"))
    except (SyntaxError, ValueError):
        return None
    return next((found for found in unknown_arguments(tree) if found.line == line), None)


def _hint(error: BaseException, file: Path) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"; install {error.name} beside kfp, or import it inside the component"
    if isinstance(error, KeyError) and (frames := _own_frames(error, file)[-1:]):
        return f": unknown name in {frames[0].line}"
    if "Missing type annotation for argument" in str(error):
        return "; kfp 2 wants a type for every argument, such as url: str"
    if _ITEM_FIELD_IN_GROUP.match(str(error)):
        return (
            "; this kfp cannot read a field of a constant list's item in an inner loop or condition: pass the field through a "
            "task before it, or make the list a parameter of the pipeline"
        )
    if _OUTPUT_IN_GROUP.match(str(error)):
        return (
            "; this kfp does not pass a value into a loop, condition or exit handler if only a task's settings use it: pass the"
            " value to a task in there as an input too"
        )
    match = _UNEXPECTED_ARGUMENT.search(str(error))
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
    return [f"{file}:{finding.line}: {finding.message}" for finding in found]


def _is_about_pipeline(warning: warnings.WarningMessage) -> bool:
    """Whether a warning is about the pipeline: not about the future of kfp, nor about names that :func:`_outdated` reports."""
    if issubclass(warning.category, FutureWarning | ImportWarning | PendingDeprecationWarning):
        return False
    return not (issubclass(warning.category, DeprecationWarning) and "kfp" in Path(warning.filename).parts)


def _warning_text(warning: warnings.WarningMessage, file: Path) -> str:
    place = f"{warning.filename}:{warning.lineno}" if warning.filename == str(file) else str(file)
    return f"{place}: {(str(warning.message).splitlines() or [''])[0]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
