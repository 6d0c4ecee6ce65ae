"""A server of a few files with the page's policy, to try Chromium, the modules from npm and the fixtures without the page."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from spotwright.page.vendor import TABLE, VENDOR

__all__ = ["served", "with_modules"]

_TYPES = {"js": "text/javascript", "css": "text/css"}
_POLICY = (
    "default-src 'none'; script-src 'self' {import_map}; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types spotwright-worker"
)


def with_modules(script: str) -> dict[str, str]:
    """A document whose module ``script`` imports the modules from npm by their names, and these modules."""
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    names = {name: f"/vendor/{entry['file']}" for name, entry in table.items()}
    head = f'<script type="importmap">{json.dumps({"imports": names})}</script>'
    modules = {f"/vendor/{path.name}": path.read_text(encoding="utf-8") for path in VENDOR.glob("*.js")}
    return document("<div id=root></div>", head) | {"/script.js": script} | modules


def document(body: str, head: str = "") -> dict[str, str]:
    """A document with a title, a language, a style sheet and a module."""
    head += '<link rel="icon" href="data:,"><link rel="stylesheet" href="/page.css">'
    head += '<script type="module" src="/script.js"></script>'
    start = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title>{head}</head>'
    return {"/": f"{start}<body><main><h1>A page</h1>{body}</main></body></html>", "/page.css": "p { margin: 0 }"}


@contextmanager
def served(files: Mapping[str, str]) -> Iterator[str]:
    """The address of a server on the loopback that has these files."""
    _, _, rest = files["/"].partition('<script type="importmap">')
    digest = base64.b64encode(hashlib.sha256(rest.partition("</script>")[0].encode()).digest()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Type", _TYPES.get(self.path.rpartition(".")[2], "text/html"))
            self.send_header("Content-Security-Policy", _POLICY.format(import_map=f"'sha256-{digest}'"))
            self.end_headers()
            self.wfile.write((content or "").encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
