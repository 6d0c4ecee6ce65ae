"""Reads Azure's Scheduled Events: what will happen to this virtual machine, and when.

Sources: Microsoft, "Azure Metadata Service: Scheduled Events for Linux VMs" (learn.microsoft.com/azure/virtual-machines/linux/
scheduled-events): the address and version, the header ``Metadata: true``, the first request that switches the service on and
may take two minutes, the recommended second between two questions, the least notice of each event, ``NotBefore`` that is empty
once an event has started, events that are withdrawn by leaving the list, and that an approval lets an event proceed for *every*
machine it names. Events come for all machines of a scale set's placement group, so only those count that name this one: its
name is asked for once ("Azure Instance Metadata Service", ``compute/name``; in a scale set the set's name and the machine's
number, hashicorp/nomad#9016), or taken from the provider ID of its node. The advice ``SpotRebalanceRecommendation`` is in no page
yet; karpenter-provider-azure (pkg/controllers/interruption) reads it.
"""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

from spotwright.notices.http_client import Answer, HttpClient, parse_http_date
from spotwright.notices.notice import SHORTEST, Notice, PollingSource, SourceError

__all__ = ["AzureSource", "resource_of"]

METADATA = "http://169.254.169.254"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"

_HEADERS = {"Metadata": "true"}
_FIRST_TIMEOUT = 130.0  # "up to two minutes" for the request that switches the service on
_TIMEOUT = 5.0
_LONG_AGO = 600.0  # an event that is so many seconds overdue and has not begun is doubtful
_LONGEST_NAME = 200

_LEAVES = frozenset({"Preempt", "Redeploy", "Terminate"})
"""Events that take the machine and all that ran on it. After a Reboot the machine is back; a Freeze harms nothing."""


class _Event(NamedTuple):
    """An event about this machine. ``certain``: every field has the documented form."""

    id: str
    type: str
    started: bool
    ends_at: float
    certain: bool
    by_user: bool  # someone in the subscription requested it
    alone: bool  # it names this machine only


class AzureSource(PollingSource):
    """Scheduled Events of the machine this runs on.

    ``resource`` is the machine's name in events, as :func:`resource_of` reads it from a node's provider ID; without it the
    metadata service is asked. ``url`` is the metadata service's address.
    """

    name = "azure"
    interval = 1.0

    def __init__(self, url: str = METADATA, *, resource: str | None = None) -> None:
        self._http = HttpClient(self.name, url)
        self._resource = resource.lower() if resource else None
        self._switched_on = False
        self._event: _Event | None = None
        self._ends: dict[str, float] = {}  # ends of events by ID: NotBefore is empty once an event has started

    def poll(self, timeout: float) -> Notice | None:
        """Ask once. The first request may take two minutes, whatever ``timeout`` is: it switches the service on."""
        first, self._switched_on = not self._switched_on, True
        resource = self._own_name(min(timeout, _TIMEOUT))
        answer = self._http.request(
            EVENTS, headers=_HEADERS, timeout=_FIRST_TIMEOUT if first else min(timeout, _TIMEOUT)
        )
        events = [event for given in _events(answer) if (event := self._read(given, resource, answer)) is not None]
        self._ends = {event.id: event.ends_at for event in events}
        self._event = min(events, key=_urgency, default=None)
        return _notice(self._event) if self._event is not None else None

    def approve(self) -> bool:
        """Let the preemption that was seen last begin before its time, because the machine is not needed any more.

        It is sent only if the event names this machine alone, because an approval counts for all machines of the event. Returns
        whether it was sent. Raises :class:`SourceError` if Azure refuses it.
        """
        event = self._event
        if event is None or event.type != "Preempt" or event.started or not event.alone or not event.certain:
            return False
        body = json.dumps({"StartRequests": [{"EventId": event.id}]}).encode()
        headers = {**_HEADERS, "Content-Type": "application/json"}
        answer = self._http.request(EVENTS, method="POST", headers=headers, body=body, timeout=_TIMEOUT)
        if answer.status != 200:
            raise SourceError(f"{self.name}: the approval was refused with {answer.status}")
        return True

    def _own_name(self, timeout: float) -> str:
        if self._resource is None:
            answer = self._http.request(NAME, headers=_HEADERS, timeout=timeout)
            name = answer.body.decode("utf-8", "replace").strip()
            if answer.status != 200 or not 0 < len(name) <= _LONGEST_NAME or not _is_name(name):
                raise SourceError(
                    f"{self.name}: the metadata service does not give the name of this machine (it answered "
                    f"{answer.status}); name the machine with --provider-id"
                )
            self._resource = name.lower()
        return self._resource

    def _read(self, given: Any, resource: str, answer: Answer) -> _Event | None:
        """An event of the list, if it is about this machine and ends the work on it; otherwise ``None``."""
        if not isinstance(given, dict) or not isinstance(given.get("Resources"), list):
            return None
        names = {name.lower() for name in given["Resources"] if isinstance(name, str)}
        kind, status = given.get("EventType"), given.get("EventStatus")
        advice = status == "Advisory"
        if resource not in names or not isinstance(kind, str) or not (advice or kind in {*_LEAVES, "Reboot"}):
            return None
        ident = given.get("EventId")
        ends_at, plausible = self._end(given, answer)
        whole = isinstance(ident, str) and bool(ident) and status in {"Scheduled", "Started"}
        return _Event(
            id=ident if isinstance(ident, str) else "",
            type="" if advice else kind,
            started=status == "Started",
            ends_at=ends_at,
            certain=whole and plausible and given.get("ResourceType") == "VirtualMachine",
            by_user=given.get("EventSource") == "User",
            alone=len(given["Resources"]) == 1,
        )

    def _end(self, given: dict[str, Any], answer: Answer) -> tuple[float, bool]:
        """End of this machine by an event, in this machine's time, and whether the event's times are plausible."""
        now = time.time()
        earlier = self._ends.get(str(given.get("EventId")))
        text = given.get("NotBefore")
        moment = parse_http_date(text) if isinstance(text, str) else None
        if given.get("EventStatus") == "Started":
            return (min(earlier, now) if earlier is not None else now), True
        if moment is None:
            return (earlier if earlier is not None else now + SHORTEST), False
        # both times are the server's, so a wrong clock on this machine does not matter
        left = moment - (parse_http_date(answer.headers.get("date", "")) or now)
        return now + left, left > -_LONG_AGO


