"""The node agent, which reads the notices of its node and serves them to the node's pods until SIGTERM.

One thread reads the provider's source, another serves only the notice of this node. For the watcher, each notice becomes one
Event on the Node, and one more if it is withdrawn. The agent approves an early reclaim by Azure only once all known work has
left the node.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from spotwright.clouds import provider_records
from spotwright.errors import InputError
from spotwright.notices import Notice, Source, SourceError
from spotwright.notices.http_server import DeferredResponse, HttpServer, Request, Response
from spotwright.notices.node_event import NAMESPACE, event_of, withdrawal_of
from spotwright.notices.notice import NoticeWatch
from spotwright.notices.sources import FORMAT, LONGEST_WAIT

__all__ = [
    "IDLE_PERIOD",
    "PROVIDERS",
    "Address",
    "Approval",
    "NodeEvents",
    "NoticeBoard",
    "NoticeRelay",
    "SourceOptions",
    "bind",
    "make_source",
    "nothing_runs",
    "serve",
]


class NoticeBoard:
    """The published state of one node.

    ``problem`` returns why its source of notices is unreachable, or an empty string. ``on_change`` is called after each change.
    """

    def __init__(self, problem: Callable[[], str], on_change: Callable[[], None] = lambda: None) -> None:
        self._problem, self._on_change = problem, on_change
        self._lock = threading.Lock()
        self._agent = secrets.token_hex(4)  # so that the states of two agents always differ
        self._changes = 0
        self._notice: Notice | None = None
        self._open_requests = 0
        self._last_request: float | None = None

    def update(self, notice: Notice | None) -> None:
        """Publish another notice, or ``None``: it is withdrawn. Safe in any thread."""
        with self._lock:
            self._notice, self._changes = notice, self._changes + 1
        self._on_change()

    @property
    def notice(self) -> Notice | None:
        """The published notice."""
        return self._notice

    def idle_seconds(self) -> float | None:
        """Seconds since a client last had an open request; ``None`` if no client ever had."""
        if self._open_requests:
            return 0.0
        return None if self._last_request is None else time.monotonic() - self._last_request

    def handle(self, request: Request) -> Response | DeferredResponse:
        """Answer one request."""
        if request.method not in {"GET", "HEAD"}:
            return _json(405, {"format": FORMAT, "problem": "this agent is read-only: use GET /notice"})
        if request.path == "/health":
            return _json(200, {"format": FORMAT, "problem": self._problem()})
        if request.path != "/notice":
            return _json(404, {"format": FORMAT, "problem": "use /notice or /health"})
        self._last_request = time.monotonic()
        wait = _seconds(request.query.get("wait", ""))
        if wait <= 0 or request.query.get("since") != self.state:
            return self._response()
        self._open_requests += 1
        since = self.state
        return DeferredResponse(
            time.monotonic() + wait,
            lambda over: self._response() if over or self.state != since else None,
            self._on_close,
        )

    @property
    def state(self) -> str:
        """The name of the published state, which differs after each change."""
        return f"{self._agent}{self._changes}"

    def _on_close(self) -> None:
        self._open_requests -= 1
        self._last_request = time.monotonic()

    def _response(self) -> Response:
        with self._lock:
            notice, state = self._notice, self.state
        problem = self._problem()
        if notice is None and problem:
            return _json(503, {"format": FORMAT, "problem": problem})
        published = _as_json(notice) if notice is not None else None
        return _json(200, {"format": FORMAT, "state": state, "notice": published})


def _as_json(notice: Notice) -> dict[str, Any]:
    has_end = math.isfinite(notice.ends_at)
    return {
        "ends_at": notice.ends_at if has_end else None,
        "seconds_left": notice.ends_at - time.time() if has_end else None,
        "kind": notice.kind,
        "source": notice.source,
        "certain": notice.certain,
        "reason": notice.reason,
    }


def _json(status: int, content: dict[str, Any]) -> Response:
    return Response(status, json.dumps(content).encode())


def _seconds(text: str) -> float:
    """The seconds that a client wants to wait; 0 for anything but a finite number."""
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return min(seconds, LONGEST_WAIT) if math.isfinite(seconds) else 0.0


IDLE_PERIOD = 6.0
"""Seconds without an open request after which the node counts as idle: clients retry failed requests within 5."""

_RETRY = 2.0  # seconds between two tries


class Approval:
    """Approves the present notice once no work runs. ``approve`` asks the provider; ``log`` gets lines for people."""

    def __init__(
        self, board: NoticeBoard, approve: Callable[[], bool], log: Callable[[str], None], leases: Path | None = None
    ) -> None:
        self._board, self._approve, self._log, self._leases = board, approve, log, leases
        self._done = False
        self._thread: threading.Thread | None = None
        self._next_try = 0.0

    def check(self) -> float | None:
        """Approve the notice if it is time. Returns the seconds until the next check; ``None``: when the notice changes."""
        notice = self._board.notice
        if notice is None:
            self._done = False
        if notice is None or self._done or not notice.certain or notice.kind != "interruption":
            return None
        busy = self._thread is not None and self._thread.is_alive()
        if not busy and time.monotonic() >= self._next_try and nothing_runs(self._board, self._leases):
            self._next_try = time.monotonic() + _RETRY
            self._thread = threading.Thread(target=self._ask_provider, name="spotwright-approval", daemon=True)
            self._thread.start()
        return 0.5

    def _ask_provider(self) -> None:
        """Send the approval; runs in a thread, because the provider may be slow."""
        try:
            approved = self._approve()
        except SourceError as error:
            self._log(f"not approved: {error}")
            return
        self._done = True
        text = "approved: this machine is idle now"
        self._log(text if approved else "not approved: the event has begun, or names other machines too")


def nothing_runs(board: NoticeBoard, leases: Path | None) -> bool:
    """True if all work known to the agent has left the node."""
    idle = board.idle_seconds()
    if idle is None and leases is None:
        return False
    if idle is not None and idle < IDLE_PERIOD:
        return False
    if leases is None:
        return True
    try:
        return next(leases.iterdir(), None) is None
    except OSError:
        return False  # unreadable leases: work may run


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The user's options about the source; ``None`` and ``""``: not given. ``notice`` is in seconds."""

    provider: str
    metadata_url: str = ""
    provider_id: str = ""
    file: Path | None = None
    notice: float | None = None


