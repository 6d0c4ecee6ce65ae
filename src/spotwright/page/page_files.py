"""The files of the page: a document, style sheets, modules; each with a digest in its address, for unlimited caching.

Third-party modules (Preact, htm, signals, dagre) come from npm and are in ``assets/vendor``; ``assets/vendor.json`` lists them.
Addresses are relative to the document, so the page works below any path. The server knows the modules' imports and names all
modules in the document, so that they load in one round.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

from spotwright.page.vendor import TABLE, vendor_modules

__all__ = ["ASSETS", "Document", "PageFile", "PageFiles"]

ASSETS = Path(__file__).parent / "assets"

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_IMPORT = re.compile(r"""(?:^|;)\s*(?:import|export)\b[^"';]{0,400}["']([^"']{1,100})["']""", re.MULTILINE)


class PageFile(NamedTuple):
    """One file: its media type, its bytes, and the compressed bytes."""

    content_type: str
    content: bytes
    compressed: bytes


@dataclass(frozen=True)
class Document:
    """The document of one depth of addresses, and the digest of its import map for the policy."""

    html: bytes
    compressed: bytes
    import_map: str


class PageFiles:
    """All files of the page, read once; third-party files exist after :func:`~spotwright.page.vendor.ensure_vendor`."""

    def __init__(self, folder: Path = ASSETS) -> None:
        self._folder = folder
        paths = sorted(path for path in folder.rglob("*") if path.suffix in _TYPES)
        self._files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        self._vendor = vendor_modules(folder / TABLE.name)
        digest = hashlib.sha256()
        for name, content in self._files.items():
            digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
        self.digest = digest.hexdigest()[:16]

    def file(self, name: str) -> PageFile | None:
        """A file by its name below the folder, or ``None``."""
        return self._read(name) if name in self._files else None

    @cache  # noqa: B019  # one object for one process
    def _read(self, name: str) -> PageFile:
        content = self._files[name]
        return PageFile(_TYPES[Path(name).suffix], content, gzip.compress(content, 9, mtime=0))

    @cache  # noqa: B019
    def document(self, depth: int) -> Document:
        """The document for addresses with ``depth`` slashes below the root of the page."""
        root = "../" * depth or "./"
        here = f"{root}assets/{self.digest}"
        imports = {name: f"{here}/vendor/{file}" for name, file in self._vendor.items()}
        import_map = json.dumps({"imports": imports}, separators=(",", ":"))
        preloads = "".join(f'<link rel="modulepreload" href="{escape(f"{here}/{name}")}">' for name in self._modules())
        template = (self._folder / "index.html").read_text(encoding="utf-8")
        html = (
            template.replace("{root}", root)
            .replace("{assets}", here)
            .replace("{import_map}", import_map)
            .replace("{preloads}", preloads)
            .encode()
        )
        found = base64.b64encode(hashlib.sha256(import_map.encode()).digest()).decode()
        return Document(html, gzip.compress(html, 9, mtime=0), f"sha256-{found}")

    def _modules(self) -> list[str]:
        """The modules of the first view, each once, in the order of discovery."""
        found: dict[str, None] = {}
        todo = ["app.js"]
        while todo:
            name = todo.pop()
            if name in found or name not in self._files:
                continue
            found[name] = None
            todo += [self._resolved(name, target) for target in _IMPORT.findall(self._files[name].decode())]
        return list(found)

    def _resolved(self, importer: str, target: str) -> str:
        if not target.startswith("."):
            return f"vendor/{self._vendor.get(target, '')}"
        parts = importer.split("/")[:-1]
        for part in target.split("/"):
            if part == "..":
                parts = parts[:-1]
            elif part != ".":
                parts.append(part)
        return "/".join(parts)
