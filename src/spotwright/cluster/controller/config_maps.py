"""Follows the ConfigMaps named ``spotwright`` of all namespaces and keeps the configurations in force up to date.

A text with problems changes nothing; an Event on its ConfigMap says what is wrong, with the line and the fix, and another one
says when a good text is in force again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from spotwright.cluster.admission.configurations import CONFIG_MAP, Configurations
from spotwright.cluster.api.mirror import Change, ChangeKind, Mirror, Resource
from spotwright.cluster.api.requests import Api
from spotwright.cluster.controller.events import EventWriter
from spotwright.cluster.workloads.owners import metadata

__all__ = ["ConfigMaps"]

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