def _events(answer: Answer) -> list[Any]:
    try:
        given = json.loads(answer.body) if answer.status == 200 else None
    except (ValueError, RecursionError):
        given = None
    events = given.get("Events") if isinstance(given, dict) else None
    if not isinstance(events, list):
        raise SourceError(f"azure: the answer is no list of scheduled events (status {answer.status})")
    return events


def _urgency(event: _Event) -> tuple[bool, bool, float]:
    return (not event.certain, not event.type, event.ends_at)


def _notice(event: _Event) -> Notice:
    if not event.type:
        text = "Azure recommends to leave this machine: it may be preempted soon"
        return Notice(float("inf"), "rebalance", "azure", certain=False, reason=text)
    verb = {"Preempt": "takes", "Redeploy": "moves", "Terminate": "deletes", "Reboot": "restarts"}[event.type]
    provider = event.type in _LEAVES and not event.by_user
    return Notice(
        event.ends_at,
        "interruption" if provider or event.type == "Preempt" else "disruption",
        "azure",
        event.certain,
        f"Azure {verb} this machine ({event.type}{', at the request of its owner' if event.by_user else ''})",
        event.id,
    )


def _is_name(text: str) -> bool:
    return all(letter.isalnum() or letter in "-_." for letter in text)


def resource_of(provider_id: str) -> str:
    """Return the name of a machine in scheduled events, from the ``spec.providerID`` of its node.

    A machine of a scale set is called ``SCALESET_NUMBER``, any other machine by its own name. Raises :class:`SourceError` for an
    ID that is not Azure's. Source of the format: the Azure cloud provider for Kubernetes.
    """
    pieces = provider_id.strip().removeprefix("azure://").strip("/").split("/")
    names = dict(zip((piece.lower() for piece in pieces[::2]), pieces[1::2], strict=False))
    # .../providers/Microsoft.Compute/virtualMachineScaleSets/NAME/virtualMachines/NUMBER: every other piece is a name
    machine, group = names.get("virtualmachines"), names.get("virtualmachinescalesets")
    if not provider_id.strip().startswith("azure://") or not machine or not _is_name(f"{group or ''}{machine}"):
        raise SourceError(
            f"azure: {provider_id[:300]!r} is no provider ID of an Azure machine (azure:///subscriptions/...)"
        )
    return f"{group}_{machine}" if group else machine
