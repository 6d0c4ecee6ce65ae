"""Bind the arguments of a run to the parameters and artifacts that a pipeline declares."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from spotwright.errors import PipelineError
from spotwright.graph import ArtifactSpec, ParameterSpec, TaskGraph
from spotwright.kfp.secrets import Reference
from spotwright.kfp.values import KINDS, coerce, parse_text, whole_numbers

__all__ = ["bind", "references"]


_REFERENCES = ("@env:", "@file:")


def bind(pipeline: TaskGraph, given: Mapping[str, Any], *, textual: bool, partly: bool = False) -> dict[str, Any]:
    """Check the given arguments and convert each to its declared type; omitted parameters get their default.

    ``textual``: they come from a command line, so numbers, ``true`` and ``false`` are parsed, lists and mappings as JSON. A
    string that begins with ``@env:`` or ``@file:`` becomes a :class:`Reference`; a leading ``@@`` is one ``@``. An optional
    parameter without a value is ``None``; ``partly``: so is a required one, for a plan that is not run.

    An artifact is a path on this machine, an address, or a mapping with ``uri`` and ``metadata``; the result has it as a plain
    dict, in the form of KFP's executor. The result lacks omitted optional artifacts.

    Raises :class:`PipelineError` for a missing argument, an unknown one, or one of another type.
    """
    specs, artifacts = pipeline.root.parameters, pipeline.root.artifacts
    for name in given:
        if name not in specs and name not in artifacts:
            hint = _hint(name, {**specs, **artifacts})
            raise PipelineError(f"pipeline {pipeline.name} has no parameter {name!r}{hint}")
    if not partly:
        _check_missing(pipeline, given)
    bound: dict[str, Any] = {}
    for name, spec in specs.items():
        if name in given:
            bound[name] = _bind_one(name, spec, given[name], textual=textual)
        else:
            bound[name] = spec.default if spec.has_default else None
    for name in artifacts.keys() & given.keys():
        bound[name] = _bind_artifact(name, artifacts[name], given[name], textual=textual)
    return bound


def _check_missing(pipeline: TaskGraph, given: Mapping[str, Any]) -> None:
    parameters = pipeline.root.parameters.items()
    missing = {n: KINDS[s.type] for n, s in parameters if n not in given and not s.has_default and not s.optional}
    files = {n: s.schema for n, s in pipeline.root.artifacts.items() if n not in given and not s.optional}
    if missing or files:
        wanted = ", ".join(f"{name} ({kind})" for name, kind in {**missing, **files}.items())
        first = f"{next(iter(missing))}=VALUE" if missing else f"{next(iter(files))}=PATH_OR_ADDRESS"
        raise PipelineError(f"pipeline {pipeline.name} needs a value for {wanted}: give --arg {first}")


def _bind_artifact(name: str, spec: ArtifactSpec, value: Any, *, textual: bool) -> Any:
    """One artifact, or a list of them if the pipeline declares a list."""
    if textual and isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise PipelineError(f"argument {name}: {value[:60]!r} is not valid JSON: {error}") from error
    if not spec.is_list:
        return _artifact(name, spec, value)
    return [_artifact(name, spec, each) for each in (value if isinstance(value, list | tuple) else [value])]


def _artifact(name: str, spec: ArtifactSpec, value: Any) -> dict[str, Any]:
    given = value if isinstance(value, Mapping) else {"uri": _address(name, value)}
    uri, metadata = given.get("uri"), given.get("metadata") or {}
    if not isinstance(uri, str) or not uri or not isinstance(metadata, Mapping):
        raise PipelineError(
            f"argument {name}: expected an artifact: a path, an address, or a mapping with uri and metadata"
        )
    if "://" not in uri and not os.path.isabs(uri):  # noqa: PTH117 - of a resumed run it is absolute, and may be gone
        uri = _address(name, uri)
    if "://" in uri and ".." in uri.split("/"):
        raise PipelineError(f"argument {name}: the address {uri} must not contain '..'")
    return {
        "name": name,
        "type": {"schemaTitle": spec.schema, "schemaVersion": spec.version},
        "uri": uri.removeprefix("file://"),
        "metadata": {**spec.metadata, **whole_numbers(metadata)},
    }


def _address(name: str, value: Any) -> str:
    """The address of an artifact; a path must exist, and becomes absolute."""
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise PipelineError(f"argument {name}: expected the path or address of an artifact, got {value!r:.60}")
    text = os.fspath(value)
    path = text.removeprefix("file://")
    if "://" in path:
        return str(text)
    if not os.path.exists(path):  # noqa: PTH110 - an invalid path does not exist either
        raise PipelineError(f"argument {name}: file or folder not found: {path}")
    return os.path.abspath(path)  # noqa: PTH100 - links in it are not followed


def references(pipeline: TaskGraph, given: Mapping[str, Any]) -> dict[str, Reference]:
    """The references to secrets among the given arguments, of the types that the pipeline declares."""
    specs = pipeline.root.parameters
    candidates = {name: _reference(value, specs[name].type) for name, value in given.items() if name in specs}
    return {name: reference for name, reference in candidates.items() if reference is not None}


def _reference(value: Any, kind: str) -> Reference | None:
    if isinstance(value, Reference):
        return Reference(value.kind, value.name, kind)
    if isinstance(value, str) and value.startswith(_REFERENCES):
        place, _, name = value[1:].partition(":")
        return Reference(place, name, kind)
    return None


def _hint(name: str, specs: Mapping[str, Any]) -> str:
    import difflib

    close = difflib.get_close_matches(name, specs, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; it has {', '.join(specs)}" if specs else "; it has no parameters"


def _bind_one(name: str, spec: ParameterSpec, value: Any, *, textual: bool) -> Any:
    reference = _reference(value, spec.type)
    if reference is not None:
        return reference
    if isinstance(value, str) and value.startswith("@@"):
        value = value[1:]
    if value is None and spec.optional and not textual:
        return None
    try:
        bound = parse_text(value, spec.type) if textual else _typed(value, spec.type)
    except (ValueError, TypeError) as error:
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
        kind = "" if textual else f" ({type(value).__name__})"
        where = f": {error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        raise PipelineError(f"argument {name}: expected {KINDS[spec.type]}, got {shown}{kind}{where}") from error
    try:
        spec.check(bound)
    except ValueError as error:
        raise PipelineError(f"argument {name}: {error}") from error
    return bound


def _typed(value: Any, kind: str) -> Any:
    """A Python value in the form of JSON. Its type must match: 3 is not a string, 0.5 is not an integer."""
    if kind == "STRING" and not isinstance(value, str):
        raise ValueError(f"{value!r} is not {KINDS[kind]}")
    if kind == "NUMBER_INTEGER" and isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is not {KINDS[kind]}")
    return coerce(json.loads(json.dumps(value, allow_nan=False)), kind)
