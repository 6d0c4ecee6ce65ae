"""Removes checkpoints with missing claims from default policies: each pod would wait for the claim forever.

A pod's mount of a claim cannot be optional. An object that requests a checkpoint itself waits for its claim, as for any other
claim; other objects are not delayed by their namespace's configuration. If claims may not be read, all count as existing.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from spotwright.cluster.admit_objects import own_policy
from spotwright.cluster.api_client import Api, ApiFailed, object_path
from spotwright.config import Config
from spotwright.model.policy import Layer
from spotwright.placing.environment import PVC

__all__ = [
    "ClaimLookup",
    "asks_for_a_checkpoint",
    "claim_of",
    "claims_not_in",
    "claims_of",
    "left_out_claims",
    "none_is_missing",
    "why_without_checkpoint",
    "without_claims",
]


_LOG = logging.getLogger(__name__)
_FRESH = 3.0  # seconds for which an answer is cached
_KEPT = 1_000  # answers
_LARGEST = 64 * 1024  # bytes of a claim
_FIELD = "checkpoint"
_MOST = 10  # claims of a namespace, whose tenants write the configuration
_SHOWN = 3  # names of claims in a message
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def claims_of(config: Config | None) -> list[str]:
    """The claims that the policies of a configuration name (``checkpoint: pvc://NAME/FOLDER``), at most the first ten."""
    return [] if config is None else _named(config)[:_MOST]


def left_out_claims(config: Config) -> str:
    """The warning for the author of a configuration with too many claims to check; empty otherwise."""
    names = _named(config)
    if len(names) <= _MOST:
        return ""
    rest = names[_MOST:]
    shown = ", ".join(rest[:_SHOWN]) + (f" and {len(rest) - _SHOWN} more" if len(rest) > _SHOWN else "")
    return (
        f"the policies name {len(names)} checkpoint claims; Spotwright creates only the first {_MOST}, and pods wait until the"
        f" others exist ({shown}); use folders of one claim instead (pvc://NAME/FOLDER)"
    )


def _named(config: Config) -> list[str]:
    layers = [
        *([] if config.policy_default is None else [config.policy_default]),
        *(one for _, one in config.policy_tasks),
    ]
    return [name for name in dict.fromkeys(map(claim_of, layers)) if _NAME.fullmatch(name)]


def claim_of(layer: Layer) -> str:
    """The claim of a policy layer; empty if it names none."""
    place = str(layer.values.get("checkpoint") or "")
    return place.removeprefix(PVC).strip("/").partition("/")[0] if place.startswith(PVC) else ""


class ClaimLookup:
    """Finds the missing claims of a namespace's configuration. ``clock`` is monotonic."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._answers: OrderedDict[tuple[str, str], tuple[float, bool]] = OrderedDict()
        self._readings: dict[tuple[str, str], asyncio.Task[bool]] = {}  # reads under way, shared by all callers
        self._said: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def missing(self, config: Config, namespace: str) -> Sequence[str]:
        """The names of these claims, up to three seconds old."""
        names = claims_of(config)
        are_there = await asyncio.gather(*(self._is_there(namespace, name) for name in names))
        return [name for name, is_there in zip(names, are_there, strict=True) if not is_there]

    async def _is_there(self, namespace: str, name: str) -> bool:
        key = namespace, name
        read_at, is_there = self._answers.get(key, (float("-inf"), True))
        if self._clock() - read_at <= _FRESH:
            return is_there
        if key not in self._readings:
            self._readings[key] = asyncio.create_task(self._ask(key), name="look for a claim")
        return await asyncio.shield(self._readings[key])  # the read continues after a caller gives up

    async def _ask(self, key: tuple[str, str]) -> bool:
        now = self._clock()
        try:
            is_there = await self._read(*key)
            _keep(self._answers, key, (now, is_there))
        finally:
            del self._readings[key]
        return is_there

    async def _read(self, namespace: str, name: str) -> bool:
        try:
            path = object_path("v1", "PersistentVolumeClaim", name, namespace)
            found = await self._api.get_or_none(path, at_most=_LARGEST)
        except ApiFailed as error:
            if (namespace, name) not in self._said:
                _LOG.warning("claims of namespace %s cannot be read and are assumed to exist: %s", namespace, error)
            _keep(self._said, (namespace, name), None)
            return True
        if found is None and (namespace, name) not in self._said:
            _LOG.warning("namespace %s: %s", namespace, why_without_checkpoint([name], namespace))
            _keep(self._said, (namespace, name), None)
        elif found is not None:
            self._said.pop((namespace, name), None)
        return found is not None


async def none_is_missing(_config: Config, _namespace: str) -> Sequence[str]:
    """Report no missing claims: they will be created soon."""
    return ()


def without_claims(config: Config, missing: Sequence[str]) -> Config:
    """The configuration without checkpoints in these claims."""

    def without(layer: Layer) -> Layer:
        if claim_of(layer) not in missing:
            return layer
        return Layer(layer.source, {key: value for key, value in layer.values.items() if key != _FIELD})

    if not missing:
        return config
    default = config.policy_default
    tasks = tuple((name, without(layer)) for name, layer in config.policy_tasks)
    return replace(config, policy_default=None if default is None else without(default), policy_tasks=tasks)


def claims_not_in(placed: Mapping[str, Any], config: Config) -> Sequence[str]:
    """The claims of a configuration that an object does not mount: an update keeps its placement."""
    names = claims_of(config)
    text = msgspec.json.encode(placed) if names else b""  # its volumes may be anywhere, and its author chose its size
    return [name for name in names if b'"claimName":%b' % msgspec.json.encode(name) not in text]


def asks_for_a_checkpoint(data: Mapping[str, Any]) -> bool:
    """Whether the object's own policy names a checkpoint."""
    return _FIELD in str(own_policy(data))


def why_without_checkpoint(missing: Sequence[str], namespace: str) -> str:
    """The sentence for the author of an object that has no checkpoint because these claims are missing."""
    claims = " and ".join(missing)
    return (
        f"checkpoints are not stored: the configured policy names the claim {claims}, which does not exist in namespace"
        f" {namespace}; create the claim (or set checkpoints.claimSize in the chart), then create the object again"
    )


def _keep(kept: OrderedDict[Any, Any], key: object, value: object) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > _KEPT:
        kept.popitem(last=False)
