"""Reads interruption notices and rebalance recommendations of this spot instance from EC2's instance metadata.

Sources: Amazon EC2 user guide, "Spot Instance interruption notices" (``spot/instance-action``: 404, or an action and a time,
two minutes ahead, best effort, hibernation at once; look every five seconds), "EC2 instance rebalance recommendations"
(``events/recommendations/rebalance``: 404, or ``noticeTime``) and "Use the Instance Metadata Service" (IMDSv2: a token by
PUT, for at most six hours, sent with every request; 401 for one that is no longer good).
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

from spotwright.notices.http_client import Answer, HttpClient, parse_http_date
from spotwright.notices.notice import Notice, PollingSource, SourceError

__all__ = ["AwsSource"]

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
_LONG_AGO = 600.0  # an interruption that is so many seconds overdue is doubtful

_ACTIONS = {"terminate": "ends", "stop": "stops", "hibernate": "hibernates"}


class AwsSource(PollingSource):
    """Interruption notice and rebalance recommendation of the instance this runs on."""

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
        """Send a request with a token; with a new one where the service refuses the old one."""
        for renewed in (False, True):
            if renewed or time.monotonic() >= self._renew_at:
                self._new_token(timeout)
            answer = self._http.request(path, headers={TOKEN_HEADER: self._token}, timeout=timeout)
            if answer.status != 401:
                return answer
            self._renew_at = 0.0
        raise SourceError(f"{self.name}: the metadata service refuses every token, also a new one")

    def _new_token(self, timeout: float) -> None:
        requested = time.monotonic()
        answer = self._http.request(TOKEN, method="PUT", headers={TTL_HEADER: str(_TOKEN_LIFE)}, timeout=timeout)
        token = answer.body.decode("ascii", "replace").strip()
        life = answer.headers.get(TTL_HEADER.lower(), "")
        good = token.isprintable() and token.isascii() and " " not in token and 0 < len(token) <= _LONGEST_TOKEN
        if answer.status != 200 or not good or not (life.isascii() and life.isdecimal() and len(life) < 10):
            raise SourceError(
                f"{self.name}: the metadata service gave no token (status {answer.status}); in a pod this happens where its hop "
                "limit is 1: run with hostNetwork"
            )
        self._token, self._renew_at = token, requested + _RENEW * int(life)


def _action(answer: Answer) -> Notice:
    """The interruption notice in an answer; not certain where the answer differs from the documentation."""
    given = _object(answer)
    action, now = given.get("action"), time.time()
    ends_at = _moment(given.get("time"))
    what = _ACTIONS.get(action) if isinstance(action, str) else None
    if what is None and ends_at is None:
        raise SourceError("aws: 'spot/instance-action' holds neither an action nor a time")
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
        raise SourceError(f"aws: no rebalance recommendation can be read (status {answer.status})")
    text = "EC2 recommends to leave this instance: the risk that it is interrupted has risen"
    return Notice(float("inf"), "rebalance", "aws", certain=False, reason=text)


def _object(answer: Answer) -> dict[str, Any]:
    try:
        given = json.loads(answer.body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise SourceError("aws: the metadata service answered with something other than JSON")
    return given


def _moment(text: Any) -> float | None:
    """A time in UTC such as ``2017-09-18T08:22:00Z`` as Unix seconds; ``None`` for anything else."""
    if not isinstance(text, str) or not text.endswith("Z") or "T" not in text:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None
