"""The arguments of a run: given values against the parameters that a pipeline declares."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from spotwright.errors import PipelineError
from spotwright.pipelines.secrets import Reference
from spotwright.pipelines.spec import ParameterSpec, Pipeline
from spotwright.pipelines.values import KINDS, fit, parse_text

__all__ = ["bind", "references"]

_REFERENCES = ("@env:", "@file:")


def bind(pipeline: Pipeline, given: Mapping[str, Any], *, textual: bool) -> dict[str, Any]:
    """Check the given arguments and give each its declared type; parameters that are left out get their default.

    ``textual`` says that they are texts of a command line: numbers, ``true`` and ``false`` are read as such, lists and
    mappings as JSON, texts stay as they are. A text that begins with ``@env:`` or ``@file:`` becomes a :class:`Reference`;
    ``@@`` at the beginning of a text stands for one ``@``. An optional parameter without a value is ``None``.

    Raises :class:`PipelineError` for a missing argument, an unknown one, or one of another type.
    """
    specs = pipeline.root.parameters
    for name in given:
        if name not in specs:
            raise PipelineError(f"pipeline {pipeline.name} has no parameter {name!r}{_hint(name, specs)}")
    missing = [n for n, spec in specs.items() if n not in given and not spec.has_default and not spec.optional]
    if missing:
        wanted = ", ".join(f"{name} ({KINDS[specs[name].type]})" for name in missing)
        raise PipelineError(f"pipeline {pipeline.name} needs a value for {wanted}: give --arg {missing[0]}=VALUE")
    bound = {}
    for name, spec in specs.items():
        if name in given:
            bound[name] = _bind_one(name, spec, given[name], textual=textual)
        else:
            bound[name] = spec.default if spec.has_default else None
    return bound


def references(pipeline: Pipeline, given: Mapping[str, Any]) -> dict[str, Reference]:
    """The references to secrets among the given arguments, of the types that the pipeline declares."""
    specs = pipeline.root.parameters
    found = {name: _reference(value, specs[name].type) for name, value in given.items() if name in specs}
    return {name: reference for name, reference in found.items() if reference is not None}


def _reference(value: Any, kind: str) -> Reference | None:
    if isinstance(value, Reference):
        return Reference(value.kind, value.name, kind)
    if isinstance(value, str) and value.startswith(_REFERENCES):
        where, _, name = value[1:].partition(":")
        return Reference(where, name, kind)
    return None


def _hint(name: str, specs: Mapping[str, ParameterSpec]) -> str:
    close = difflib.get_close_matches(name, specs, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; it has {', '.join(specs)}" if specs else "; it has no parameters at all"


def _bind_one(name: str, spec: ParameterSpec, value: Any, *, textual: bool) -> Any:
    reference = _reference(value, spec.type)
    if reference is not None:
        return reference
    if isinstance(value, str) and value.startswith("@@"):
        value = value[1:]
    if value is None and spec.optional and not textual:
        return None
    try:
        return parse_text(value, spec.type) if textual else _typed(value, spec.type)
    except (ValueError, TypeError) as error:
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
        kind = "" if textual else f" ({type(value).__name__})"
        raise PipelineError(f"argument {name}: expected {KINDS[spec.type]}, got {shown}{kind}") from error


def _typed(value: Any, kind: str) -> Any:
    """A Python value as JSON has it. It must be of the type already: a number is no text, half a number no whole one."""
    if kind == "STRING" and not isinstance(value, str):
        raise ValueError(f"{value!r} is not {KINDS[kind]}")
    if kind == "NUMBER_INTEGER" and isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is not {KINDS[kind]}")
    return fit(json.loads(json.dumps(value, allow_nan=False)), kind)
