"""Read notices from the metadata services of virtual machines: EC2's, Azure's Scheduled Events and Google Compute Engine's.

Sources for EC2: Amazon EC2 user guide, "Spot Instance interruption notices" (``spot/instance-action``: 404, or an
action and a time, two minutes ahead, best effort, hibernation at once; look every five seconds), "EC2 instance rebalance
recommendations" (``events/recommendations/rebalance``: 404, or ``noticeTime``) and "Use the Instance Metadata Service"
(IMDSv2: a token by PUT, for at most six hours, sent with every request; 401 for an expired one).
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

from spotwright.notices.http_client import Answer, HttpClient, parse_http_date
from spotwright.notices.notice import SHORTEST, Notice, PollingSource, SourceError

__all__ = ["AwsSource", "AzureSource", "GcpSource", "resource_of"]


METADATA = "http://169.254.169.254"
TOKEN = "/latest/api/token"  # noqa: S105  # a path
ACTION = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105  # the name of a header
TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"

_TOKEN_LIFE = 21600  # seconds: the longest that can be requested
_RENEW = 0.8  # share of its life after which a token is replaced
_LONGEST_TOKEN = 1024
_TIMEOUT = 5.0
_LONG_AGO = 600.0  # an interruption this many seconds overdue is doubtful

_ACTIONS = {"terminate": "ends", "stop": "stops", "hibernate": "hibernates"}


class AwsSource(PollingSource):
    """The interruption notice and rebalance recommendation of this instance."""

    name = "aws"
    interval = 5.0

    def __init__(self, url: str = METADATA) -> None:
        self._http = HttpClient(self.name, url)
        self._token, self._renew_at = "", 0.0

    def poll(self, timeout: float) -> Notice | None:
        """Ask for the notice, then for the recommendation. Raises :class:`SourceError`."""
        timeout = min(timeout, _TIMEOUT)
        answer = self._get(ACTION, timeout)
        if answer.status == 200:
            return _action(answer)
        if answer.status != 404:
            raise SourceError(f"{self.name}: the metadata service answered {answer.status}")
        return _rebalance(self._get(REBALANCE, timeout))

    def _get(self, path: str, timeout: float) -> Answer:
        """Send a request with a token, renewed if the service refuses the old one."""
        for renewed in (False, True):
            if renewed or time.monotonic() >= self._renew_at:
                self._new_token(timeout)
            answer = self._http.request(path, headers={TOKEN_HEADER: self._token}, timeout=timeout)
            if answer.status != 401:
                return answer
            self._renew_at = 0.0
        raise SourceError(f"{self.name}: the metadata service refuses all tokens, including new ones")

    def _new_token(self, timeout: float) -> None:
        requested = time.monotonic()
        answer = self._http.request(TOKEN, method="PUT", headers={TTL_HEADER: str(_TOKEN_LIFE)}, timeout=timeout)
        token = answer.body.decode("ascii", "replace").strip()
        life = answer.headers.get(TTL_HEADER.lower(), "")
        good = token.isprintable() and token.isascii() and " " not in token and 0 < len(token) <= _LONGEST_TOKEN
        if answer.status != 200 or not good or not (life.isascii() and life.isdecimal() and len(life) < 10):
            raise SourceError(
                f"{self.name}: the metadata service refused a token (status {answer.status}); in a pod, a hop limit of 1 causes"
                " this: run with hostNetwork"
            )
        self._token, self._renew_at = token, requested + _RENEW * int(life)


def _action(answer: Answer) -> Notice:
    """The interruption notice in an answer; not certain if the answer differs from the documentation."""
    given = _object(answer)
    action, now = given.get("action"), time.time()
    ends_at = _moment(given.get("time"))
    what = _ACTIONS.get(action) if isinstance(action, str) else None
    if what is None and ends_at is None:
        raise SourceError("aws: 'spot/instance-action' has neither an action nor a time")
    # both times are the service's, so a wrong clock on this machine does not matter
    left = ends_at - (parse_http_date(answer.headers.get("date", "")) or now) if ends_at is not None else 0.0
    if action == "hibernate":
        left = min(left, 0.0)  # hibernation begins at once
    certain = what is not None and ends_at is not None and left > -_LONG_AGO
    text = f"EC2 {what or 'interrupts'} this instance"
    return Notice(now + left, "interruption", "aws", certain, text, f"aws-{action}-{given.get('time')}")


def _rebalance(answer: Answer) -> Notice | None:
    if answer.status == 404:
        return None
    if answer.status != 200 or _moment(_object(answer).get("noticeTime")) is None:
        raise SourceError(f"aws: cannot read rebalance recommendations (status {answer.status})")
    text = "EC2 recommends leaving this instance: its interruption risk has risen"
    return Notice(float("inf"), "rebalance", "aws", certain=False, reason=text)


def _object(answer: Answer) -> dict[str, Any]:
    try:
        given = json.loads(answer.body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise SourceError("aws: the metadata service's answer is not JSON")
    return given


def _moment(text: Any) -> float | None:
    """A time in UTC such as ``2017-09-18T08:22:00Z`` as Unix seconds; ``None`` for anything else."""
    if not isinstance(text, str) or not text.endswith("Z") or "T" not in text:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None


SCHEDULED_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"

_AZURE_HEADERS = {"Metadata": "true"}
_FIRST_TIMEOUT = 130.0  # "up to two minutes" for the request that switches the service on
_LONGEST_NAME = 200

_LEAVES = frozenset({"Preempt", "Redeploy", "Terminate"})
"""Events that end the machine and its work. After a Reboot the machine is back; a Freeze is harmless."""


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
    """Scheduled Events of this machine.

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
            SCHEDULED_EVENTS, headers=_AZURE_HEADERS, timeout=_FIRST_TIMEOUT if first else min(timeout, _TIMEOUT)
        )
        events = [event for given in _events(answer) if (event := self._read(given, resource, answer)) is not None]
        self._ends = {event.id: event.ends_at for event in events}
        self._event = min(events, key=_urgency, default=None)
        return _notice(self._event) if self._event is not None else None

    def approve(self) -> bool:
        """Approve the last seen preemption early, because the machine is no longer needed.

        It is sent only if the event names just this machine, because an approval counts for all machines of the event. Returns
        whether it was sent. Raises :class:`SourceError` if Azure refuses it.
        """
        event = self._event
        if event is None or event.type != "Preempt" or event.started or not event.alone or not event.certain:
            return False
        body = json.dumps({"StartRequests": [{"EventId": event.id}]}).encode()
        headers = {**_AZURE_HEADERS, "Content-Type": "application/json"}
        answer = self._http.request(SCHEDULED_EVENTS, method="POST", headers=headers, body=body, timeout=_TIMEOUT)
        if answer.status != 200:
            raise SourceError(f"{self.name}: the approval was refused with {answer.status}")
        return True

    def _own_name(self, timeout: float) -> str:
        if self._resource is None:
            answer = self._http.request(NAME, headers=_AZURE_HEADERS, timeout=timeout)
            name = answer.body.decode("utf-8", "replace").strip()
            if answer.status != 200 or not 0 < len(name) <= _LONGEST_NAME or not _is_name(name):
                raise SourceError(
                    f"{self.name}: the metadata service does not tell this machine's name (HTTP {answer.status}); pass"
                    " --provider-id"
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
        raise SourceError(f"azure: the answer is not a list of scheduled events (status {answer.status})")
    return events


def _urgency(event: _Event) -> tuple[bool, bool, float]:
    return (not event.certain, not event.type, event.ends_at)


def _notice(event: _Event) -> Notice:
    if not event.type:
        text = "Azure recommends leaving this machine: it may be preempted soon"
        return Notice(float("inf"), "rebalance", "azure", certain=False, reason=text)
    verb = {"Preempt": "takes", "Redeploy": "moves", "Terminate": "deletes", "Reboot": "restarts"}[event.type]
    provider = event.type in _LEAVES and not event.by_user
    return Notice(
        event.ends_at,
        "interruption" if provider or event.type == "Preempt" else "disruption",
        "azure",
        event.certain,
        f"Azure {verb} this machine ({event.type}{', as its owner requested' if event.by_user else ''})",
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
            f"azure: {provider_id[:300]!r} is not a provider ID of an Azure machine (azure:///subscriptions/...)"
        )
    return f"{group}_{machine}" if group else machine


ROOT = "/computeMetadata/v1/instance/"
_STOPS = "TERMINATE_ON_HOST_MAINTENANCE"
MAINTENANCE_EVENTS = frozenset({"NONE", "MIGRATE_ON_HOST_MAINTENANCE", _STOPS})

_GOOGLE_HEADERS = {"Metadata-Flavor": "Google"}
_LONGEST_WAIT = 60.0
_PAUSE = 1.0  # seconds between two requests while there is a notice
_MAINTENANCE = 60.0  # seconds from the notice to the end; an hour at most for machines with GPUs


class GcpSource:
    """Preemption and maintenance of this machine.

    ``notice`` is the length of a preemption notice in seconds: 30, or 120 if the machine was created with that notice. The
    server does not give its begin, so the seconds count from the first answer, which a waiting request gets at once.
    """

    name = "gcp"

    def __init__(self, url: str = METADATA, *, notice: float = SHORTEST) -> None:
        self._http = HttpClient(self.name, url)
        self._notice = notice
        self._etag = ""
        self._last: Notice | None = None
        self._first: dict[str, float] = {}  # when each value was first seen, by the monotonic clock

    def wait(self, timeout: float) -> Notice | None:
        """See :meth:`spotwright.notices.Source.wait`."""
        if self._last is not None:
            time.sleep(min(timeout, _PAUSE))  # the notice can only run out or be withdrawn
        event = self._maintenance_event()
        waits = self._last is None and event != _STOPS
        try:
            preempted = self._preempted(min(timeout, _LONGEST_WAIT) if waits else 0.0)
        except SourceError:
            self._etag = ""  # so that the next request is answered at once
            raise
        reasons = [("preempted", self._notice, "Google is preempting this machine")] if preempted else []
        if event == _STOPS:
            reasons.append((event, _MAINTENANCE, "Google is stopping this machine for host maintenance"))
        notice = self._read(reasons)
        if notice is None or not notice.same_as(self._last):
            self._last = notice
        return self._last

    def _read(self, reasons: list[tuple[str, float, str]]) -> Notice | None:
        now = time.monotonic()
        self._first = {what: self._first.get(what, now) for what, _, _ in reasons}
        left = [(self._first[what] + seconds - now, text) for what, seconds, text in reasons]
        if not left:
            return None
        seconds, text = min(left)
        return Notice(time.time() + seconds, "interruption", self.name, certain=True, reason=text)

    def _preempted(self, wait: float) -> bool:
        """True if the machine is preempted; waits up to ``wait`` seconds for a change."""
        query = (
            f"?wait_for_change=true&timeout_sec={int(wait)}&last_etag={self._etag}" if wait >= 1 and self._etag else ""
        )
        value, etag = self._get(f"preempted{query}", wait + _TIMEOUT)
        if value not in {"TRUE", "FALSE"}:
            raise SourceError(f"{self.name}: 'preempted' is neither TRUE nor FALSE")
        self._etag = etag
        return value == "TRUE"

    def _maintenance_event(self) -> str:
        value, _ = self._get("maintenance-event", _TIMEOUT)
        if value not in MAINTENANCE_EVENTS:
            raise SourceError(f"{self.name}: 'maintenance-event' is not one of {', '.join(sorted(MAINTENANCE_EVENTS))}")
        return value

    def _get(self, key: str, timeout: float) -> tuple[str, str]:
        answer = self._http.request(ROOT + key, headers=_GOOGLE_HEADERS, timeout=timeout)
        if answer.headers.get("metadata-flavor") != "Google":
            raise SourceError(f"{self.name}: {self._http.url} is not Google's metadata server")
        if answer.status != 200:
            raise SourceError(f"{self.name}: the metadata server answered {answer.status}")
        etag = answer.headers.get("etag", "")
        return answer.body.decode("ascii", "replace").strip(), etag if etag.isascii() and etag.isalnum() else ""
