"""Declared inputs and outputs of tasks and DAGs: parameters with a type, artifacts with a schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ArtifactSpec", "OutputSpecs", "ParameterSpec"]


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """A declared parameter.

    ``type`` is one of KFP's types: ``STRING``, ``NUMBER_INTEGER``, ``NUMBER_DOUBLE``, ``BOOLEAN``, ``LIST`` or ``STRUCT``.
    ``default`` counts only if ``has_default`` is set, because ``None`` is a value too. ``literals`` are the allowed values
    (``typing.Literal``); empty: any value.
    """

    type: str
    optional: bool = False
    has_default: bool = False
    default: Any = None
    description: str = ""
    literals: tuple[Any, ...] = ()

    def check(self, value: Any) -> None:
        """Raise ``ValueError`` for a value that is not allowed."""
        if self.literals and value is not None and value not in self.literals:
            raise ValueError(f"{value!r:.60} is none of {', '.join(map(repr, self.literals))}")


@dataclass(frozen=True, slots=True)
class ArtifactSpec:
    """A declared artifact. ``schema`` is its title (``system.Dataset``) with its version."""

    schema: str = "system.Artifact"
    version: str = "0.0.1"
    is_list: bool = False
    optional: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""


@dataclass(frozen=True, slots=True)
class OutputSpecs:
    """The outputs that a task declares. A task without any succeeds by its exit code alone."""

    parameters: Mapping[str, ParameterSpec] = field(default_factory=dict)
    artifacts: Mapping[str, ArtifactSpec] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.parameters or self.artifacts)
