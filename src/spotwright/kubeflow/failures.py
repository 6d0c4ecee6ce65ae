"""What a failed request to a server of Kubeflow Pipelines means for the person who waits for it.

Three things can be told apart: the server is away for a while (ask again), it does not accept the login, or it has not what was
asked for. The answers are those of KFP's gateway: ``{"code": NUMBER, "message": TEXT, "details": [...]}``
(grpc-gateway; backend 2.16). It knows a path that it does not serve by the bare message
``Not Found``; a thing that is missing has a longer one. Whatever else comes back is a page of somebody in between.
"""

from __future__ import annotations

import json
from typing import Any

from spotwright.errors import InputError, SpotwrightError

__all__ = ["AlreadyThere", "LoginRefused", "NoSuchThing", "NotKfp", "ServerAway", "failure_of", "read_json"]

_AWAY = frozenset({408, 429, 500, 502, 503, 504})
_OPTIONS = (
    "log in with --token-file, --cookies-file or --client-id, or set SPOTWRIGHT_KFP_TOKEN or SPOTWRIGHT_KFP_COOKIES"
)
_NO_SUCH_PATH = "Not Found"  # the gateway's words for a path that it does not serve
_LONGEST = 300  # characters of a server's message


class ServerAway(SpotwrightError):
    """The server does not answer, or says that it cannot answer now: ask again after a while."""


class LoginRefused(InputError):
    """The server does not accept the login, or no login was given."""


class NotKfp(InputError):
    """Something answers that is no API of Kubeflow Pipelines, or an older one than v2beta1."""


class NoSuchThing(InputError):
    """The server has nothing of this name or id."""


class AlreadyThere(InputError):
    """The server has something of this name already."""


def read_json(host: str, content: bytes) -> dict[str, Any]:
    """The object of an answer. Raises :class:`NotKfp` for a page."""
    try:
        answer = json.loads(content or b"{}")
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise NotKfp(
            f"{host}: answers with a page instead of the API of Kubeflow Pipelines: the address is another one, "
            f"or the page asks for a login: {_OPTIONS}"
        )
    return answer


def failure_of(host: str, error: Exception) -> SpotwrightError:
    """The error to show for one that ``kfp.Client`` raised. ``error`` comes from its REST client or from urllib3."""
    status = getattr(error, "status", None)
    if not isinstance(status, int) or status == 0:
        return _no_answer(host, error)
    message = _message(getattr(error, "body", None))
    if status in _AWAY:
        return ServerAway(f"{host}: cannot answer now ({status}{_said(message)})")
    if status == 401:
        return LoginRefused(f"{host}: does not accept the login (401{_said(message)}): {_OPTIONS}")
    if status == 403:
        return LoginRefused(
            f"{host}: you may not do this (403{_said(message)}): log in as somebody who may, or name another namespace with -n"
        )
    if status == 404 and message in (None, _NO_SUCH_PATH):
        return NotKfp(
            f"{host}: has no API v2beta1 of Kubeflow Pipelines (404): name the address of KFP with --host; "
            "a KFP before 2.0 is too old"
        )
    if status == 404:
        return NoSuchThing(f"{host}: not found{_said(message)}")
    if status == 409:
        return AlreadyThere(f"{host}: is there already{_said(message)}")
    return InputError(f"{host}: refuses the request ({status}{_said(message)})")


def _no_answer(host: str, error: Exception) -> SpotwrightError:
    reason = getattr(error, "reason", None) or error
    text = str(reason) or type(reason).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return InputError(f"{host}: its certificate is not trusted: name the authority's file with --ca-cert")
    return ServerAway(f"{host}: does not answer ({text.rpartition(': ')[2][:_LONGEST]})")


def _message(body: Any) -> str | None:
    """What the server says; ``None`` where it is no answer of KFP."""
    text = body.decode("utf-8", errors="replace") if isinstance(body, bytes) else str(body or "")
    try:
        told = json.loads(text)
    except ValueError:
        return None
    if not isinstance(told, dict) or not {"error", "message", "error_message"} & told.keys():
        return None
    words = str(told.get("message") or told.get("error") or told.get("error_message") or "")
    return " ".join(words.split())[:_LONGEST]


def _said(message: str | None) -> str:
    return f": {message}" if message else ""
