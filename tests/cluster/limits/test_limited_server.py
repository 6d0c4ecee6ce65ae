"""The controller's ports while clients hold all that they can, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector, web
from tests.cluster.webhook_servers import a_certificate

from spotwright.cluster.limited_server import Limits, read_body, serve

QUICK = Limits(connections=20, arrival=1.0, idle=2.0, memory=1_000_000, body=400_000)
EVERYONE = "127.0.0.2"  # where a hostile pod comes from; the API server comes from 127.0.0.1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_certificate(tmp_path_factory.mktemp("tls"))


async def echo(request: web.Request) -> web.Response:
    body = await read_body(request)
    await asyncio.sleep(float(request.query.get("for", 0)))
    return web.Response(text=str(len(body)).ljust(int(request.query.get("size", 0))))


@asynccontextmanager
async def serving(limits: Limits = QUICK, certificate: Path | None = None) -> AsyncIterator[int]:
    app = web.Application()
    app.add_routes([web.post("/", echo), web.get("/", echo)])
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
    runner = await serve(app, host="127.0.0.1", port=0, context=context, limits=limits)
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextmanager
def sockets(port: int, count: int, data: bytes = b"", host: str = EVERYONE) -> Iterator[list[socket.socket]]:
    """Connections of one address that have sent some bytes and then say nothing."""
    opened = []
    for _ in range(count):
        one = socket.socket()
        one.bind((host, 0))
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.connect(("127.0.0.1", port))
        opened.append(one)
    try:
        yield opened
    finally:
        for one in opened:
            one.close()


async def send(opened: list[socket.socket], data: bytes) -> None:
    for one in opened:
        await asyncio.sleep(0)
        try:
            one.send(data)
        except OSError:  # its place was given to another
            continue


async def ended(opened: list[socket.socket], at_least: int, within: float = 15.0) -> None:
    """Wait until so many of these connections are ended by the server."""
    until = time.monotonic() + within
    gone: set[int] = set()
    while len(gone) < at_least:
        assert time.monotonic() < until, f"{len(gone)} of {at_least}"
        for index, one in enumerate(opened):
            try:
                if one.recv(65536) == b"":
                    gone.add(index)
            except BlockingIOError:
                continue
            except OSError:
                gone.add(index)
        await asyncio.sleep(0.05)


async def ask(port: int, certificate: Path | None = None, body: bytes = b"x", query: str = "") -> str:
    context: ssl.SSLContext | bool = False
    if certificate is not None:
        context = ssl.create_default_context(cafile=str(certificate / "tls.crt"))
    connector = TCPConnector(ssl=context, local_addr=("127.0.0.1", 0))
    scheme = "http" if certificate is None else "https"
    async with (
        ClientSession(connector=connector) as session,
        session.post(f"{scheme}://127.0.0.1:{port}/{query}", data=body) as response,
    ):
        return await response.text()


def test_who_sends_whole_requests_gets_through_while_another_holds_all_places() -> None:
    async def scenario() -> None:
        async with serving() as port:
            with sockets(port, 300) as idle:
                await asyncio.sleep(0.5)
                for _ in range(20):
                    assert await asyncio.wait_for(ask(port), 5.0) == "1"
                await ended(idle, 280)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"P",
        b"POST / HTTP/1.1\r\nHost: a\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + b"x" * 999,
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nxxxxx\r\n",
    ],
)
def test_a_request_that_does_not_come_to_its_end_is_ended(begin: bytes) -> None:
    async def scenario() -> None:
        async with serving() as port:
            with sockets(port, 10) as slow:
                await asyncio.sleep(0.1)
                await send(slow, begin)
                began = time.monotonic()
                while time.monotonic() - began < 1.5:  # a byte now and then helps nobody
                    await send(slow, b"x" if begin[-1:] == b"\n" and b"chunked" not in begin else b"")
                    await asyncio.sleep(0.1)
                await ended(slow, 10)
            assert await asyncio.wait_for(ask(port), 5.0) == "1"

    asyncio.run(scenario())


def test_connections_without_tls_take_no_place_from_the_api_server(certificate: Path) -> None:
    async def scenario() -> None:
        async with serving(certificate=certificate) as port:
            with sockets(port, 100) as idle:
                await asyncio.sleep(0.5)
                for _ in range(5):
                    assert await asyncio.wait_for(ask(port, certificate), 5.0) == "1"
                await ended(idle, 80)
            with sockets(port, 15) as strangers:
                await asyncio.sleep(0.1)
                await send(strangers, b"GET / HTTP/1.1\r\n\r\n")
                await ended(strangers, 15)

    asyncio.run(scenario())


def test_unfinished_bodies_together_have_one_limit_of_memory() -> None:
    """Forty bodies of 300 kB that never end are 12 MB; one megabyte is held."""

    async def scenario() -> None:
        limits = QUICK._replace(connections=100, arrival=20.0)
        async with serving(limits) as port:
            head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 399999\r\n\r\n"
            with sockets(port, 40) as hostile:
                await asyncio.sleep(0.2)
                await send(hostile, head)
                for _ in range(12):
                    await send(hostile, b"x" * 25_000)
                    await asyncio.sleep(0.05)
                await ended(hostile, 30)
                assert await asyncio.wait_for(ask(port, body=b"x" * 390_000), 10.0) == "390000"

    asyncio.run(scenario())


def test_a_body_that_is_too_large_is_not_received() -> None:
    async def scenario() -> None:
        async with serving() as port:
            assert "400000" in await ask(port, body=b"x" * 400_001)
            with sockets(port, 1) as endless:
                await asyncio.sleep(0.1)
                await send(endless, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
                for _ in range(60):
                    await send(endless, b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
                    await asyncio.sleep(0.01)
                await ended(endless, 1)

    asyncio.run(scenario())


def test_a_compressed_body_stays_as_it_came() -> None:
    """A few bytes would become megabytes."""
    import gzip

    bomb = gzip.compress(b"x" * 30_000_000)

    async def scenario() -> None:
        async with serving() as port, ClientSession() as session:
            headers = {"Content-Encoding": "gzip"}
            async with session.post(f"http://127.0.0.1:{port}/", data=bomb, headers=headers) as response:
                assert await response.text() == str(len(bomb))

    asyncio.run(scenario())


def test_headers_without_an_end_are_ended() -> None:
    async def scenario() -> None:
        async with serving(QUICK._replace(arrival=30.0)) as port:
            with sockets(port, 5) as endless:
                await asyncio.sleep(0.1)
                await send(endless, b"GET / HTTP/1.1\r\nHost: a\r\n")
                for number in range(400):
                    await send(endless, b"X-%d: " % number + b"y" * 4_000 + b"\r\n")
                    if number % 20 == 0:
                        await asyncio.sleep(0.01)
                await ended(endless, 5)

    asyncio.run(scenario())


def test_a_request_that_is_being_answered_keeps_its_place() -> None:
    async def scenario() -> None:
        async with serving() as port:
            slow = asyncio.create_task(ask(port, query="?for=2.5"))
            await asyncio.sleep(0.3)
            with sockets(port, 200):
                assert await asyncio.wait_for(slow, 10.0) == "1"

    asyncio.run(scenario())


def test_a_connection_may_be_used_again_until_it_was_idle_for_long() -> None:
    async def scenario() -> None:
        async with serving() as port, ClientSession() as session:
            for pause in (0.0, 1.4, 0.2):  # longer than a request may take to arrive
                await asyncio.sleep(pause)
                async with session.post(f"http://127.0.0.1:{port}/", data=b"xyz") as response:
                    assert await response.text() == "3"

    asyncio.run(scenario())


def test_a_connection_may_be_used_again_after_large_bodies(certificate: Path) -> None:
    """An API server sends the reviews of all namespaces on the same connections."""
    context = ssl.create_default_context(cafile=str(certificate / "tls.crt"))

    async def scenario() -> None:
        async with (
            serving(certificate=certificate) as port,
            ClientSession(connector=TCPConnector(ssl=context)) as session,
        ):
            for size in (300_000, 3, 300_000, 390_000, 3):
                async with session.post(f"https://127.0.0.1:{port}/", data=b"x" * size) as response:
                    assert await response.text() == str(size)

    asyncio.run(scenario())


def test_hundreds_of_connections_take_little_memory(certificate: Path) -> None:
    async def scenario() -> None:
        async with serving(Limits(arrival=60.0), certificate) as port:
            assert await ask(port, certificate) == "1"
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            with sockets(port, 300):
                await asyncio.sleep(2.0)
                assert await asyncio.wait_for(ask(port, certificate), 10.0) == "1"
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # kB; it was 110 MB

    asyncio.run(scenario())


def test_bodies_that_are_being_answered_keep_no_other_address_out() -> None:
    """A pod that sends whole large bodies has them answered for seconds; the API server needs room in that time."""

    async def scenario() -> None:
        head = b"POST /?for=20 HTTP/1.1\r\nHost: a\r\nContent-Length: 330000\r\n\r\n"
        async with serving() as port:
            with sockets(port, 3) as hostile:
                await send(hostile, head + b"x" * 330_000)
                await asyncio.sleep(0.5)
                for _ in range(3):
                    assert await ask(port, body=b"x" * 100_000) == "100000"

    asyncio.run(scenario())


def test_an_address_that_is_busy_at_all_its_places_keeps_no_other_out() -> None:
    """It sends whole requests without a pause on more connections than there are places, so none of them only waits."""

    async def scenario() -> None:
        async def flood(port: int) -> None:
            while True:
                try:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(EVERYONE, 0))
                except OSError:
                    await asyncio.sleep(0.01)
                    continue
                with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    while True:
                        writer.write(b"GET /?for=0.2 HTTP/1.1\r\nHost: a\r\n\r\n")
                        await reader.readuntil(b"\r\n\r\n0")

        async with serving() as port:
            busy = [asyncio.create_task(flood(port)) for _ in range(40)]
            await asyncio.sleep(1.0)
            for _ in range(5):
                assert await asyncio.wait_for(ask(port, query="?for=0.5"), 5.0) == "1"
            for each in busy:
                each.cancel()
            await asyncio.gather(*busy, return_exceptions=True)
            await asyncio.sleep(0.1)  # their connections end

    asyncio.run(scenario())


def test_whoever_finds_no_place_waits_for_one_of_its_own_address() -> None:
    """All of one API server's reviews come from one address, and more of them than there are places are answered too."""

    async def scenario() -> None:
        async with serving() as port:
            answers = [asyncio.create_task(ask(port, query="?for=0.2")) for _ in range(60)]
            assert await asyncio.wait_for(asyncio.gather(*answers), 20.0) == ["1"] * 60

    asyncio.run(scenario())