def _azure(options: SourceOptions) -> Source:
    from spotwright.notices.metadata_services import METADATA, AzureSource, resource_of

    resource = resource_of(options.provider_id) if options.provider_id else None
    return AzureSource(options.metadata_url or METADATA, resource=resource)


def _gcp(options: SourceOptions) -> Source:
    from spotwright.notices.metadata_services import METADATA, GcpSource
    from spotwright.notices.notice import SHORTEST

    notice = options.notice if options.notice is not None else SHORTEST
    return GcpSource(options.metadata_url or METADATA, notice=notice)


def _aws(options: SourceOptions) -> Source:
    from spotwright.notices.metadata_services import METADATA, AwsSource

    return AwsSource(options.metadata_url or METADATA)


def _kubernetes(options: SourceOptions) -> Source:
    from spotwright.notices.kubernetes_node import KubernetesSource, node_in_file

    return KubernetesSource(node_in_file(_file(options, "the node, as printed by kubectl get node NAME -o json")))


def _local(options: SourceOptions) -> Source:
    from spotwright.notices.sources import FileSource

    return FileSource(_file(options, "the notice, written there when the node is about to be reclaimed"))


def _file(options: SourceOptions, content: str) -> Path:
    if options.file is None:
        raise InputError(f"--provider {options.provider} reads a file: name with --file the file that holds {content}")
    return options.file


_SERVICES: Mapping[str, Callable[[SourceOptions], Source]] = {"azure": _azure, "gcp": _gcp, "aws": _aws}

