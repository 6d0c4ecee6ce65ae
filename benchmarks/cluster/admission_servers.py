"""Compares three HTTPS servers on admission reviews a second, over TLS with connections that stay open.

Needs a Python with ``aiohttp``, ``uvicorn`` and ``starlette``, and the command ``openssl``::

    admission_servers.py [--seconds 5] [--connections 16]

Each server parses a review of a pod and answers with a JSON patch, so the rates contain JSON but none of Spotwright's rules.
Server and load share the machine: the figures compare, they are no limits.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp

REVIEW = json.dumps(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "operation": "CREATE",
            "object": {
                "metadata": {"name": "train", "labels": {f"label-{n}": "x" * 20 for n in range(20)}},
                "spec": {
                    "containers": [
                        {"name": "main", "env": [{"name": f"SETTING_{n}", "value": "v" * 60} for n in range(60)]}
                    ]
                },
            },
        },
    }
).encode()


def answer(body: bytes) -> bytes:
    """Answer a review with one operation."""
    review = json.loads(body)
    patch = [{"op": "add", "path": "/spec/terminationGracePeriodSeconds", "value": 30}]
    response = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch"}
    response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}).encode()


def serve_aiohttp(port: int, certificate: str, key: str) -> None:
    """aiohttp.web."""
    from aiohttp import web

    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=answer(await request.read()), content_type="application/json")

    application = web.Application()
    application.router.add_post("/", handle)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    web.run_app(application, host="127.0.0.1", port=port, ssl_context=tls, access_log=None, print=None)


def serve_uvicorn(port: int, certificate: str, key: str) -> None:
    """Serve with uvicorn and starlette."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def handle(request: Request) -> Response:
        return Response(answer(await request.body()), media_type="application/json")

    application = Starlette(routes=[Route("/", handle, methods=["POST"])])
    uvicorn.run(application, host="127.0.0.1", port=port, ssl_certfile=certificate, ssl_keyfile=key, log_level="error")


def serve_standard(port: int, certificate: str, key: str) -> None:
    """http.server of the standard library, a thread a connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = answer(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing, as the others."""

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


SERVERS = {"aiohttp.web": serve_aiohttp, "uvicorn + starlette": serve_uvicorn, "http.server": serve_standard}


async def load(port: int, tls: ssl.SSLContext, seconds: float, connections: int) -> list[float]:
    """The seconds that each review took."""
    took: list[float] = []
    until = time.monotonic() + seconds
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls, limit=connections)) as session:

        async def ask() -> None:
            while time.monotonic() < until:
                began = time.monotonic()
                async with session.post(f"https://127.0.0.1:{port}/", data=REVIEW) as response:
                    await response.read()
                took.append(time.monotonic() - began)

        await asyncio.gather(*(ask() for _ in range(connections)))
    return took


async def _wait_for(port: int, tls: ssl.SSLContext) -> None:
    for _ in range(200):
        try:
            await load(port, tls, 0.01, 1)
        except aiohttp.ClientConnectionError:
            await asyncio.sleep(0.1)
        else:
            return
    raise SystemExit("the server does not answer")


def main() -> None:
    """Print a row for each server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        name, port, certificate, key = options.serve
        SERVERS[name](int(port), certificate, key)
        return
    print(f"{len(REVIEW)} bytes a review\n\n| server | reviews a second | p50 | p99 |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=l",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-days",
            "1",
        ]
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        tls = ssl.create_default_context(cafile=certificate)
        for number, name in enumerate(SERVERS):
            port = 18743 + number
            with subprocess.Popen([sys.executable, __file__, "--serve", name, str(port), certificate, key]) as server:
                asyncio.run(_wait_for(port, tls))
                took = sorted(asyncio.run(load(port, tls, options.seconds, options.connections)))
                server.kill()  # aiohttp would wait for open connections
            p99 = took[int(len(took) * 0.99)]
            rate = len(took) / options.seconds
            print(
                f"| {name} | {rate:.0f} | {1000 * statistics.median(took):.1f} ms | {1000 * p99:.1f} ms |", flush=True
            )


if __name__ == "__main__":
    main()
