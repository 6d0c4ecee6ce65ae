"""Explain the SDK's errors about types that do not fit, with both ends. Runs where ``kfp`` may be imported.

The SDK names the two types and the input, not the output or parameter that was passed to it; and for the types ``URI`` and
``GCSPath`` of a kfp 1 component it says ``system.Artifact``, which stands nowhere in the user's files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from spotwright.pipelines.graph.type_check import KFP_1

__all__ = ["explained_type_errors"]

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
