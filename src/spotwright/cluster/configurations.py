"""The configuration of every namespace, from ConfigMaps named ``spotwright`` with a key ``spotwright.yaml``, kept up to date.

The ConfigMap in the controller's namespace holds the cluster's pools and default policy; a ConfigMap in another namespace holds
the same file as on a laptop. The namespace's policy takes precedence, and its pools, if any, replace the cluster's. An invalid
text has no effect: the last valid one stays in force, and the problem is kept until it is fixed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from spotwright import config as configuration
from spotwright import yaml_composer as composer
from spotwright.cluster.api_client import Api, EventWriter
from spotwright.cluster.mirror import Change, ChangeKind, FollowedNamespaces, Resource
from spotwright.cluster.missing_claims import left_out_claims
from spotwright.config import FILE_NAME, Config
from spotwright.config.document import MAX_UNFOLDED
from spotwright.errors import ConfigError
from spotwright.kube.object_fields import metadata
from spotwright.model.policy import Layer, lost_deadline
from spotwright.placing.patch import value_at

__all__ = ["CONFIG_MAP", "MOST_AT_HOME", "MOST_OF_NAMESPACE", "ConfigMaps", "ConfigProblem", "Configurations"]


CONFIG_MAP = "spotwright"
"""The name of the ConfigMap; its key is the name of the file, ``spotwright.yaml``."""


MOST_OF_NAMESPACE = 32 * 1024
"""Maximum characters of a namespace's text: any team can write one, and reading it takes up to 0.2 s."""

MOST_AT_HOME = 256 * 1024
"""Characters of the cluster's text, which an administrator writes."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """The problem with a namespace's ConfigMap, for an Event about it."""

    namespace: str
    message: str


@dataclass(slots=True)
class Configurations:
    """The configurations in force. ``home`` is the controller's own namespace."""

    home: str
    _texts: dict[str, str] = field(default_factory=dict)  # the last good text of each namespace
    _newest: dict[str, str] = field(default_factory=dict)  # the text as it is in the ConfigMap, good or not
    _in_force: dict[str, Config] = field(default_factory=dict)
    _problems: dict[str, str] = field(default_factory=dict)
    _without_effect: dict[str, str] = field(
        default_factory=dict
    )  # parts of the text in force that have no effect on a cluster

    def apply(self, namespace: str, config_map: Mapping[str, Any] | None) -> None:
        """Apply the current ConfigMap of a namespace; ``None`` if it was deleted."""
        text = _text_of(config_map)
        if text is None:
            for kept in (self._texts, self._newest, self._in_force, self._problems, self._without_effect):
                kept.pop(namespace, None)
        else:
            self._newest[namespace] = text
        for changed in [namespace] if namespace != self.home else [namespace, *set(self._newest) - {namespace}]:
            self._settle(changed)

    def of(self, namespace: str) -> Config | None:
        """The configuration of a namespace, by default that of the cluster; ``None`` if neither exists."""
        return self._in_force.get(namespace) or self._in_force.get(self.home)

    @property
    def problems(self) -> list[ConfigProblem]:
        """The problems of all ConfigMaps whose newest text is not in force."""
        return [ConfigProblem(namespace, message) for namespace, message in sorted(self._problems.items())]

    @property
    def without_effect(self) -> list[ConfigProblem]:
        """Settings of the ConfigMaps in force that have no effect: a deadline, and claims beyond the limit."""
        return [ConfigProblem(namespace, text) for namespace, text in sorted(self._without_effect.items()) if text]

    def _settle(self, namespace: str) -> None:
        """Read the newest text of a namespace; if it is invalid, read the last valid one, with the current pools."""
        if namespace not in self._newest:
            return
        texts = dict.fromkeys(
            text for text in (self._newest[namespace], self._texts.get(namespace)) if text is not None
        )
        self._problems.pop(namespace, None)
        for text in texts:
            try:
                self._in_force[namespace] = self._read(namespace, text)
            except ConfigError as error:
                self._problems.setdefault(namespace, str(error))
            else:
                self._texts[namespace] = text
                return

    def _read(self, namespace: str, text: str) -> Config:
        """The configuration of a text. Raises :class:`ConfigError`."""
        name = f"ConfigMap {namespace}/{CONFIG_MAP}: {FILE_NAME}"
        most = MOST_AT_HOME if namespace == self.home else MOST_OF_NAMESPACE
        if len(text) > most:  # before reading it, which takes up to 10 ms per KiB
            shown = f"{len(text) // 1024} KiB, and the limit is {most // 1024} KiB"
            raise ConfigError(f"{name}: it has {shown}: replace similar tasks and pools by patterns in their names")
        cluster = self._in_force.get(self.home) if namespace != self.home else None
        own = configuration.parse(text if cluster is None else _with_pools(text, cluster), name, traces_exist=False)
        layers = [
            *([] if own.policy_default is None else [own.policy_default]),
            *(layer for _, layer in own.policy_tasks),
        ]
        config = own if cluster is None else _over(own, cluster)
        in_vain = (lost_deadline(layers), left_out_claims(config))
        self._without_effect[namespace] = "; ".join(text for text in in_vain if text)
        return config


