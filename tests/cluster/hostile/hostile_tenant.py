"""The hostile tenant: what it does in its own namespace and at the ports, as plain data that a file can hold.

A deed is one of these mappings. ``{"@": [TEXT, COUNT]}`` stands for a text so many times, ``{"@deep": COUNT}`` for
lists in lists, ``{"@many": [VALUE, COUNT]}`` for a list with so many equal items: the files of counterexamples stay small.

=============  =====================================================================================================
``create``     an object of a collection, or its change (``operation``); the webhook reviews it, then it is in the cluster,
               unless a server refuses it
``delete``     a name in a collection
``review``     the request of an AdmissionReview, sent to the webhook by a pod
``post``       bytes (latin-1) that a pod sends to the webhook
``log``        the text (latin-1) of the log of one of its pods
``read``       a path, with what stands in the header Authorization, at the port for readers; ``metrics``: at that of metrics
=============  =====================================================================================================
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import httpx2
from aiohttp import web
from tests.cluster.hostile.cluster_server import ClusterServer, why_refused, wire
from tests.cluster.hostile.controller_parts import Cost
from tests.cluster.hostile.quiet_tenant import HOSTILE, UID
from tests.cluster.json_patches import apply_patch

Deed = Mapping[str, Any]


_FILES = Path(__file__).parent / "corpus"
CORPUS = sorted(path.stem for path in _FILES.glob("*.json"))
"""The names of earlier findings."""


def read_deeds(name: str) -> list[tuple[int, Deed]]:
    """The deeds of a file of the corpus, each with the step of the quiet tenant after which it is done."""
    found = json.loads((_FILES / f"{name}.json").read_text(encoding="utf-8"))
    return [(step, deed) for step, deed in found["deeds"]]


def whole(value: Any) -> Any:
    """A value with its abbreviations expanded."""
    if isinstance(value, dict):
        if "@" in value:
            text, count = value["@"]
            return text * count
        if "@deep" in value:
            return f"\0deep {value['@deep']}"  # :func:`wire` writes them
        if "@many" in value:
            item, count = value["@many"]
            return [whole(item)] * count
        return {key: whole(each) for key, each in value.items()}
    return [whole(each) for each in value] if isinstance(value, list) else value


class Controller(Protocol):
    """A controller with two tenants, and the cost of a deed."""

    webhook_url: str
    reading_url: str
    metrics_url: str
    context: ssl.SSLContext

    def on_server(self, change: Callable[[], Any]) -> None:
        """Change the cluster."""

    def measuring(self, cost: Cost) -> AbstractContextManager[None]:
        """Add to ``cost`` the cost of the block."""


class HostileTenant:
    """Performs deeds, and returns the cost of each. ``refused`` counts the ones that an API server refuses."""

    def __init__(self, parts: Controller, server: ClusterServer) -> None:
        self._parts, self._server = parts, server
        self.refused = 0
        self._said: set[str] = set()  # of what only the other tenant may read, what was guessed here

    def do(self, deed: Deed) -> Cost | None:
        """Do one deed. None: the API server refuses it."""
        what = str(deed["do"])
        prepared = whole({key: value for key, value in deed.items() if key != "do"})
        text = unquote(json.dumps(prepared))
        self._said |= {word for word in SECRETS if word in text}
        if what == "create" and why_refused(prepared["made"]):
            self.refused += 1
            return None
        cost = Cost()
        act = getattr(self, f"_{what}")
        with self._parts.measuring(cost):
            act(**prepared)
        return cost

    def _create(self, collection: str, made: dict[str, Any], operation: str = "CREATE") -> None:
        made = {**made, "metadata": {**made["metadata"], "namespace": HOSTILE}}
        if collection not in _UNREVIEWED:
            made = self._admitted(made, operation)
        if not why_refused(made):
            self._parts.on_server(lambda: self._server.add(collection, made))

    def _admitted(self, made: dict[str, Any], operation: str) -> dict[str, Any]:
        request = {"uid": "hostile-review", "operation": operation, "namespace": HOSTILE, "object": made}
        request |= {"oldObject": made} if operation == "UPDATE" else {}
        answer = self._post(_review(request)).get("response") or {}
        if not answer.get("patch"):
            return made
        return dict(apply_patch(made, json.loads(base64.b64decode(answer["patch"]))))

    def _delete(self, collection: str, name: str) -> None:
        self._parts.on_server(lambda: self._server.remove(collection, HOSTILE, name))

    def _review(self, request: Any) -> None:
        self._post(_review(request))

    def _post(self, body: Any) -> dict[str, Any]:
        """The webhook's answer; it must answer."""
        content = body.encode("latin-1") if isinstance(body, str) else body
        with httpx2.Client(verify=self._parts.context, timeout=60) as client:
            answer = client.post(f"{self._parts.webhook_url}/mutate", content=content)
        assert answer.status_code < 500, (answer.status_code, answer.text[:200])
        self._tells_no_secret(answer.text)
        if answer.status_code != 200:
            return {}
        review = answer.json()
        assert review["response"]["allowed"] is True
        return dict(review)

    def _log(self, pod: str, text: str) -> None:
        body = text.encode("latin-1")

        async def answer(_request: web.Request) -> web.StreamResponse:
            return web.Response(body=body)

        self._server.pages[f"/api/v1/namespaces/{HOSTILE}/pods/{pod}/log"] = answer

    def _read(self, path: str, authorization: str = "Bearer hostile-token") -> None:
        answer = self._get(self._parts.reading_url, path, {"Authorization": authorization})
        assert answer.status_code != 500, answer.text[:300]
        self._tells_no_secret(answer.text)

    def _metrics(self, path: str) -> None:
        answer = self._get(self._parts.metrics_url, path, {})
        assert answer.status_code != 500
        self._tells_no_secret(answer.text)

    def _tells_no_secret(self, text: str) -> None:
        """Fail if an answer contains information that only the other tenant may read and that was not guessed."""
        told = [word for word in SECRETS if word in text and word not in self._said]
        assert not told, (told, text[:300])

    def _get(self, url: str, path: str, headers: Mapping[str, str]) -> httpx2.Response:
        with httpx2.Client(verify=self._parts.context, timeout=60) as client:
            return client.get(f"{url}/{path.lstrip('/')}", headers=dict(headers))


SECRETS = ("quiet.train", UID, "train-1", "epoch 1 of 3")
"""Information that only the quiet tenant's user may read."""

_UNREVIEWED = ("/api/v1/configmaps", "/api/v1/events")


def _review(request: Any) -> bytes:
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return wire(review)
