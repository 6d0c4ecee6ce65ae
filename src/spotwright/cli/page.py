"""The ``page`` command: shows runs in a browser, from a server on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import click

from spotwright.cli import STOPPED, SUCCEEDED, say
from spotwright.cli.cluster import Place, place_options
from spotwright.cli.options import Listen
from spotwright.errors import InputError
from spotwright.records.state_folder import StateFolder

if TYPE_CHECKING:
    from spotwright.notices.agent import Address
    from spotwright.page.workers import Workers

__all__ = ["page", "page_beside", "serve"]

_LISTEN = "127.0.0.1:8790"
_EXISTS_EVERY = 0.2  # seconds between checks for a run that is starting
_ENDING = 5.0  # seconds that a page beside a run has to exit before it is killed
_FILES = 8192
_BASE = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)*/?")  # no dot segments: browsers remove them


@click.command()
@click.argument("name", metavar="[RUN]", required=False)
@click.option(
    "--listen",
    type=Listen(),
    default=_LISTEN,
    show_default=True,
    metavar="HOST:PORT",
    help="The address to listen at; port 0 for a free one. Without this option the next free port is taken.",
)
@click.option("--no-browser", is_flag=True, help="Open no browser.")
@click.option("--base-path", default="", metavar="/PATH", help="Serve below this path, for a proxy that passes it on.")
@click.option("--host-name", "host_names", multiple=True, metavar="NAME", help="A name under which a proxy serves it.")
@click.option("--kfp-url", default="", metavar="URL", help="The KFP page, to which runs with an id there get a link.")
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Show beside runs what 'spotwright plan --json' had printed into this file.",
)
@click.option("--workers", type=click.IntRange(1, 16), default=1, show_default=True, help="Processes that read runs.")
@place_options
def page(
    place: Place,
    name: str | None,
    listen: Address,
    no_browser: bool,
    base_path: str,
    host_names: tuple[str, ...],
    kfp_url: str,
    plan_file: Path | None,
    workers: int,
) -> int:
    """Show runs in a browser: what happened, why each attempt ended, its log, and what was spent.

    RUN is the run to open, or 'last'; by default the list of runs. Ctrl-C ends the page.

    The printed address has a token, new at each start. The page is read-only.
    """
    from spotwright.page.security import is_loopback

    if not is_loopback(listen.host):
        raise click.UsageError(
            f"--listen {listen.host}: the page has no login, so it listens on this machine alone: use 127.0.0.1, and for another "
            "machine 'ssh -L'"
        )
    if not _BASE.fullmatch(base_path):
        raise click.UsageError(f"--base-path {base_path!r}: expected a path such as /spotwright")
    if kfp_url and not kfp_url.startswith(("http://", "https://")):
        raise click.UsageError(f"--kfp-url {kfp_url!r}: expected an address that begins with http:// or https://")
    if not place.cluster:
        StateFolder.existing(place.state)  # report its fault at once
    source: dict[str, Any] = {"state": str(place.state)}  # as it was typed, for messages
    if place.cluster:
        from spotwright.cli import cluster_extra

        with cluster_extra("--cluster"):
            import spotwright.cluster.recorded_runs  # noqa: F401
        source = {
            "cluster": True,
            "context": place.context,
            "namespace": place.namespace,
            "kubeconfig": place.kubeconfig,
            "controller": place.controller,
        }
    if plan_file is not None:
        from spotwright.forecast.report import read_forecast

        read_forecast(plan_file)  # report its fault at once
    settings = {
        "source": source,
        "kfp_url": kfp_url,
        "plan": None if plan_file is None else str(plan_file.absolute()),
    }
    is_chosen = click.get_current_context().get_parameter_source("listen") is click.core.ParameterSource.COMMANDLINE
    return serve(
        settings, listen, run=name or "", base=base_path.rstrip("/"), host_names=host_names, workers=workers,
        opens=not no_browser, only_port=is_chosen,
    )  # fmt: skip


def serve(
    settings: dict[str, Any],
    listen: Address,
    *,
    run: str = "",
    base: str = "",
    host_names: tuple[str, ...] = (),
    workers: int = 1,
    opens: bool = True,
    only_port: bool = True,
) -> int:
    """Serve the page until Ctrl-C, SIGTERM, or the end of the terminal.

    ``run``: the run to open; a name, its unique beginning, or ``last``. ``only_port``: fail if the port is in use, rather than
    take the next free one. Raises :class:`InputError` for a run or a source that cannot be found.
    """
    from spotwright.page.vendor import ensure_vendor

    ensure_vendor()
    _allow_connections()
    with closing(_bound(listen, only_port=only_port)) as listening, contextlib.suppress(KeyboardInterrupt):
        made = _Made(settings, listening, _Address.of(listening, base), host_names, workers)
        return asyncio.run(_serve(made, run, opens=opens))
    return STOPPED


@contextmanager
def page_beside(state: Path, run: str, *, as_json: bool) -> Iterator[Callable[[int], int]]:
    """Serve the page in a separate process while a run goes on; its address is printed first.

    Yields a function that returns the run's exit code unchanged. At a terminal it first keeps the page open until Ctrl-C;
    without a terminal, or after Ctrl-C has stopped the run, the page ends at once.
    """
    from spotwright.notices.agent import Address
    from spotwright.page.vendor import ensure_vendor

    ensure_vendor()
    is_terminal = sys.stdout.isatty()
    with closing(_bound(Address.read(_LISTEN), only_port=False)) as listening:
        address = _Address.of(listening, "")
        process = subprocess.Popen(
            [sys.executable, "-m", "spotwright.cli.page"],
            stdin=subprocess.PIPE, stdout=2, pass_fds=[listening.fileno()], start_new_session=True,
        )  # fmt: skip
        told = {"state": str(state.absolute()), "run": run, "socket": listening.fileno(), "token": address.token}
    assert process.stdin is not None  # noqa: S101
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps({**told, "opens": is_terminal}).encode() + b"\n")
        process.stdin.flush()
    say(f"the page is at {address.url(run)}", err=as_json)
    sys.stdout.flush()

    def stay(code: int) -> int:
        if is_terminal and code != STOPPED and process.poll() is None:
            say("the run has ended, and the page stays: Ctrl-C ends it", err=True)
            with contextlib.suppress(KeyboardInterrupt):
                process.wait()
        return code

    try:
        yield stay
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # this ends the page
        try:
            process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _beside() -> None:
    """The process of :func:`page_beside`: serve until standard input ends."""
    _allow_connections()
    told = json.loads(os.fdopen(os.dup(0), "rb", buffering=0).readline())
    listening = socket.socket(fileno=told["socket"])
    made = _Made({"source": {"state": told["state"]}}, listening, _Address.of(listening, "", told["token"]), (), 1)
    asyncio.run(_serve(made, told["run"], opens=told["opens"], is_beside=True))


class _Address(NamedTuple):
    """The address of the page."""

    host: str
    port: int
    base: str
    token: str

    @classmethod
    def of(cls, listening: socket.socket, base: str, token: str = "") -> _Address:
        """The address at a socket, with this token or a new one."""
        from spotwright.page.identity import new_token

        host, port = listening.getsockname()[:2]
        return cls(f"[{host}]" if ":" in host else host, port, base, token or new_token())

    def url(self, run: str) -> str:
        """The URL for a browser."""
        return f"http://{self.host}:{self.port}{self.base}/{f'runs/{quote(run)}' if run else ''}?token={self.token}"


class _Made(NamedTuple):
    """The parts of a page."""

    settings: dict[str, Any]
    listening: socket.socket
    address: _Address
    host_names: tuple[str, ...]
    workers: int


async def _serve(made: _Made, run: str = "", *, opens: bool, is_beside: bool = False) -> int:
    from spotwright.page.identity import LocalToken
    from spotwright.page.page_files import PageFiles
    from spotwright.page.page_server import PageServer
    from spotwright.page.workers import Workers

    ends = _end(with_input=is_beside)
    source, address = made.settings["source"], made.address
    workers = Workers(made.settings, made.workers)
    try:
        if not is_beside and (run or source.get("cluster")):
            found = await _unless(ends, _found(workers, run))
            if found is None:
                return SUCCEEDED
            run = found
        identity = LocalToken(address.port, address.token)
        server = PageServer(
            workers, identity, PageFiles(), about=_about(source), base=address.base, host_names=made.host_names
        )
        async with server.serving(made.listening):
            if not is_beside:
                say(f"the page is at {address.url(run)}")
                say("Ctrl-C ends it", err=True)
                sys.stdout.flush()
            if is_beside and opens and run:
                await _begun(workers, run, ends)
            # While the browser opens, a worker process starts and reads the requested run.
            ahead = asyncio.create_task(workers.ask("head", run) if run else workers.ask("find"))
            if opens and not ends.is_set():
                _open_browser(address._replace(token=identity.once()).url(run))  # other users can read command lines
            await ends.wait()
            ahead.cancel()
    finally:
        await workers.close()
    return SUCCEEDED


def _about(source: Mapping[str, Any]) -> dict[str, Any]:
    """The page's description of itself: its version and source."""
    from spotwright.version import __version__

    if source.get("cluster"):
        return {"version": __version__, "source": "cluster", "place": source.get("context") or ""}
    return {"version": __version__, "source": "state", "place": str(Path(source["state"]).absolute())}


