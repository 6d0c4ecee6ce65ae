"""The small API server with namespaces and selectors: an object is listed and watched with all others and in its namespace.

Like a real one it refuses metadata that no object may have, so that a hostile tenant brings here only what gets into a cluster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web
from tests.cluster.json_patches import apply_patch
from tests.cluster.watching.small_api_server import SmallApiServer

from spotwright.cluster.run_objects import API_VERSION, KINDS
from spotwright.cluster.spot_pools import KIND as POOL
from spotwright.cluster.task_objects import KIND as COUNTER

RECORDED = (*KINDS, POOL, COUNTER)
MAX_BYTES = 1_500_000  # etcd's limit of a request is 1.5 MiB
MAX_ANNOTATIONS = 256 * 1024
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


class ClusterServer(SmallApiServer):
    """Every object is put once, by the path of its kind in all namespaces."""

    def __init__(self) -> None:
        super().__init__()
        self.has_ended = False
        for kind in RECORDED:
            self.objects[f"/apis/{API_VERSION}/{kind.lower()}s"] = {}

    def add(self, collection: str, made: Mapping[str, Any]) -> dict[str, Any]:
        """Add or change an object; it is in ``collection``, and in that of its namespace."""
        meta = made["metadata"]
        uid = str(meta.get("uid") or f"uid-{meta.get('namespace', '')}-{meta['name']}")
        namespace = str(meta.get("namespace") or "")
        key = f"{namespace}/{meta['name']}"
        self.version += 1
        known = self.objects.setdefault(collection, {})
        kind = "MODIFIED" if key in known and known[key]["metadata"]["uid"] == uid else "ADDED"
        known[key] = {**made, "metadata": {**meta, "uid": uid, "resourceVersion": str(self.version)}}
        self._remember(collection, kind, known[key])
        return known[key]

    def remove(self, collection: str, namespace: str, name: str) -> None:
        """Delete an object at once, if it is there."""
        found = self.objects.get(collection, {}).pop(f"{namespace}/{name}", None)
        if found is not None:
            self.version += 1
            found = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self.version)}}
            self._remember(collection, "DELETED", found)
            self._remove_owned(namespace, found["metadata"]["uid"])

    def _remove_owned(self, namespace: str, uid: str) -> None:
        """Delete the records of deleted objects, as the cluster does."""
        for kind in RECORDED:
            collection = f"/apis/{API_VERSION}/{kind.lower()}s"
            for found in list(self.objects[collection].values()):
                meta = found["metadata"]
                if any(each["uid"] == uid for each in meta.get("ownerReferences") or ()):
                    self.remove(collection, namespace, meta["name"])

    def records(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        """The recorded objects of a kind in a namespace, by name."""
        found = self.objects[f"/apis/{API_VERSION}/{kind.lower()}s"]
        return [found[key] for key in sorted(found) if key.startswith(f"{namespace}/")]

    def end(self) -> None:
        """End every stream, even those whose other side is gone."""
        self.has_ended = True
        self._changed.set()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path_qs}")
        path = request.path
        if path in self.pages:
            return await self.pages[path](request)
        if path in self.served:
            return web.json_response({"resources": [{"name": name} for name in self.served[path]]})
        collection, namespace, name = self._place(path)
        if collection not in self.objects:
            return web.json_response({"kind": "Status", "message": f"no {path}"}, status=404)
        if request.method == "GET" and request.query.get("watch") == "true":
            return await self._watch(request)
        if request.method == "GET" and not name:
            chosen = [
                each for each in self.objects[collection].values() if is_selected(each, namespace, request.query_string)
            ]
            listed = {"resourceVersion": str(self.version)}
            return _answer({"kind": "List", "apiVersion": "v1", "metadata": listed, "items": chosen})
        found = self.objects[collection].get(f"{namespace}/{name}")
        if request.method == "GET":
            missing = {"kind": "Status", "message": "not found"}
            return _answer(found or missing, 404 if found is None else 200)
        body = await request.json() if request.can_read_body else None
        return self._change(request.method, path, collection, namespace, name, body)

    def _change(
        self, method: str, path: str, collection: str, namespace: str, name: str, body: Any
    ) -> web.StreamResponse:
        """Write as the controller does: its records, its Lease, its ConfigMaps, Events, evictions and deletions."""
        if path.endswith("/eviction"):
            return web.json_response(body, status=201)
        if method == "DELETE":
            self.remove(collection, namespace, name)
            return web.json_response({"kind": "Status", "status": "Success"})
        found = self.objects[collection].get(f"{namespace}/{name}")
        if method == "PATCH":
            if not isinstance(body, list):
                return web.json_response(found or {})
            if found is None:
                return web.json_response({"kind": "Status", "message": "not found"}, status=404)
            try:
                return web.json_response(self.add(collection, apply_patch(found, body)))
            except (AssertionError, LookupError):
                return web.json_response({"kind": "Status", "message": "a test of the patch fails"}, status=422)
        meta = body["metadata"]
        if method == "POST" and "name" in meta and f"{namespace}/{meta['name']}" in self.objects[collection]:
            return web.json_response({"kind": "Status", "message": "it is there already"}, status=409)
        return web.json_response(
            self.add(
                collection, {**body, "metadata": {**meta, "namespace": namespace, "name": meta.get("name", name)}}
            ),
            status=201 if method == "POST" else 200,
        )

    def _place(self, path: str) -> tuple[str, str, str]:
        """The collection in all namespaces, the namespace and the name of a path."""
        parts = path.strip("/").split("/")
        base = 2 if parts[0] == "api" else 3
        head, rest = "/".join(parts[:base]), parts[base:]
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        name = "/".join(rest[1:2])
        return f"/{head}/{rest[0] if rest else ''}", namespace, name

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        wanted, namespace, _ = self._place(request.path)
        response = web.StreamResponse()
        await response.prepare(request)
        self._streams.add(response)
        try:
            done = 0
            while not self.has_ended:
                changed = self._changed
                while done < len(self.history):
                    version, collection, kind, data = self.history[done]
                    done += 1
                    if version > since and collection == wanted and is_selected(data, namespace, request.query_string):
                        await response.write(wire({"type": kind, "object": data}) + b"\n")
                await changed.wait()
        finally:
            self._streams.discard(response)
        return response


def wire(value: Any) -> bytes:
    """A value as JSON. ``"\0deep COUNT"`` stands for lists in lists, which Python's encoder would not write."""
    text = json.dumps(value)
    return _DEEP.sub(lambda found: "[" * int(found[1]) + "]" * int(found[1]), text).encode()


