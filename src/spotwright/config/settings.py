"""A configuration as it was read: what every layer above asks for pools and policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotwright.config.keyed import Keyed
from spotwright.config.patterns import matches
from spotwright.model.policy import Layer
from spotwright.model.pools import Pool

__all__ = ["BUILT_IN_NAME", "Config"]

BUILT_IN_NAME = "built-in configuration"
"""The path of the configuration that is no file."""


@dataclass(frozen=True, slots=True)
class Config:
    """One ``spotwright.yaml``, checked. ``parse(config.text, config.path)`` gives an equal one.

    ``version`` is that of the format; ``pools`` keep the order of the file; ``policy_tasks`` are patterns with their layers,
    also in the order of the file. ``path`` is the file as an absolute path, or a name where there is no file; ``text`` is what
    was read, stored with every run. ``note`` is a sentence for the user where the built-in pools are used, else empty.
    ``secrets`` and ``config_maps`` say where the values of these objects are.
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
    secrets: Keyed = field(default_factory=dict)
    config_maps: Keyed = field(default_factory=dict)

    @property
    def is_built_in(self) -> bool:
        """Whether there is no file: nobody said what its policy says."""
        return self.path == BUILT_IN_NAME

    def layers_for(self, *task_paths: str) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
        """The layers of ``policy.default`` and those of ``policy.tasks`` that match a task's path, weakest first.

        A task in a loop has two paths: ``loop/train-3``, and ``loop/train`` as the pipeline has it. The layers are two groups,
        because what the pipeline itself says stands between them.
        """
        default = () if self.policy_default is None else (self.policy_default,)
        said = (layer for pattern, layer in self.policy_tasks if any(matches(pattern, path) for path in task_paths))
        return default, tuple(said)
