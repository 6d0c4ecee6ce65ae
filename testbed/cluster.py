"""Brings a whole cluster up and takes it down."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Sequence

from testbed import builder
from testbed.building.builds import FIRST_TIME, Cache, build_all
from testbed.building.images import archives, make_images
from testbed.building.programs import TOOLS
from testbed.building.requirements import check_machine
from testbed.control import control_plane, controllers, pretended_nodes
from testbed.control.api import Api
from testbed.control.credentials import Credentials
from testbed.errors import TestbedError
from testbed.machine import leftovers, network, nodes
from testbed.machine.processes import Processes, wait_until
from testbed.settings import Settings

__all__ = ["bring_down", "bring_up", "build", "build_first"]

_NODES_TIMEOUT = 180.0  # seconds, on a busy machine that imports images
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


def build(settings: Settings, progress: Callable[[str], None], *, until: float = math.inf) -> None:
    """Build all programs and images that the cache lacks; check the machine first.

    Raise :class:`testbed.errors.OutOfTimeError` where that lasts beyond ``until``, in seconds of ``time.monotonic()``.
    """
    _build(settings, settings.controllers, progress, until)
    cache = Cache(settings.cache)
    if cache.missing(TOOLS):
        try:
            check_machine(building=True)
            build_all(cache, TOOLS, progress, until=until)
        except TestbedError as error:  # a cluster starts without them
            progress(f"tests with {', '.join(TOOLS)} are skipped, which could not be built: {error}")


def build_first(settings: Settings, progress: Callable[[str], None]) -> tuple[str, ...]:
    """Build what the cluster needs for its start: Kubernetes and its images; check the machine first.

    Returns the ``later`` argument of :func:`bring_up`: the controllers that are not built, those that start after one of them,
    and the tools of tests.
    """
    cache = Cache(settings.cache)
    pretending = ("kwok",) if settings.pretended else ()  # such nodes are part of the start
    _build(settings, pretending, progress)
    later = {name for name in (*settings.controllers, *TOOLS) if cache.missing((name,))}
    later |= {name for name in settings.controllers if later.intersection(controllers.NEEDS.get(name, ()))}
    _build(settings, [name for name in settings.controllers if name not in later], progress)  # images alone
    return tuple(sorted(later))


def _build(settings: Settings, names: Sequence[str], progress: Callable[[str], None], until: float = math.inf) -> None:
    """Build what a cluster with these controllers lacks."""
    cache = Cache(settings.cache)
    missing = cache.missing(names)
    check_machine(building=bool(missing))
    if missing:
        progress(
            f"building {len(missing)} parts into {settings.cache}, once; building everything takes about {FIRST_TIME}"
        )
        build_all(cache, names, progress, until=until)
    if settings.nodes and not all(path.exists() for path in archives(cache, names)):
        make_images(cache, names, progress, until=until)


def bring_up(settings: Settings, progress: Callable[[str], None], later: Sequence[str] = ()) -> None:
    """Start the cluster; one of the same name is taken down first. Returns when nodes and controllers are ready.

    The controllers in ``later`` are built and started beside it, by one of its processes (:mod:`testbed.builder`). After an
    error it stays, with its logs; if interrupted, it is taken down.
    """
    bring_down(settings)
    try:
        _start(settings, progress, later)
    except (KeyboardInterrupt, SystemExit):
        bring_down(settings)
        raise


def _start(settings: Settings, progress: Callable[[str], None], later: Sequence[str]) -> None:
    started = time.monotonic()

    def report(text: str) -> None:
        progress(f"{text} after {time.monotonic() - started:.0f} s")

    _check_port(settings.port)
    settings.folder.mkdir(parents=True, mode=0o700)
    Credentials(settings).create()
    network.create_control_plane(settings)
    control_plane.start(settings)
    report("API server ready")
    for number in settings.numbers:
        nodes.start(settings, number)
    built = [name for name in settings.controllers if name not in later]
    controllers.start(settings, built)
    if built:
        report(f"controllers ready: {', '.join(built)}")
    pretended_nodes.create(settings)
    api, names = Api(settings), {f"n{number}" for number in settings.numbers} | pretended_nodes.names(settings)
    hint = f"all nodes Ready; see {settings.node_folder(1)}/log"
    wait_until(lambda: api.ready_nodes() == names, hint, _NODES_TIMEOUT)
    wait_until(lambda: api.get(_DEFAULT_ACCOUNT) is not None, "the default service account", _NODES_TIMEOUT)
    report(f"{len(names)} nodes Ready")
    if later:
        builder.start(settings, later)
        progress(f"built beside it: {', '.join(builder.coming(settings))}; see {Processes(settings).log(builder.NAME)}")


def bring_down(settings: Settings) -> None:
    """Stop the cluster and remove everything that belongs to it. Does nothing without one. Raises if something stays."""
    processes = Processes(settings)
    processes.end(builder.NAME)  # before what it may be starting
    numbers = [int(name[1:]) for name in processes.names() if name[0] == "n" and name[1:].isdecimal()]
    for number in numbers:
        nodes.cut_power(settings, number)
    last = control_plane.END_ORDER
    for name in sorted(set(processes.names()) - set(last)):
        processes.end(name)
    for name in last:
        processes.end(name)
    leftovers.remove(settings)
    if left := leftovers.find(settings):
        raise TestbedError("left behind:\n  " + "\n  ".join(left))


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise TestbedError(
                f"127.0.0.1:{port} is taken ({error.strerror}); name another with TESTBED_PORT"
            ) from error