_DEEP = re.compile(r'"\\u0000deep (\d+)"')


def _answer(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=wire(value), status=status, content_type="application/json")


def is_selected(data: Mapping[str, Any], namespace: str, query: str) -> bool:
    """Whether the selectors of a request choose an object."""
    asked, meta = parse_qs(query), data["metadata"]
    if namespace and meta.get("namespace") != namespace:
        return False
    for term in filter(None, asked.get("fieldSelector", [""])[0].split(",")):
        if not _has_field(data, *term.replace("==", "=").split("=", 1)):
            return False
    labels = meta.get("labels") or {}
    for term in filter(None, asked.get("labelSelector", [""])[0].split(",")):
        key, is_not, value = term.replace("!=", "=").partition("=")[0], "!=" in term, term.rpartition("=")[2]
        if (labels.get(key) == value) is is_not:
            return False
    return True


def _has_field(data: Mapping[str, Any], field: str, value: str) -> bool:
    if (
        field == "source"
    ):  # of an Event: https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/
        source = data.get("source")
        component = source.get("component") if isinstance(source, dict) else None
        return (component or data.get("reportingComponent") or "") == value
    found: Any = data
    for step in field.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return (found or "") == value


def why_refused(made: Any) -> str:
    """Why a real API server takes no such object; empty if it does. Fields that schemas leave open are not looked at."""
    if not isinstance(made, dict) or not isinstance(made.get("metadata"), dict):
        return "is no object"
    meta = made["metadata"]
    name = meta.get("name")
    if not isinstance(name, str) or len(name) > 253 or not _NAME.fullmatch(name):
        return "its name is no name"
    if len(wire(made)) > MAX_BYTES:
        return "it is too large"
    return next(_wrong_in_metadata(meta), "")


def _wrong_in_metadata(meta: Mapping[str, Any]) -> Iterator[str]:
    for field in ("labels", "annotations"):
        values = meta.get(field) or {}
        if not isinstance(values, dict) or any(not isinstance(text, str) for pair in values.items() for text in pair):
            yield f"{field} are no texts"
            return
    for key, value in (meta.get("labels") or {}).items():
        prefix, _, last = key.rpartition("/")
        if not last or len(value) > 63 or len(last) > 63 or len(prefix) > 253 or not _LABEL.fullmatch(value):
            yield "a label has a wrong value"
    if sum(len(key) + len(value) for key, value in (meta.get("annotations") or {}).items()) > MAX_ANNOTATIONS:
        yield "annotations are too long"
    yield from _wrong_in_owners(meta.get("ownerReferences") or [])


def _wrong_in_owners(references: Any) -> Iterator[str]:
    if not isinstance(references, list) or not all(isinstance(each, dict) for each in references):
        yield "ownerReferences are no list of objects"
        return
    for each in references:
        if any(not isinstance(each.get(key), str) or not each[key] for key in ("apiVersion", "kind", "name", "uid")):
            yield "an owner has an empty field"
        if not isinstance(each.get("controller", False), bool):
            yield "controller is no boolean"
    if sum(each.get("controller") is True for each in references) > 1:
        yield "two owners control it"
