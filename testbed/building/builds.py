"""Builds the programs of the test bed into a cache, each on its own, and never twice.

An entry of the cache is a folder `<name>-<version>-<digest of its sources>`. It appears by a rename once it is complete, so
an interrupted build leaves only a folder `.partial-*`, which the next build of that entry replaces, and the entries before
it stay. Go keeps compiled packages in its own cache, which makes the second attempt shorter too. The lock of the cache
lets two commands at once build everything once.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.building.programs import GO, MANIFESTS, PROGRAMS, Manifests, Program, digest_of, version_of
from testbed.errors import TestbedError

__all__ = ["Cache", "build_all"]

_ALWAYS = ("kubernetes", "pause")
"""The folders whose programs every cluster needs; all others are named after the controller that they are for."""

_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}


class Cache:
    """The folder with everything that has been built."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def entry(self, item: Program | Manifests) -> Path:
        """The folder of a program or of manifests, which need not exist."""
        return self.root / f"{item.name}-{version_of(item.folder, item.module)}-{digest_of(item.folder)}"

    def program(self, name: str) -> Path:
        """The executable of a program."""
        return self.entry(next(program for program in PROGRAMS if program.name == name)) / name

    def component(self, name: str) -> Path:
        """The link under which the program ``kubernetes`` is this component."""
        return self.program("kubernetes").parent / name

    def manifests(self, name: str) -> Path:
        """The folder with a module's manifests: ``argo``, ``jobset`` and so on."""
        return self.entry(next(item for item in MANIFESTS if item.name == f"{name}-manifests"))

    def missing(self, controllers: Collection[str]) -> list[Program | Manifests]:
        """What has still to be built for a cluster with these controllers, in order."""
        items: tuple[Program | Manifests, ...] = (*PROGRAMS, *MANIFESTS)
        needed = [item for item in items if item.folder in _ALWAYS or item.folder in controllers]
        return [item for item in needed if not self.entry(item).is_dir()]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands from building into the same cache; wait for one that does."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def new_entry(self, name: str) -> Iterator[Path]:
        """A folder to fill, which takes the name ``name`` in the cache if the block ends well."""
        partial = self.root / f".partial-{name}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        partial.rename(self.root / name)


def build_all(cache: Cache, controllers: Collection[str], progress: Callable[[str], None]) -> None:
    """Build what the cache lacks for these controllers; ``progress`` gets one line for each entry."""
    with cache.locked():
        for item in cache.missing(controllers):
            started = time.monotonic()
            with cache.new_entry(cache.entry(item).name) as folder:
                if isinstance(item, Program):
                    _build(item, folder)
                else:
                    _copy_manifests(item, folder)
            version = version_of(item.folder, item.module)
            progress(f"built {item.name} {version} in {time.monotonic() - started:.0f} s")


def _build(program: Program, folder: Path) -> None:
    flags = "-s -w"
    if program.version_variable:
        flags += f" -X {program.version_variable}={version_of(program.folder, program.module)}"
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", str(folder / program.name)]
    if program.vendored:
        source = folder / "source"
        _vendor(program, source)
        _go([*command, "-mod=vendor", program.package], source)
        shutil.rmtree(source)
    else:
        _go([*command, "-mod=readonly", program.package], GO / program.folder)
    for link in program.links:
        (folder / link).symlink_to(program.name)


def _vendor(program: Program, source: Path) -> None:
    """Copy the module with all it depends on to ``source``, and add the files that the published module lacks."""
    shutil.copytree(GO / program.folder, source, ignore=shutil.ignore_patterns("linux"))
    _go(["go", "mod", "vendor"], source)
    for ours, place in program.vendored.items():
        shutil.copy(GO / program.folder / ours, source / "vendor" / program.module / place)


def _copy_manifests(item: Manifests, folder: Path) -> None:
    listed = _go(["go", "list", "-mod=readonly", "-m", "-json", item.module], GO / item.folder)
    module = Path(json.loads(listed)["Dir"])
    for pattern in item.patterns:
        paths = sorted(module.glob(pattern))
        if not paths:
            raise TestbedError(f"{item.module} has no files {pattern}; was its version changed?")
        for path in paths:
            target = folder / path.relative_to(module)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())  # the module's own files are read-only


def _go(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **_ENVIRONMENT}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise TestbedError(f"`{' '.join(command)}` failed in {folder}:\n{done.stderr.strip()[-4000:]}")
    return done.stdout
