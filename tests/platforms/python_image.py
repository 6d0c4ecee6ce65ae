"""A base image with Python, made of this machine's own interpreter and shell: the Dockerfile is built on it, nothing is pulled.

It stands in for ``python:3.12-slim``: the interpreter with its standard library and pip below /usr/local, a few tools, and the
libraries that all of them are linked with, where the machine has them.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["python_file_system"]

_TOOLS = ("sh", "cat", "echo", "env", "id", "ls", "mkdir", "rm", "sleep", "touch")
_LIBRARY = re.compile(r"(/\S+\.so\S*)")
# PEP 599: what a manylinux wheel may expect of any machine, as far as Python itself needs none of it
_OF_WHEELS = ("libgcc_s", "libstdc++", "libm", "libdl", "librt", "libpthread", "libutil", "libresolv")
_LEFT_OUT = {
    "__pycache__",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "site-packages",
    "lib2to3",
    "ensurepip",
}


def python_file_system() -> bytes:
    """A tar archive of the image's files, for ``podman import``. Skips the test where this machine lacks a part of it."""
    tools = {f"/bin/{tool}": Path(found) for tool in _TOOLS if (found := shutil.which(tool)) is not None}
    if len(tools) < len(_TOOLS) or shutil.which("ldd") is None:
        pytest.skip("this machine lacks a tool of which an image is made")
    files = {**tools, **dict(_interpreter()), **_certificates()}
    linked = [str(path) for path in files.values() if path.suffix == ".so" or path.stat().st_mode & 0o111]
    files |= {_place(library): Path(library) for library in _libraries(linked)}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, path in sorted(files.items()):
            _add(archive, name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o111 else 0o644)
        _add(archive, "/etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        _add(archive, "/etc/group", b"root:x:0:\n")
        entry = tarfile.TarInfo("tmp")
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(entry)
    return packed.getvalue()


def _interpreter() -> Iterator[tuple[str, Path]]:
    """The interpreter, its standard library and pip, by their places in the image."""
    base = Path(sys.base_prefix)
    program = Path(os.path.realpath(sys.executable))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name in ("python", "python3", version):
        yield f"/usr/local/bin/{name}", program
    library, packages = (Path(sysconfig.get_path(name, vars={"base": str(base)})) for name in ("stdlib", "purelib"))
    for path in (*_files(library), *_files(packages / "pip")):
        yield f"/usr/local/lib/{version}/{path.relative_to(library)}", path


def _files(root: Path) -> Iterator[Path]:
    """The modules that Python imports below a folder, without tests, other packages and compiled files."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _LEFT_OUT and not name.startswith("config-")]
        yield from (Path(folder, name) for name in names)


def _certificates() -> dict[str, Path]:
    """pip's trusted certificates on this machine, at the same places."""
    paths = ssl.get_default_verify_paths()
    named = (paths.cafile, os.environ.get("PIP_CERT"))
    return {path: Path(os.path.realpath(path)) for path in named if path and Path(path).is_file()}


def _libraries(programs: list[str]) -> set[str]:
    """The shared libraries of programs and extension modules, with the loader and the ones that wheels expect of any machine."""
    wanted = tuple(f"{name}.so." for name in _OF_WHEELS)
    of_wheels = [line.split()[-1] for line in _output("/sbin/ldconfig", "-p") if line.strip().startswith(wanted)]
    lines = [line for line in _output("ldd", *programs, *of_wheels) if line[:1].isspace()]
    return {*of_wheels, *(name for line in lines for name in _LIBRARY.findall(line))}


def _output(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def _place(library: str) -> str:
    """Where the loader of the image finds a library: its own place, or a folder that is always searched."""
    return library if library.startswith(("/lib", "/usr/lib")) else f"/usr/lib/{Path(library).name}"


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
