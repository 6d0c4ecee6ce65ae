"""Images made of this machine's own shell and tools, for the engines that really run containers here; nothing is pulled.

An engine counts only after it has run such an image: one that is installed and cannot start a container is skipped with what
its client libraries last.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.e2e.containers.podman_settings import environment_to_start

__all__ = ["REAL", "Images", "real_engine"]

REAL = ("podman", "docker")
_TOOLS = ("sh", "cat", "id", "mkdir", "sleep", "env", "touch")
_LIBRARY = re.compile(r"(/\S+\.so\S*)")


class Images:
    """Images of one engine, by the names of their users; removed together."""

    def __init__(self, kind: str) -> None:
        self.kind, self._made = kind, set[str]()
        self.env: Mapping[str, str] = {}  # beside the client's usual environment

    def made(self, *changes: str) -> str:
        """An image with these changes (``USER 1000``), as ``import`` takes them."""
        name = f"localhost/spotwright-test-{os.getpid()}-{abs(hash(changes)) % 10**8}:1"
        if name not in self._made:
            options = [part for change in changes for part in ("--change", change)]
            self.ask("import", *options, "-", name, stdin=_root_file_system())
            self._made.add(name)
        return name

    def ask(self, *command: str, stdin: bytes = b"") -> str:
        """The client's answer; a test that cannot have this is skipped."""
        done = self._call(self.env, *command, stdin=stdin)
        if done.returncode != 0:
            pytest.skip(f"{self.kind} {command[0]}: {(done.stderr.decode().strip().splitlines() or ['fails'])[-1]}")
        return done.stdout.decode()

    def description(self, container: str) -> str:
        """The client's description of a container; empty if it is gone, as a container of another test may be by now."""
        return self._call(self.env, "inspect", container).stdout.decode()

    def starts(self, env: Mapping[str, str]) -> bool:
        """Whether a container starts with these variables."""
        command = ("run", "--rm", "--network", "host", self.made(), "cat", "/etc/passwd")
        return self._call(env, *command).returncode == 0

    def _call(self, env: Mapping[str, str], *command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self.kind, *command], env={**os.environ, **env}, input=stdin, capture_output=True, check=False, timeout=60
        )

    def remove(self) -> None:
        """Remove them all."""
        if self._made:
            self._call(self.env, "rmi", "--force", *self._made)


@contextlib.contextmanager
def real_engine(kind: str, folder: Path) -> Iterator[Images]:
    """The images of an engine that runs containers here. Skips the test without one. ``folder`` is for settings."""
    if shutil.which(kind) is None:
        pytest.skip(f"{kind} is not installed")
    images = Images(kind)
    try:
        images.made()
        if kind == "podman":
            images.env = environment_to_start(folder, images.starts)
        images.ask("run", "--rm", "--network", "host", images.made(), "cat", "/etc/passwd")
        yield images
    finally:
        images.remove()


@functools.cache
def _root_file_system() -> bytes:
    """A tar archive with a few programs of this machine and the libraries that they are linked with."""
    programs = {tool: path for tool in _TOOLS if (path := shutil.which(tool)) is not None}
    if len(programs) < len(_TOOLS) or shutil.which("ldd") is None:
        pytest.skip("this machine lacks a tool of which an image is made")
    libraries = subprocess.run(["ldd", *programs.values()], capture_output=True, text=True, check=False).stdout
    files = {path: Path(path).read_bytes() for path in set(_LIBRARY.findall(libraries))}
    files |= {f"/bin/{tool}": Path(path).read_bytes() for tool, path in programs.items()}
    files["/etc/passwd"] = b"root:x:0:0:root:/root:/bin/sh\njovyan:x:1000:100:j:/home/jovyan:/bin/sh\n"
    files["/etc/group"] = b"root:x:0:\nusers:x:100:\n"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
        for folder in ("tmp", "srv"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            archive.addfile(entry)
    return packed.getvalue()
