"""The rules' view of the configuration, computed once for all files: pools, labels and taints, the target, rules that are off.

Without a ``spotwright.yaml`` the pools are unknown: then only labels and taints that the providers set count, and rules
about pools have no findings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from spotwright.clouds import providers
from spotwright.config import Config
from spotwright.kube.admission import COUNTED, object_name, unreadable
from spotwright.kube.object_fields import mapping
from spotwright.model.pools import Pool
from spotwright.placing.documents import Document, ManifestError, Path, References, show

__all__ = ["Settings", "settings_of"]

_VERSION = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Settings:
    """``pools`` are the configuration's, empty if it names none.

    ``spot_pairs`` are labels, with their values, that only spot pools have; ``spot_taints`` the keys of the taints of spot pools.
    ``off`` has the rules that the configuration switches off, each with its reason. ``config`` is the configuration itself.
    ``pod_paths`` are the patterns of ``--pod-path``. ``beside`` are the documents of ``--with``: facts, which are not linted.
    """

    pools: Mapping[str, Pool]
    spot_pairs: frozenset[tuple[str, str]]
    spot_taints: frozenset[str]
    target: Mapping[str, str]
    config: Config
    off: Mapping[str, str] = field(default_factory=dict)
    pod_paths: tuple[Path, ...] = ()
    beside: tuple[Document, ...] = ()

    @property
    def spot_pools(self) -> list[Pool]:
        """The spot pools of the configuration."""
        return [pool for pool in self.pools.values() if pool.is_spot]

    def version(self, name: str) -> tuple[float, float] | None:
        """The version of a target such as ``kfp``; ``None`` if the configuration does not say it."""
        match = _VERSION.match(self.target.get(name, ""))
        return (float(match[1]), float(match[2])) if match else None

    def is_before(self, name: str, version: tuple[int, int]) -> bool:
        """Whether a target is known to be older than a version."""
        return (self.version(name) or (math.inf, math.inf)) < version


def settings_of(config: Config, pod_paths: tuple[Path, ...] = (), beside: tuple[Document, ...] = ()) -> Settings:
    """The settings of a configuration. ``pod_paths`` are the patterns of further pod specs, ``beside`` documents of facts.

    Raises :class:`ManifestError` for a fact with an unreadable quantity: no rule names it, because facts are not linted.
    """
    references = References(list(beside))
    for one in (each for kind in COUNTED for each in references.find_all(kind)):
        value = mapping(one.get((), None))
        for wrong in unreadable(value):
            where = f"{one.file}:{one.line(wrong.path)}: {object_name(value)}"
            raise ManifestError(f"{where} cannot be read: {show(wrong.path)}: {wrong.text}")
    pools = {} if config.is_built_in or config.note else dict(config.pools)
    spot = {pair for pool in pools.values() if pool.is_spot for pair in providers.labels(pool).items()}
    others = {pair for pool in pools.values() if not pool.is_spot for pair in providers.labels(pool).items()}
    taints = {
        taint.key
        for pool in pools.values()
        if pool.is_spot
        for taint in providers.taints(pool)
        if providers.is_spot_taint(pool, taint)
    }
    return Settings(
        pools,
        frozenset(spot - others) if others else frozenset(),
        frozenset(taints) | providers.SPOT_TAINT_KEYS,
        config.target,
        config,
        config.lint_off,
        pod_paths,
        beside,
    )
