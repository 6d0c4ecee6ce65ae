"""The SDK's errors about types that do not fit, told with both ends. Runs where ``kfp`` may be imported.

The SDK names the two types and the input, not what was passed to it; and where component YAML of kfp 1 says ``URI`` or
``GCSPath``, it speaks of ``system.Artifact``, which nobody has written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from spotwright.pipelines.fitting import KFP_1

__all__ = ["explained"]

_TYPES = re.compile(
    r"type '(.+?)' (?:is incompatible with the input|cannot be surfaced as pipeline output) type '(.+?)'"
)
_INPUT = re.compile(r"to the input '(.+?)' of component '(.+?)'")
_VERSION = re.compile(r"@[\d.]+")


@contextmanager
def explained() -> Iterator[None]:
    """Let ``InconsistentTypeException`` name both ends, and the types of kfp 1, while the block runs."""
    from kfp.dsl import structures
    from kfp.dsl.types import type_utils

    verify, convert = type_utils.verify_type_compatibility, structures.ComponentSpec.from_v1_component_spec
    declared: dict[int, str] = {}
    kept: list[Any] = []

    def verified(*args: Any, **options: Any) -> Any:
        try:
            return verify(*args, **options)
        except type_utils.InconsistentTypeException as error:
            names = ("given_value", "expected_spec", "error_message_prefix")
            given = dict(zip(names, args, strict=False)) | options
            text = _text(given["given_value"], given["expected_spec"], declared, str(error))
            raise type_utils.InconsistentTypeException(text) from None

    def converted(spec: Any) -> Any:
        found = convert(spec)
        for said, read in zip(spec.inputs or (), (found.inputs or {}).values(), strict=False):
            if isinstance(said.type, str) and str(read.type).startswith("system.Artifact"):
                declared[id(read)] = said.type
                kept.append(read)  # its identity is the key
        return found

    try:
        type_utils.verify_type_compatibility = verified
        structures.ComponentSpec.from_v1_component_spec = converted
        yield
    finally:
        type_utils.verify_type_compatibility = verify
        structures.ComponentSpec.from_v1_component_spec = convert


def _text(given: Any, expected: Any, declared: dict[int, str], error: str) -> str:
    task, name = getattr(given, "task_name", None), getattr(given, "name", None)
    end = f"the constant {given!r:.60}" if name is None else f"the pipeline's input {name}"
    if task and name is not None:
        end = f"{task}.{name}"
    types, where = _TYPES.search(error), _INPUT.search(error)
    if types is None:
        return f"{end} does not fit: {error}"
    whose = f"{where[2]}.{where[1]}" if where is not None else "the output of the pipeline"
    text = f"{end} ({_VERSION.sub('', types[1])}) does not fit {whose} ({_VERSION.sub('', types[2])})"
    kind = declared.get(id(expected))
    return text if kind is None else f"{text}, which is declared {kind}: {KFP_1}"