async def _unless(ends: asyncio.Event, asked: Coroutine[Any, Any, str]) -> str | None:
    """The answer; ``None`` if the page ends first."""
    asking, ending = asyncio.create_task(asked), asyncio.create_task(ends.wait())
    await asyncio.wait([asking, ending], return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if not asking.done():
        asking.cancel()
        return None
    return asking.result()


async def _begun(workers: Workers, run: str, ends: asyncio.Event) -> None:
    """Wait until a starting run exists."""
    while not ends.is_set() and (await workers.ask("find", name=run)).status != 200:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ends.wait(), _EXISTS_EVERY)


async def _found(workers: Workers, run: str) -> str:
    """The full name of a run, or empty for none. Raises :class:`InputError` if it or the cluster is not found."""
    answer = json.loads((await workers.ask("find", name=run)).body)
    if "error" in answer:
        raise InputError(answer["message"])
    return str(answer["run"])


def _bound(listen: Address, *, only_port: bool) -> socket.socket:
    """A socket that listens on the address, or on the next free port if the port is in use and was not required."""
    refused: OSError | None = None
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    for port in [listen.port] if only_port or not listen.port else [*range(listen.port, listen.port + 20), 0]:
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((listen.host, port))
            found.listen(128)
        except OSError as error:
            found.close()
            refused = error
            continue
        return found
    raise InputError(
        f"--listen {listen.host}:{listen.port}: cannot be listened at ({refused.strerror if refused else ''})"
    )


def _allow_connections() -> None:
    """Raise the soft limit of open files to the hard one: some systems start with 256, and each connection is one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _open_browser(url: str) -> None:
    """Open the browser of the desktop, if there is one; the address is printed anyway."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _end(*, with_input: bool) -> asyncio.Event:
    """An event that is set at SIGINT, SIGTERM or SIGHUP, and ``with_input`` at the end of standard input."""
    ends = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ends.set)
    if with_input:
        loop.add_reader(sys.stdin.fileno(), ends.set)
    return ends


if __name__ == "__main__":
    _beside()