PROVIDERS: Mapping[str, Callable[[SourceOptions], Source]] = {
    **_SERVICES,
    "kubernetes": _kubernetes,
    "local": _local,
    **{
        one.name: _SERVICES[one.metadata_service]
        for one in provider_records.PROVIDERS.values()
        if one.metadata_service and one.is_one_cloud
    },
}
"""The factory of each provider's source. All nodes of AKS, GKE and EKS are machines of one cloud."""


def make_source(options: SourceOptions) -> Source:
    """Return the source for these options. Raises :class:`InputError` or :class:`SourceError` for a wrong combination."""
    make = PROVIDERS[options.provider]
    if options.provider_id and make is not _azure:
        raise InputError("--provider-id is only for azure, whose events name several machines")
    if options.notice is not None and make is not _gcp:
        raise InputError("--notice is only for gcp: the other providers announce when the machine goes away")
    if options.file is not None and make not in {_kubernetes, _local}:
        raise InputError(f"--file is only for local and kubernetes; {options.provider} is read over the network")
    if options.metadata_url and make in {_kubernetes, _local}:
        raise InputError(f"--metadata-url is only for azure, gcp and aws; {options.provider} reads a file")
    return make(options)


_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TIMEOUT = 10.0  # seconds for one request
_LONGEST = 300.0  # seconds after which a notice without an end is given up


_MakeEvent = Callable[[Notice, str, str, float], dict[str, Any]]


class NodeEvents:
    """Posts the notices of ``node``. ``log`` gets lines for people.

    ``account`` is the folder of a service account; the default is ``SPOTWRIGHT_SERVICE_ACCOUNT``, else the kubelet's mount.
    Raises :class:`InputError` outside a pod with a service account.
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
                f"--node {node}: Events need a service account, and {account} has no token; set automountServiceAccountToken:"
                " true, or omit --node"
            )
        self._boot = _BOOT.read_text(encoding="ascii").strip() if _BOOT.is_file() else "boot"
        self._posted: set[str] = set()
        self._last: Notice | None = None

    def tell(self, notice: Notice | None) -> None:
        """Post a notice (or, with ``None``, its withdrawal) from a background thread."""
        before, self._last = self._last, notice
        make, posted = (withdrawal_of, before) if notice is None else (event_of, notice)
        if posted is not None:
            threading.Thread(target=self._post, args=(posted, make), name="spotwright-event", daemon=True).start()

    def _post(self, notice: Notice, make: _MakeEvent) -> None:
        from http.client import HTTPException  # here and below: few agents post to Kubernetes

        event = make(notice, self._node, self._boot, time.time())
        name = str(event["metadata"]["name"])
        if name in self._posted:
            return
        until = time.time() + _LONGEST if math.isinf(notice.ends_at) else max(notice.ends_at, time.time() + _TIMEOUT)
        while True:
            try:
                status = self._send(make(notice, self._node, self._boot, time.time()))
            except (OSError, HTTPException) as error:
                problem = f"the API server does not answer ({type(error).__name__})"
            else:
                if status in (201, 409):  # 409: an earlier agent has posted it
                    self._posted.add(name)
                    self._log(f"posted as Event {NAMESPACE}/{name}")
                    return
                problem = f"the API server answers {status}"
            if time.time() >= until or problem.endswith(("401", "403")):
                self._log(f"not posted as an Event: {problem}")
                return
            time.sleep(_RETRY)

    def _send(self, event: Mapping[str, object]) -> int:
        """Post an Event, and return the status of the answer. The token is reread, because the kubelet replaces it."""
        import ssl
        from http.client import HTTPSConnection

        token = (self._account / "token").read_text(encoding="ascii").strip()
        context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        connection = HTTPSConnection(self._host, int(self._port), timeout=_TIMEOUT, context=context)
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request("POST", f"/api/v1/namespaces/{NAMESPACE}/events", json.dumps(event).encode(), headers)
            return connection.getresponse().status
        finally:
            connection.close()


class NoticeRelay:
    """Watches ``source`` and publishes its notices on :attr:`board`, which ``server`` serves; ``log`` gets lines for people.

    ``tell`` is also called with each change, once it is published.
    """

    def __init__(
        self,
        source: Source,
        server: HttpServer,
        log: Callable[[str], None] = lambda _: None,
        tell: Callable[[Notice | None], None] = lambda _: None,
    ) -> None:
        self._name, self._log, self._logged_problem = source.name, log, ""
        self._tell = tell
        self._watch = NoticeWatch(source, self._on_change)
        self.board = NoticeBoard(self._problem, server.wake)
        """The board to serve."""
        self._watch.start()

    def stop(self) -> None:
        """Stop watching the source."""
        self._watch.stop()

    def log_problem(self) -> None:
        """Log each begin and end of the source's failures once."""
        problem = self._watch.problem
        if problem != self._logged_problem:
            self._log(problem or f"{self._name}: it answers")
            self._logged_problem = problem

    def _problem(self) -> str:
        return self._watch.problem or ("" if self._watch.answered else f"{self._name}: it has not answered yet")

    def _on_change(self, notice: Notice | None) -> None:
        self.board.update(notice)
        self._tell(notice)
        self._log("the notice was withdrawn" if notice is None else f"{notice.kind}: {notice.reason}")


