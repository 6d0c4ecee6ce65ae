"""Refuse every request that does not come from the page itself, before reading anything for it.

A page on loopback is reachable from every site in the same browser. These checks keep them out, each against one attack:

- the ``Host`` must be a loopback name or one that ``--host-name`` gave (a foreign name that points to 127.0.0.1);
- a foreign ``Origin``, or ``Sec-Fetch-Site: cross-site``, is refused (a foreign page that sends requests);
- only GET and HEAD are answered (the page is read-only);
- the caller must be known: see :mod:`spotwright.page.identity`.

Every answer has a policy that lets the browser run only this server's files, with Trusted Types, so text of a run cannot become
a script. The policy is the one of https://www.w3.org/TR/CSP3/ and https://www.w3.org/TR/trusted-types/.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import ip_address
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

__all__ = ["FRAME_POLICY", "Refusal", "is_loopback", "policy", "refusal_of", "security_headers"]

_METHODS = ("GET", "HEAD")
_NO_CODE = re.compile("%(?![0-9A-Fa-f]{2})")
_LONGEST = 4096  # bytes of a path with its query; longer ones are not addresses of the page


class Headers(Protocol):
    """The headers of a request; names in any case."""

    def get(self, name: str, default: str, /) -> str:
        """The first value."""

    def getall(self, name: str, default: list[str], /) -> list[str]:
        """All values of a repeated header."""


class Refusal(NamedTuple):
    """Why a request is refused: the status, a kind for programs, and a sentence with the fix."""

    status: int
    kind: str
    message: str


def is_loopback(host: str) -> bool:
    """Whether a host name or address means only this machine."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def refusal_of(
    method: str, target: str, headers: Headers, host_names: Collection[str], *, is_page: bool
) -> Refusal | None:
    """Why a request is refused before its sender is checked; ``None``: it is accepted.

    ``target``: as sent. ``host_names``: names beside the loopback ones. ``is_page``: a page's address, which other sites may
    link to.
    """
    if method not in _METHODS:
        return Refusal(405, "method", "the page is read-only: send GET or HEAD")
    if len(target) > _LONGEST:
        return Refusal(414, "address", f"the address has {len(target):,} characters, and the limit is {_LONGEST:,}")
    path = _path(target)
    if not path.startswith("/") or not path.isprintable() or not {".", ".."}.isdisjoint(re.split(r"[/\\]", path)):
        return Refusal(
            400, "address", "not an address of the page: it begins with / and must not contain . or .. segments"
        )
    hosts = headers.getall("Host", [])
    if len(hosts) != 1:
        return Refusal(400, "host", f"the request has {len(hosts)} Host headers: send one")
    (host,) = hosts
    name = _host_name(host)
    if name is None or not (is_loopback(name) or name in host_names):
        return Refusal(403, "host", "the page is not served under this name: add it with --host-name if it is yours")
    if not all(_is_own(origin, host) for origin in headers.getall("Origin", [])):
        return Refusal(403, "origin", "the request comes from another site")
    sites = headers.getall("Sec-Fetch-Site", [])
    is_link = (
        is_page and headers.get("Sec-Fetch-Mode", "") == "navigate" and headers.get("Sec-Fetch-Dest", "") == "document"
    )
    if not {"same-origin", "none"}.issuperset(sites) and not is_link:
        return Refusal(403, "origin", "the request comes from another site")
    return None


def _path(target: str) -> str:
    """The decoded path of a target; empty if browsers cannot decode it either."""
    written = target.partition("?")[0]
    try:
        return "" if _NO_CODE.search(written) else unquote(written, errors="strict")
    except UnicodeDecodeError:
        return ""


def _host_name(host: str) -> str | None:
    """The name in a ``Host`` header, in lower case; ``None`` for other text."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises ValueError for an invalid port
    except ValueError:
        return None
    if not parts.hostname or parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname.rstrip(".").lower()


def _is_own(origin: str, host: str) -> bool:
    return origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())


def policy(import_map: str) -> str:
    """The content security policy of the page. ``import_map``: the digest of its import map, as ``sha256-...``."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' '{import_map}'",
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self'",
            "frame-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types spotwright-worker",
        )
    )


FRAME_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""The policy of a file that a task made, such as an HTML report: no script, no request, a separate origin."""

_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def security_headers(content_policy: str = _NOTHING) -> dict[str, str]:
    """The headers of every answer; by default with a policy that denies everything."""
    return {
        "Content-Security-Policy": content_policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
