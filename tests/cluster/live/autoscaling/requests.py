"""Plain requests to the API server of the test bed, for the stand-ins of a cloud and of an autoscaler."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request

from testbed.settings import Settings
from tests.cluster.live.kube import Object

__all__ = ["Requests"]

_TIMEOUT = 20.0  # seconds
_PATCH = "application/merge-patch+json"


class Requests:
    """A client with all rights."""

    def __init__(self, bed: Settings) -> None:
        config = json.loads(bed.kubeconfig.read_text(encoding="utf-8"))
        cluster = config["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._server, self._token = cluster["server"], config["users"][0]["user"]["token"]
        self._context = ssl.create_default_context(cadata=authority)

    def send(self, method: str, path: str, body: object = None) -> Object | None:
        """Send one request, and return the answer; None if the object does not exist or its namespace is being deleted.

        Other errors are raised.
        """
        kind = _PATCH if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._server}{path}", data, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT, context=self._context) as response:  # noqa: S310
                found: Object = json.loads(response.read())
                return found
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            if error.code == 404 or "being terminated" in text:
                return None
            raise RuntimeError(f"{method} {path}: {error.code} {text}") from error

    def items(self, path: str) -> list[Object]:
        """The objects of a list."""
        found = self.send("GET", path)
        assert found is not None, path
        items: list[Object] = found["items"]
        return items
