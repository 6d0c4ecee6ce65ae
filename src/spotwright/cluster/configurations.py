"""The configuration of every namespace, from ConfigMaps named ``spotwright`` with a key ``spotwright.yaml``, kept up to date.

The controller's own namespace holds the pools and the default policy of the cluster, a namespace the same file as on a laptop.
The namespace's policy is stronger; its pools, if it names any, are used instead of the cluster's. A text with problems changes
nothing: the last good one stays in force, and the problem is kept until a good text comes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from spotwright import config as configuration
from spotwright import yaml_composer as composer
from spotwright.cluster.api_client import Api, EventWriter
from spotwright.cluster.mirror import Change, ChangeKind, Mirror, Resource
from spotwright.cluster.workloads import metadata
from spotwright.config import FILE_NAME, Config
from spotwright.config.document import MAX_UNFOLDED
from spotwright.errors import ConfigError
from spotwright.model.policy import Layer

__all__ = ["CONFIG_MAP", "ConfigMaps", "ConfigProblem", "Configurations"]


CONFIG_MAP = "spotwright"
"""The name of the ConfigMap; its key is the name of the file, ``spotwright.yaml``."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """What is wrong with the ConfigMap of a namespace, for an Event about it."""

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

    def apply(self, namespace: str, config_map: Mapping[str, Any] | None) -> None:
        """Take the ConfigMap of a namespace over, as it is now; ``None`` where it was deleted."""
        text = _text_of(config_map)
        if text is None:
            for kept in (self._texts, self._newest, self._in_force, self._problems):
                kept.pop(namespace, None)
        else:
            self._newest[namespace] = text
        for changed in [namespace] if namespace != self.home else [namespace, *set(self._newest) - {namespace}]:
            self._settle(changed)

    def of(self, namespace: str) -> Config | None:
        """The configuration of a namespace, that of the cluster if it has none of its own; ``None`` if there is neither."""
        return self._in_force.get(namespace) or self._in_force.get(self.home)

    @property
    def problems(self) -> list[ConfigProblem]:
        """The problems of all ConfigMaps whose newest text is not in force."""
        return [ConfigProblem(namespace, message) for namespace, message in sorted(self._problems.items())]

    def _settle(self, namespace: str) -> None:
        """Read the newest text of a namespace; if it has problems, read the last good one, under the pools of today."""
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
        cluster = self._in_force.get(self.home) if namespace != self.home else None
        own = configuration.parse(text if cluster is None else _with_pools(text, cluster), name, traces_exist=False)
        return own if cluster is None else _over(own, cluster)


def _text_of(config_map: Mapping[str, Any] | None) -> str | None:
    text = ((config_map or {}).get("data") or {}).get(FILE_NAME)
    return text if isinstance(text, str) else None


def _with_pools(text: str, cluster: Config) -> str:
    """A configuration with the cluster's pools behind its own lines, which keep their numbers; unchanged if it names pools.

    Raises :class:`ConfigError` where the cluster's pools cannot be written into another text.
    """
    if not _lacks_pools(text):
        return text
    try:
        pools = yaml.safe_load(cluster.text).get("pools")
    except (yaml.YAMLError, ValueError) as error:  # a date or a number that is none: here they are texts
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
    """Whether a text is a mapping without pools. Of a text that cannot be read that is not known; reading it reports the problem.

    Any team writes such texts, so what is nested too deep or stands for too many values is refused before it is made.
    """
    try:
        documents = list(composer.compose(text, lenient=True, max_unfolded=MAX_UNFOLDED))
    except (composer.ComposeError, yaml.YAMLError, UnicodeEncodeError):
        return False
    if len(documents) != 1 or not isinstance(documents[0].root, composer.MappingNode):
        return False
    return not any(key.value == "pools" for key, _ in documents[0].root.value)


def _over(own: Config, cluster: Config) -> Config:
    """The namespace's configuration above the policy of the cluster; what both set, the namespace decides.

    The text stays the namespace's own, so it alone does not make this configuration again.
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


class ConfigMaps:
    """The ConfigMaps of a cluster. ``configurations`` changes with them; await :meth:`follow`."""

    def __init__(self, api: Api, configurations: Configurations, events: EventWriter) -> None:
        self.configurations = configurations
        self.is_complete = False
        self._events = events
        self._mirror = Mirror(api, Resource("/api/v1", "configmaps"), fields=f"metadata.name={CONFIG_MAP}")
        self._found: dict[str, Mapping[str, Any]] = {}  # by namespace
        self._reported: dict[str, str] = {}  # the problem of each namespace that an Event tells

    @property
    def problem(self) -> str:
        """Why the ConfigMaps cannot be read at present; empty while they can."""
        return self._mirror.problem

    async def follow(self) -> None:
        """Follow until cancelled."""
        async for change in self._mirror.changes():
            self._apply(change)
            if self.is_complete:
                await self._report()

    def _apply(self, change: Change) -> None:
        namespace = str(metadata(change.data).get("namespace", ""))
        if change.kind is ChangeKind.SYNCED:
            self.is_complete = True
        elif change.kind is ChangeKind.DELETED:
            self._found.pop(namespace, None)
            self.configurations.apply(namespace, None)
            _LOG.info("ConfigMap %s/%s is gone", namespace, CONFIG_MAP)
        else:
            self._found[namespace] = change.data
            self.configurations.apply(namespace, change.data)
            _LOG.info("ConfigMap %s/%s was read", namespace, CONFIG_MAP)

    async def _report(self) -> None:
        """Write an Event for each problem that is new, and for each that is gone. A change at home may change all of them."""
        problems = {each.namespace: each.message for each in self.configurations.problems}
        for namespace, message in problems.items():
            if self._reported.get(namespace) != message and namespace in self._found:
                _LOG.warning("%s", message)
                await self._events.write(self._found[namespace], "NotInForce", _of_problem(message), is_warning=True)
        for namespace in set(self._reported) - set(problems):
            if namespace in self._found:
                message = f"{CONFIG_MAP}.yaml is in force"
                await self._events.write(self._found[namespace], "InForce", message, is_warning=False)
        self._reported = problems


def _of_problem(message: str) -> str:
    return f"not in force, the last good configuration stays: {message}"