_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Address:
    """Address to listen at. Port 0 means any free port."""

    host: str
    port: int

    @classmethod
    def read(cls, text: str) -> Address:
        """Read ``HOST:PORT``, or ``:PORT`` for every address. Raises :class:`ValueError` for anything else.

        Brackets around an IPv6 address are optional: ``$(HOST_IP):8788`` in a manifest has none.
        """
        host, colon, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535 or not _is_host(bare):
            raise ValueError(f"{text!r}: expected HOST:PORT, such as 127.0.0.1:8788")
        return cls(bare or "0.0.0.0", int(port))  # noqa: S104  # no host means every address, as in other servers

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _is_host(text: str) -> bool:
    if ":" not in text:
        return text.isprintable() and " " not in text
    try:
        socket.inet_pton(socket.AF_INET6, text)
    except OSError:
        return False
    return True


def bind(address: Address) -> socket.socket:
    """Open a listening socket. Raises :class:`InputError` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(
                f"{address} is in use: does a node agent run here already? Name another address with --listen HOST:PORT"
            ) from error
        raise InputError(
            f"{address}: cannot listen there ({error.strerror or error}); name another with --listen"
        ) from error
    return listener


def serve(
    source: Source,
    listener: socket.socket,
    log: Callable[[str], None],
    *,
    approve: Callable[[], bool] | None = None,
    leases: Path | None = None,
    tell: Callable[[Notice | None], None] = lambda _: None,
) -> None:
    """Run an agent until SIGTERM or SIGINT.

    ``log`` gets lines for people. ``approve`` is called when the present notice may be approved; each file of the folder
    ``leases`` represents running work. ``tell`` is called with each change of the notice.
    """
    server = HttpServer()
    relay = NoticeRelay(source, server, log, tell)
    approval = Approval(relay.board, approve, log, leases) if approve is not None else None
    server.listen(listener, relay.board.handle)
    with _stop_signals(server) as stopped, contextlib.closing(server):
        log(f"listening at http://{_address_of(listener)}/notice; the source is {source.name}")
        while not stopped():
            next_check = approval.check() if approval is not None else None
            server.run_once(next_check if next_check is not None else 1.0)
            relay.log_problem()
    relay.stop()


def _address_of(listener: socket.socket) -> Address:
    host, port = listener.getsockname()[:2]
    return Address(host, port)


@contextlib.contextmanager
def _stop_signals(server: HttpServer) -> Iterator[Callable[[], bool]]:
    """Handle SIGTERM and SIGINT in the block; yields a function that returns True once one has arrived."""
    received: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> Any:
        received.append(number)
        server.wake()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
