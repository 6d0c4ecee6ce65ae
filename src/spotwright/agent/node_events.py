"""Tells Kubernetes of this node's notices: one Event on the Node for each, and one if it is withdrawn, for the watcher.

The agent needs one right for it, to create Events in the namespace ``default``. It reads nothing, and it changes no node. An API
server that cannot be reached is asked again until the node is gone; nobody on the node waits for that.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spotwright.errors import InputError
from spotwright.notices import Notice
from spotwright.notices.node_event import NAMESPACE, event_of, withdrawal_of

__all__ = ["NodeEvents"]

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TIMEOUT = 10.0  # seconds for one request
_RETRY = 2.0  # seconds between two tries
_LONGEST = 300.0  # seconds after which a notice without an end is given up


_MakeEvent = Callable[[Notice, str, str, float], dict[str, Any]]


class NodeEvents:
    """Posts the notices of ``node``. ``log`` gets lines for people.

    ``account`` is the folder of a service account; the default is ``SPOTWRIGHT_SERVICE_ACCOUNT``, else where a kubelet mounts it.
    Raises :class:`InputError` where the process is not in a pod with a service account.
    """

    def __init__(
        self,
        node: str,
        log: Callable[[str], None],
        *,
        account: Path | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        account = account or Path(environment.get("SPOTWRIGHT_SERVICE_ACCOUNT") or _ACCOUNT)
        self._node, self._log, self._account = node, log, account
        self._host = environment.get("KUBERNETES_SERVICE_HOST", "")
        self._port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not self._host or not (account / "token").is_file():
            raise InputError(
                f"--node {node}: Events need a service account, and {account} holds none; set "
                "automountServiceAccountToken: true, or leave --node out"
            )
        self._boot = _BOOT.read_text(encoding="ascii").strip() if _BOOT.is_file() else "boot"
        self._posted: set[str] = set()
        self._last: Notice | None = None

    def tell(self, notice: Notice | None) -> None:
        """Post a notice in a thread of its own; ``None``: that the one before was withdrawn."""
        before, self._last = self._last, notice
        make, told = (withdrawal_of, before) if notice is None else (event_of, notice)
        if told is not None:
            threading.Thread(target=self._post, args=(told, make), name="spotwright-event", daemon=True).start()

    def _post(self, notice: Notice, make: _MakeEvent) -> None:
        event = make(notice, self._node, self._boot, time.time())
        name = str(event["metadata"]["name"])
        if name in self._posted:
            return
        until = time.time() + _LONGEST if math.isinf(notice.ends_at) else max(notice.ends_at, time.time() + _TIMEOUT)
        while True:
            try:
                status = self._send(make(notice, self._node, self._boot, time.time()))
            except (OSError, http.client.HTTPException) as error:
                problem = f"the API server does not answer ({type(error).__name__})"
            else:
                if status in (201, 409):  # 409: an agent before this one has posted it
                    self._posted.add(name)
                    self._log(f"posted as Event {NAMESPACE}/{name}")
                    return
                problem = f"the API server answers {status}"
            if time.time() >= until or problem.endswith(("401", "403")):
                self._log(f"not posted as an Event: {problem}")
                return
            time.sleep(_RETRY)

    def _send(self, event: Mapping[str, object]) -> int:
        """Post an Event, and return the status of the answer. The token is read anew, because the kubelet replaces it."""
        token = (self._account / "token").read_text(encoding="ascii").strip()
        context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        connection = http.client.HTTPSConnection(self._host, int(self._port), timeout=_TIMEOUT, context=context)
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request("POST", f"/api/v1/namespaces/{NAMESPACE}/events", json.dumps(event).encode(), headers)
            return connection.getresponse().status
        finally:
            connection.close()