def test_answers_that_nobody_takes_count_as_memory() -> None:
    async def scenario() -> None:
        limits = QUICK._replace(connections=100, memory=50_000_000, idle=60.0, arrival=60.0)
        async with serving(limits) as port:
            with sockets(port, 12) as deaf:
                await asyncio.sleep(0.1)
                await send(deaf, b"GET /?size=12000000 HTTP/1.1\r\nHost: a\r\n\r\n")
                await asyncio.sleep(2.0)
                assert await asyncio.wait_for(ask(port), 5.0) == "1"
                taken = [await asyncio.wait_for(received(one), 10.0) for one in deaf]
                assert len([size for size in taken if size > 12_000_000]) <= 2

    asyncio.run(scenario())


async def received(one: socket.socket) -> int:
    """The bytes that come on a connection until it ends, or until nothing more has come for a while."""
    loop, size = asyncio.get_running_loop(), 0
    with contextlib.suppress(OSError, TimeoutError):
        while data := await asyncio.wait_for(loop.sock_recv(one, 1 << 20), 1.0):
            size += len(data)
    return size


def test_a_connection_is_used_no_more_after_a_large_answer(certificate: Path) -> None:
    """The buffers of its TLS have grown with it: five hundred of them took 1.5 GB."""

    async def scenario() -> None:
        context = ssl.create_default_context(cafile=str(certificate / "tls.crt"))
        async with (
            serving(Limits(), certificate) as port,
            ClientSession(connector=TCPConnector(ssl=context)) as session,
        ):
            for size, connection in ((100, None), (1_000_000, "close")):
                async with session.get(f"https://127.0.0.1:{port}/?size={size}") as response:
                    assert len(await response.text()) == size
                    assert response.headers.get("Connection") == connection

    asyncio.run(scenario())