def _text_of(config_map: Mapping[str, Any] | None) -> str | None:
    text = value_at(config_map, ("data", FILE_NAME))
    return text if isinstance(text, str) else None


def _with_pools(text: str, cluster: Config) -> str:
    """A configuration with the cluster's pools after its own lines, which keep their numbers; unchanged if it has pools.

    Raises :class:`ConfigError` if the cluster's pools cannot be added to another text.
    """
    if not _lacks_pools(text):
        return text
    try:
        pools = yaml.safe_load(cluster.text).get("pools")
    except (yaml.YAMLError, ValueError) as error:  # an invalid date or number: here they are texts
        raise ConfigError(
            f"{cluster.path}: its pools cannot be used by other namespaces ({error}): quote this value"
        ) from None
    if pools is None:
        return text
    written = json.dumps(pools, default=str)
    if text.lstrip().startswith("{"):
        return text.replace("{", f'{{"pools": {written}, ', 1)
    return f"{text.rstrip()}\npools: {written}\n"


def _lacks_pools(text: str) -> bool:
    """Whether a text is a mapping without pools; false for an unreadable text, whose problem the reader reports.

    Any team can write such texts, so deep nesting and too many values are refused before the objects are made.
    """
    try:
        documents = list(composer.compose(text, lenient=True, max_unfolded=MAX_UNFOLDED))
    except (composer.ComposeError, yaml.YAMLError, UnicodeEncodeError):
        return False
    if len(documents) != 1 or not isinstance(documents[0].root, composer.MappingNode):
        return False
    return not any(key.value == "pools" for key, _ in documents[0].root.value)


def _over(own: Config, cluster: Config) -> Config:
    """The namespace's configuration merged over the cluster's policy.

    The text stays the namespace's own, so it alone does not reproduce this configuration.
    """
    default = own.policy_default or cluster.policy_default
    if own.policy_default is not None and cluster.policy_default is not None:
        values = {**cluster.policy_default.values, **own.policy_default.values}
        default = Layer(own.policy_default.source, values)
    return replace(
        own,
        target={**cluster.target, **own.target},
        policy_default=default,
        policy_tasks=tuple(_tasks(cluster, own)),
    )


def _tasks(*configs: Config) -> Iterator[tuple[str, Layer]]:
    for one in configs:
        yield from one.policy_tasks


_LOG = logging.getLogger(__name__)
_REST, _LONGEST_REST = (
    20.0,
    10.0,
)  # pause of a namespace as a multiple of its text's reading time, and its maximum in seconds


