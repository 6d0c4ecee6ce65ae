"""Python environments for tasks with ``packages_to_install``: built once per set of packages, kept, never the user's own.

KFP installs a task's packages into its container each time. Here they go into an environment under the user's cache, named
by what was asked for; later tasks and later runs find it ready. KFP's own runtime is linked into it, not installed again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from spotwright.errors import StateError
from spotwright.local.build_environment import interpreter, is_built
from spotwright.local.orders import Environment
from spotwright.local.servers import tail

__all__ = ["Build", "cache_folder", "directory_of", "find_python", "without_credentials"]

_BUILDER = Path(__file__).with_name("build_environment.py")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_SHOWN_LINES = 8


def cache_folder() -> Path:
    """Where environments are kept unless the caller says otherwise: ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spotwright" / "environments"


def directory_of(environment: Environment, cache: Path) -> Path:
    """The directory of an environment: the same for the same Python, packages and indexes, whatever the packages' order."""
    packages: Sequence[str] = environment.packages
    if not any(package.startswith("-") for package in packages):  # an option's value follows it
        packages = sorted(packages)
    asked = [_python(environment), sys.version, list(packages), environment.index_urls, environment.trusted_hosts]
    return cache / hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]


def find_python(environment: Environment, cache: Path) -> str | None:
    """The interpreter of an environment; ``None`` where it has to be built first."""
    if not environment.packages:
        return _python(environment)
    directory = directory_of(environment, cache)
    if not is_built(directory):
        return None
    _point_at_our_kfp(directory)
    return str(interpreter(directory))


def without_credentials(text: str) -> str:
    """The text with user names, passwords and tokens of its addresses replaced."""
    return _CREDENTIALS.sub("***", text)


@dataclass(frozen=True, slots=True)
class Build:
    """A build that runs. ``pidfd`` is ready to be read when it has ended."""

    environment: Environment
    directory: Path
    process: subprocess.Popen[bytes]
    pidfd: int
    output: int  # a file without a name: what pip said

    @classmethod
    def start(cls, environment: Environment, cache: Path, marks: Mapping[str, str]) -> Build:
        """Start building. Another engine that builds the same is waited for, not doubled. ``marks``: see :mod:`.identity`."""
        directory = directory_of(environment, cache)
        what = {
            "python": _python(environment),
            "packages": environment.packages,
            "index_urls": environment.index_urls,
            "trusted_hosts": environment.trusted_hosts,
            "kfp": _kfp(),
            "shown": [without_credentials(package) for package in environment.packages],
        }
        output = os.memfd_create("build")
        try:
            process = subprocess.Popen(
                [sys.executable, str(_BUILDER), str(directory)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, **marks},
                start_new_session=True,
            )
        except OSError:
            os.close(output)
            raise
        # a builder that could not even read will have said why
        with contextlib.suppress(BrokenPipeError), cast("IO[bytes]", process.stdin) as given:
            given.write(json.dumps(what).encode())
        return cls(environment, directory, process, os.pidfd_open(process.pid), output)

    def finish(self) -> str:
        """After its end: why it failed, in words for people; empty when the environment is ready."""
        status = self.process.wait()
        said = without_credentials(tail(self.output))
        os.close(self.pidfd)
        os.close(self.output)
        if status == 0:
            return ""
        packages = " ".join(map(without_credentials, self.environment.packages))
        return "\n".join([f"packages could not be installed: {packages}", *said.splitlines()[-_SHOWN_LINES:]])

    def cancel(self) -> None:
        """Kill it and what it has started; what is half built is made again by whoever needs it."""
        os.killpg(self.process.pid, signal.SIGKILL)  # not waited for yet: the group is still its own
        self.finish()


def _python(environment: Environment) -> str:
    return environment.python or sys.executable


@functools.cache
def _kfp() -> str:
    """The installed ``kfp`` package, found without importing it (that would cost 80 MB)."""
    spec = importlib.util.find_spec("kfp")
    if spec is None or not spec.submodule_search_locations:
        raise StateError(f"kfp cannot be imported by {sys.executable}: install Spotwright with its dependencies")
    return os.path.realpath(spec.submodule_search_locations[0])


def _point_at_our_kfp(directory: Path) -> None:
    """Renew the link to KFP's runtime where the installation that it was built with has moved or gone."""
    link, target = directory / "kfp-runtime" / "kfp", _kfp()
    if link.is_symlink() and link.exists() and os.path.realpath(link) == target:
        return
    temporary = link.with_name(f"kfp.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.rename(link)
