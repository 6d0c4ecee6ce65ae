"""A configuration as it was read: the pools and policies for every layer above."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spotwright.config.patterns import matches
from spotwright.config.secret_refs import ObjectSources
from spotwright.model.policy import Layer
from spotwright.model.pools import Pool

__all__ = ["BUILT_IN_NAME", "MAPPING_NAME", "Config"]

BUILT_IN_NAME = "built-in configuration"
"""Path of the configuration that is used without a file."""

MAPPING_NAME = "<config>"
"""File name of a configuration that was given as a mapping in Python; its folder is the working directory."""


@dataclass(frozen=True, slots=True)
class Config:
    """One checked ``spotwright.yaml``. ``parse(config.text, config.path)`` returns an equal one.

    ``version`` is that of the format. ``pools``, and ``policy_tasks`` (patterns with their layers), keep the order of the file.
    ``path`` is the absolute path of the file, or a name without one; ``text`` is the text that was read, stored with every run.
    ``note`` is a sentence for the user if the built-in pools are used, else empty; ``found_above`` is one that names the file if
    it is in a folder above the pipeline's. ``lint_off`` are the rules of lint that are switched off, each with its reason.
    ``secrets`` and ``config_maps`` hold the sources of these objects' values.
    """

    version: int
    currency: str
    target: Mapping[str, str]
    pools: Mapping[str, Pool]
    policy_default: Layer | None
    policy_tasks: tuple[tuple[str, Layer], ...]
    path: str
    text: str = field(repr=False)
    note: str = field(default="", compare=False)
    found_above: str = field(default="", compare=False)
    lint_off: Mapping[str, str] = field(default_factory=dict)
    secrets: ObjectSources = field(default_factory=dict)
    config_maps: ObjectSources = field(default_factory=dict)

    @property
    def is_built_in(self) -> bool:
        """True without a file: then the policy is not the user's."""
        return self.path == BUILT_IN_NAME

    @property
    def is_file(self) -> bool:
        """True if it was read from a file, so that it can be read again."""
        return not self.is_built_in and Path(self.path).name != MAPPING_NAME

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences for the user about where pools and policy come from."""
        return tuple(filter(None, (self.found_above, self.note)))

    @property
    def default_ladder(self) -> tuple[str, ...]:
        """The ladder of ``policy.default``; empty without one."""
        default = self.policy_default
        return tuple((default.values.get("ladder") if default is not None else None) or ())

    def layers_for(self, *task_paths: str) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
        """Return the layers of ``policy.default``, and those of ``policy.tasks`` that match a task's path, weakest first.

        A task in a loop has two paths: ``loop/train-3``, and ``loop/train`` as in the pipeline. The layers are two groups because
        the pipeline's own settings rank between them.
        """
        default = () if self.policy_default is None else (self.policy_default,)
        matching = (layer for pattern, layer in self.policy_tasks if any(matches(pattern, path) for path in task_paths))
        return default, tuple(matching)