class ConfigMaps:
    """The ConfigMaps of a cluster. ``configurations`` changes with them; await :meth:`follow`.

    ``events`` reports problems to their authors; None: another component does. ``namespaces`` limits which ConfigMaps are
    read, each by name, in addition to the one of ``home``; if empty, all.
    """

    def __init__(
        self,
        api: Api,
        configurations: Configurations,
        events: EventWriter | None,
        namespaces: Sequence[str] = (),
    ) -> None:
        self.configurations = configurations
        self._events = events
        self._followed = FollowedNamespaces(
            api,
            Resource("/api/v1", "configmaps"),
            (configurations.home, *namespaces) if namespaces else (),
            fields=f"metadata.name={CONFIG_MAP}",
        )
        self._found: dict[str, Mapping[str, Any]] = {}  # by namespace
        self._waiting: dict[str, Change] = {}  # the newest unread change of each namespace
        self._known: set[str] = set()  # namespaces whose ConfigMap was read at least once
        self._rests_until: dict[
            str, float
        ] = {}  # by namespace: when its ConfigMap is read again, by the monotonic clock
        self._news = asyncio.Event()
        self._reported: dict[str, str] = {}  # each namespace's problem, as in its Event
        self._warned: dict[str, str] = {}  # each namespace's settings without effect, as in its Event

    @property
    def is_complete(self) -> bool:
        """Whether every ConfigMap was read. A namespace with an unreadable ConfigMap counts as having none."""
        return self._followed.is_complete and self._waiting.keys() <= self._known

    @property
    def problem(self) -> str:
        """Why the ConfigMaps cannot be read now; empty if they can."""
        return self._followed.problem

    async def follow(self) -> None:
        """Follow until cancelled."""
        hearing = asyncio.ensure_future(self._hear())
        hearing.add_done_callback(lambda _: self._news.set())
        try:
            while not hearing.done():
                await self._wait()
                if (namespace := self._next()) is not None:
                    await self._apply(namespace, self._waiting[namespace])
                if self.is_complete and self._events is not None:
                    await self._report(self._events)
            hearing.result()
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _hear(self) -> None:
        """Keep the newest state of each ConfigMap until it is read; states in between are dropped."""
        async for change in self._followed.changes():
            if change.kind is not ChangeKind.SYNCED:
                self._waiting[str(metadata(change.data).get("namespace", ""))] = change
            self._news.set()

    async def _wait(self) -> None:
        """Wait until something has changed, or a waiting namespace's pause is over."""
        if self._next() is None:
            rests = [self._rests_until[each] for each in self._waiting]
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(rests) - time.monotonic()) if rests else None):
                    await self._news.wait()
        self._news.clear()

    def _next(self) -> str | None:
        """The namespace whose ConfigMap is read next: the first in the queue, unless it pauses for the cost of its last one."""
        now = time.monotonic()
        return next((each for each in self._waiting if now >= self._rests_until.get(each, 0.0)), None)

    async def _apply(self, namespace: str, change: Change) -> None:
        """Apply one change. The text is parsed outside the loop: its author decides how long and how often that takes."""
        began, is_gone = time.monotonic(), change.kind is ChangeKind.DELETED
        await asyncio.to_thread(self.configurations.apply, namespace, None if is_gone else change.data)
        if is_gone:
            self._found.pop(namespace, None)
        else:
            self._found[namespace] = change.data
        _LOG.info("ConfigMap %s/%s %s", namespace, CONFIG_MAP, "is gone" if is_gone else "was read")
        self._known.add(namespace)
        if namespace != self.configurations.home:
            ended = time.monotonic()
            self._rests_until[namespace] = ended + min(_LONGEST_REST, _REST * (ended - began))
        if self._waiting[namespace] is change:  # else there is a newer one
            del self._waiting[namespace]

    async def _report(self, events: EventWriter) -> None:
        """Write an Event for each new and each resolved problem. A change in the home namespace may affect all."""
        problems = {each.namespace: each.message for each in self.configurations.problems}
        for namespace, message in problems.items():
            if self._reported.get(namespace) != message and namespace in self._found:
                _LOG.warning("%s", message)
                await events.write(self._found[namespace], "NotInForce", _of_problem(message), is_warning=True)
        for namespace in set(self._reported) - set(problems):
            if namespace in self._found:
                message = f"{CONFIG_MAP}.yaml is in force"
                await events.write(self._found[namespace], "InForce", message, is_warning=False)
        self._reported = problems
        in_vain = {each.namespace: each.message for each in self.configurations.without_effect}
        for namespace, message in in_vain.items():
            if self._warned.get(namespace) != message and namespace in self._found:
                await events.write(self._found[namespace], "NoEffect", message, is_warning=True)
        self._warned = in_vain


def _of_problem(message: str) -> str:
    return f"not in force; the last valid configuration still applies: {message}"
