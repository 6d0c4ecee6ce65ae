"""Who asks, and what that person may read: exactly what Kubernetes lets the same person read of the same namespaces.

A bearer token is shown to the API server (TokenReview). A client certificate was checked in the TLS handshake, against the
authority that the API server itself uses for its clients; its subject names the user (CN) and the groups (O), as for the API
server (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates). Then the API server
says whether that user may get pods, or for logs pods/log, in the run's namespace (SubjectAccessReview). Answers are kept for
seconds, so a right that is taken away ends at once for people. Tokens are neither logged nor kept: the cache has their digests.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from spotwright.cluster.api.requests import Api, ApiFailed

__all__ = ["Access", "Caller", "Refused", "client_authority"]

_KEPT = 10.0  # seconds that an answer of the API server is kept; its own webhooks keep theirs for 10 s to 5 min
_MOST = 2000  # answers that are kept at once
_AT_ONCE = 16  # reviews that wait for the API server at the same time
_LOGIN = "log in again (for example with kubectl get pods), then repeat the command"

K = TypeVar("K")
V = TypeVar("V")


class Refused(Exception):
    """The caller may not read this. ``status`` is 401 or 403, or 503 if nobody can say; the text is one sentence for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Caller:
    """A user as the API server knows it."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass
class _Kept(Generic[K, V]):
    """Answers by question, for a few seconds. The same question is asked once, however many wait for it."""

    _answers: dict[K, tuple[float, asyncio.Future[V]]] = field(default_factory=dict)

    async def get(self, question: K, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        now = time.monotonic()
        kept = self._answers.get(question)
        if kept is None or now >= kept[0] or (kept[1].done() and (kept[1].cancelled() or kept[1].exception())):
            if len(self._answers) >= _MOST:
                self._answers.clear()
            kept = (now + _KEPT, asyncio.ensure_future(ask()))
            self._answers[question] = kept
        return await asyncio.shield(kept[1])


class Access:
    """Decides by the API server. ``api`` may create token reviews and subject access reviews, and needs no other right."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._callers = _Kept[str, Caller | None]()  # by the digest of the token
        self._rights = _Kept[tuple[Caller, str, str], bool]()
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def caller(self, authorization: str, certificate: Mapping[str, Any] | None) -> Caller:
        """Who asks. ``certificate`` is the one that the handshake has checked, as :meth:`ssl.SSLSocket.getpeercert` gives it.

        Raises :class:`Refused`.
        """
        caller = _of_certificate(certificate or {})
        if caller is None:
            caller = await self._of_token(authorization)
        return caller

    async def _of_token(self, authorization: str) -> Caller:
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Refused(401, f"the request has neither a token nor a client certificate of this cluster: {_LOGIN}")
        digest = hashlib.sha256(token.strip().encode()).hexdigest()
        caller = await self._asked(self._callers.get(digest, lambda: self._review_token(token.strip())))
        if caller is None:
            raise Refused(401, f"the cluster does not accept the token, which may have expired: {_LOGIN}")
        return caller

    async def may_read(self, caller: Caller, namespace: str, *, logs: bool = False) -> bool:
        """Whether the caller may get pods, or their logs, in a namespace; in all of them for an empty one."""
        subresource = "log" if logs else ""
        review = self._rights.get(
            (caller, namespace, subresource), lambda: self._review_access(caller, namespace, subresource)
        )
        return await self._asked(review)

    async def readable(self, caller: Caller, namespaces: Iterable[str]) -> set[str]:
        """Those of the namespaces whose pods the caller may get."""
        wanted = sorted(set(namespaces))
        if await self.may_read(caller, ""):
            return set(wanted)
        allowed = await asyncio.gather(*(self.may_read(caller, each) for each in wanted))
        return {each for each, may in zip(wanted, allowed, strict=True) if may}

    async def _asked(self, answer: Awaitable[V]) -> V:
        try:
            return await answer
        except ApiFailed as error:
            raise Refused(503, f"the controller cannot ask the API server who may read what: {error}") from error

    async def _review_token(self, token: str) -> Caller | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        async with self._gate:
            answer = await self._api.send("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)
        status = answer.get("status") or {}
        user = status.get("user") or {}
        if not status.get("authenticated") or not user.get("username"):
            return None
        extra = tuple((key, tuple(values or ())) for key, values in sorted((user.get("extra") or {}).items()))
        return Caller(str(user["username"]), tuple(user.get("groups") or ()), str(user.get("uid", "")), extra)

    async def _review_access(self, caller: Caller, namespace: str, subresource: str) -> bool:
        attributes = {"verb": "get", "version": "v1", "resource": "pods"}
        attributes |= {"namespace": namespace} if namespace else {}
        attributes |= {"subresource": subresource} if subresource else {}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": caller.user,
                "groups": list(caller.groups),
                "uid": caller.uid,
                "extra": {key: list(values) for key, values in caller.extra},
                "resourceAttributes": attributes,
            },
        }
        async with self._gate:
            answer = await self._api.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        status = answer.get("status") or {}
        return bool(status.get("allowed")) and not status.get("denied")


async def client_authority(api: Api) -> str:
    """The authority of client certificates, as PEM text, from the ConfigMap in which the API server publishes it.

    Reading it needs the Role ``extension-apiserver-authentication-reader`` in ``kube-system``, as every server that trusts what
    the API server trusts: https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/. Empty where the API
    server takes no certificates. Raises :class:`ApiFailed`.
    """
    found = await api.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
    return str((found.get("data") or {}).get("client-ca-file", ""))


def _of_certificate(certificate: Mapping[str, Any]) -> Caller | None:
    """The user of a certificate, as the API server reads it: every user with a certificate is in system:authenticated."""
    fields = [(name, value) for part in certificate.get("subject", ()) for name, value in part]
    user = next((value for name, value in fields if name == "commonName"), "")
    groups = tuple(value for name, value in fields if name == "organizationName")
    return Caller(user, (*groups, "system:authenticated")) if user else None
