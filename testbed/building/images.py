"""The images of the test bed: made from programs of this machine, kept in the cache, imported on every node.

| image | what it holds |
|---|---|
| localhost/pause:1 | the process of a pod's sandbox |
| localhost/busybox:1 | the static busybox of this machine, as /bin/sh and all its commands |
| localhost/python:1 | busybox, and the Python that runs the test bed with the libraries it needs |
| localhost/argoexec:1 | Argo's executor |
| localhost/katib-goptuna:1 | Katib's suggestion service, for `katib` |
| localhost/katib-collector:1 | Katib's collector of metrics, for `katib` |
| localhost/katib-python:1 | Katib's medianstop, and what a trial needs that pushes its metrics, for `katib` |

Pods need `imagePullPolicy: Never` or `IfNotPresent`, because no registry is asked.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.building.archives import Image, write_archive
from testbed.building.builds import Cache
from testbed.errors import TestbedError

__all__ = ["ARGOEXEC", "BUSYBOX", "KATIB_PYTHON", "PAUSE", "PYTHON", "archives", "make_images"]

PAUSE, BUSYBOX, PYTHON, ARGOEXEC, KATIB_PYTHON = (
    f"localhost/{name}:1" for name in ("pause", "busybox", "python", "argoexec", "katib-python")
)

_BUSYBOX = Path("/bin/busybox")
_FOLDERS = ("bin", "dev", "etc/ssl/certs", "lib64", "opt", "proc", "root", "run", "sys", "tmp", "usr/bin", "var/tmp")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
_UNUSED = (
    "test",
    "idlelib",
    "turtledemo",
    "tkinter",
    "ensurepip",
    "site-packages",
    "dist-packages",
    "__pycache__",
    "config-*",
)
_UNLINKED = "libgcc_s.so.1"
"""glibc loads it by this name when a thread ends by `pthread_exit`, and aborts the process without it; `ldd` does not list it."""

_SELF_TEST = f"import ctypes, hashlib, json, sqlite3, ssl, zlib; ctypes.CDLL({_UNLINKED!r})"


def archives(cache: Cache, controllers: Collection[str]) -> list[Path]:
    """The archives of the images for a cluster with these controllers, some of which may still be missing."""
    return [path for path, _ in _recipes(cache, controllers)]


def make_images(
    cache: Cache, controllers: Collection[str], progress: Callable[[str], None], *, until: float = math.inf
) -> list[Path]:
    """Create the archives that the cache lacks; ``progress`` gets one line for each. Returns those of these controllers.

    Raises :class:`testbed.errors.OutOfTimeError` if another command holds the cache until then, in seconds of
    ``time.monotonic()``.
    """
    with cache.locked(until):
        for path, make in _recipes(cache, controllers):
            if not path.exists():
                started = time.monotonic()
                path.parent.mkdir(parents=True, exist_ok=True)
                make(path)
                progress(f"made image {path.name} in {time.monotonic() - started:.0f} s")
    return archives(cache, controllers)


def _recipes(cache: Cache, controllers: Collection[str]) -> list[tuple[Path, Callable[[Path], None]]]:
    """Each archive with the function that creates it. Its name changes with its content."""
    folder = cache.root / "images"
    pause, argoexec = cache.program("pause"), cache.program("argoexec")
    of_argo: list[tuple[Path, Callable[[Path], None]]] = [
        (
            folder / f"{argoexec.parent.name}.tar",
            lambda path: write_archive(
                Image(ARGOEXEC, files={"/bin/argoexec": argoexec}, entrypoint=["argoexec"]), path
            ),
        )
    ]
    of_katib = [_of_program(cache, "katib-goptuna"), _of_program(cache, "katib-collector", has_shell=True)]
    katib, packages = cache.manifests("katib"), _REQUIREMENTS / "katib.txt"
    of_katib.append(
        (
            folder / f"katib-python-{katib.name}-{_digest(packages, _python())}.tar",
            lambda path: _make_katib_python(path, katib, packages),
        )
    )
    return [
        (
            folder / f"{pause.parent.name}.tar",
            lambda path: write_archive(Image(PAUSE, files={"/pause": pause}, entrypoint=["/pause"]), path),
        ),
        (folder / f"busybox-{_digest(_BUSYBOX)}.tar", _make_busybox),
        (folder / f"python-{sysconfig.get_python_version()}-{_digest(_python(), _unlinked())}.tar", _make_python),
        *(of_argo if "argo" in controllers else ()),
        *(of_katib if "katib" in controllers else ()),
    ]


_PGREP = """\
#!/bin/sh
# pgrep -P PARENT, which Debian's busybox lacks: Katib's collector ends a trial that is stopped early with its children.
found=1
for status in /proc/[0-9]*/status; do
    grep -q "^PPid:[[:space:]]*$2"'$' "$status" 2> /dev/null || continue
    status=${status#/proc/}
    echo "${status%/status}"
    found=0
done
exit $found
"""


def _of_program(cache: Cache, name: str, *, has_shell: bool = False) -> tuple[Path, Callable[[Path], None]]:
    """The recipe of an image with one program of its name; with ``has_shell`` also busybox, and pgrep."""
    program = cache.program(name)

    named, entrypoint = f"localhost/{name}:1", [f"/{name}"]

    def make(path: Path) -> None:
        if not has_shell:
            write_archive(Image(named, files={f"/{name}": program}, entrypoint=entrypoint), path)
            return
        with _root() as root:
            shutil.copy(program, root)
            (root / "bin/pgrep").write_text(_PGREP, encoding="utf-8")
            (root / "bin/pgrep").chmod(0o755)
            write_archive(Image(named, root=root, entrypoint=entrypoint), path)

    beside = f"-{_digest(_BUSYBOX)}-{hashlib.sha256(_PGREP.encode()).hexdigest()[:8]}" if has_shell else ""
    return cache.root / "images" / f"{program.parent.name}{beside}.tar", make


def _digest(*paths: Path) -> str:
    """Eight letters that change with one of these files."""
    described = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(described).encode()).hexdigest()[:8]


def _python() -> Path:
    return Path(sys.base_prefix) / "bin" / f"python{sysconfig.get_python_version()}"


def _make_busybox(target: Path) -> None:
    with _root() as root:
        write_archive(Image(BUSYBOX, root=root, command=["/bin/sh"]), target)


def _make_python(target: Path) -> None:
    with _python_root() as root:
        write_archive(Image(PYTHON, root=root, command=["/bin/sh"], workdir="/root", environment=_ENVIRONMENT), target)


def _make_katib_python(target: Path, katib: Path, requirements: Path) -> None:
    """Katib's Python, with its imports, below /opt/katib; its entrypoint is medianstop."""

    def add(root: Path) -> None:
        shutil.copytree(katib, root / "opt/katib", ignore=shutil.ignore_patterns("*.yaml"))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:"]
        command = [*pip, "--target", str(root / "opt/katib/packages"), "--requirement", str(requirements)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise TestbedError(f"the packages of {requirements.name} cannot be installed: {done.stderr.strip()}")

    with _python_root(add) as root:
        folders = ("", "/pkg/apis/manager/v1beta1/python", "/packages")
        environment = {**_ENVIRONMENT, "PYTHONPATH": ":".join(f"/opt/katib{folder}" for folder in folders)}
        entrypoint = ["python3", "/opt/katib/cmd/earlystopping/medianstop/v1beta1/main.py"]
        write_archive(Image(KATIB_PYTHON, root=root, entrypoint=entrypoint, environment=environment), target)


_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def _python_root(add: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """A root with the Python of this process, which has been tried; ``add`` puts more into it before."""
    with _root() as root:
        _add_python(root)
        if add is not None:
            add(root)
        _add_libraries(root)
        if _CERTIFICATES.exists():
            shutil.copy(_CERTIFICATES, root / "etc/ssl/certs")
        tried = subprocess.run(
            ["chroot", str(root), f"{_prefix()}/bin/python3", "-c", _SELF_TEST],
            capture_output=True,
            text=True,
            check=False,
        )
        if tried.returncode != 0:
            raise TestbedError(f"{_python()} does not run in an image of its own:\n{tried.stderr.strip()}")
        yield root


@contextmanager
def _root() -> Iterator[Path]:
    """A root with busybox and what programs expect of a small system."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        for folder in _FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        for folder in ("tmp", "var/tmp"):
            (root / folder).chmod(0o1777)
        shutil.copy(_BUSYBOX, root / "bin/busybox")
        listed = subprocess.run([str(_BUSYBOX), "--list"], capture_output=True, text=True, check=True).stdout.split()
        for command in set(listed) - {"busybox"}:
            (root / "bin" / command).symlink_to("busybox")
        (root / "usr/bin/env").symlink_to("../../bin/env")
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
        (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
        (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
        yield root


def _prefix() -> str:
    """The place of Python in the image: a Python installed elsewhere, for example by pyenv, moves to /usr/local."""
    return "/usr" if sys.base_prefix == "/usr" else "/usr/local"


def _add_python(root: Path) -> None:
    """Copy the Python of this process without its packages; it finds its library beside itself."""
    name = _python().name
    prefix = root / _prefix().lstrip("/")
    library = prefix / "lib" / name
    shutil.copytree(
        Path(sys.base_prefix) / "lib" / name, library, symlinks=True, ignore=shutil.ignore_patterns(*_UNUSED)
    )
    (library / "site-packages").mkdir()
    (prefix / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(_python(), prefix / "bin")
    for link in ("python3", "python"):
        (prefix / "bin" / link).symlink_to(name)


def _unlinked() -> Path:
    """The place on this machine of a library that programs load without being linked with it."""
    try:
        ctypes.CDLL(_UNLINKED)
    except OSError as error:
        raise TestbedError(f"{error}; on Debian: apt-get install libgcc-s1") from error
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return next(Path(line.split(maxsplit=5)[5]) for line in mapped if line.endswith(f"/{_UNLINKED}"))


def _add_libraries(root: Path) -> None:
    """Copy the shared libraries that Python and its modules are linked with, and the one that its threads need."""
    modules = [str(path) for path in root.rglob("*.so*") if path.is_file()]
    linked = subprocess.run(["ldd", str(_python()), *modules], capture_output=True, text=True, check=False).stdout
    named = set(re.findall(r"(?:=> )?(/\S+\.so\S*) \(0x", linked))
    for library in sorted(named | {str(_unlinked())}):
        place = root / Path(library).relative_to("/")
        if not library.startswith(str(root)) and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)  # follows links: loaders look for the name, not for the version behind it
