"""Python environments for tasks with ``packages_to_install``, built once per set of packages and cached.

KFP installs a task's packages into each container. Here they go into an environment below the user's cache folder, named by a
digest of the request, and never into the user's own environment. Later tasks and runs reuse it. KFP's runtime and Spotwright
are linked into it, not installed: components import ``spotwright.checkpoint`` as they do without packages.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from spotwright.errors import StateError
from spotwright.local.python_envs.python_environment import PythonEnvironment

__all__ = ["cache_folder", "directory_of", "find_python", "linked_packages", "python_of"]


def cache_folder() -> Path:
    """The default folder of environments, below ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spotwright" / "environments"


def directory_of(environment: PythonEnvironment, cache: Path) -> Path:
    """The directory of an environment, determined by Python, packages and indexes; the packages' order does not matter."""
    from spotwright.local.python_envs.build_environment import LINKED  # here: few tasks have packages

    packages: Sequence[str] = environment.packages
    if not any(
        package.startswith("-") for package in packages
    ):  # the value of an option follows it, so the order matters
        packages = sorted(packages)
    # the layout is part of it, so that an environment of an older layout is built again
    request = [
        LINKED,
        python_of(environment),
        sys.version,
        list(packages),
        environment.index_urls,
        environment.trusted_hosts,
    ]
    return cache / hashlib.sha256(json.dumps(request).encode()).hexdigest()[:32]


def find_python(environment: PythonEnvironment, cache: Path) -> str | None:
    """The interpreter of an environment; ``None`` if the environment has to be built first."""
    if not environment.packages:
        return python_of(environment)
    from spotwright.local.python_envs.build_environment import interpreter, is_built, mark_used  # here: as above

    directory = directory_of(environment, cache)
    if not is_built(directory):
        return None
    _renew_links(directory)
    mark_used(directory)
    return str(interpreter(directory))


def python_of(environment: PythonEnvironment) -> str:
    """The interpreter that an environment is made of."""
    return environment.python or sys.executable


@functools.cache
def linked_packages() -> dict[str, str]:
    """The folders of KFP and Spotwright by package name. KFP is found without importing it, which would take 80 MB."""
    folders = {}
    for name in ("kfp", "spotwright"):
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise StateError(f"{name} cannot be imported by {sys.executable}: install Spotwright with its dependencies")
        folders[name] = os.path.realpath(spec.submodule_search_locations[0])
    return folders


def _renew_links(directory: Path) -> None:
    """Renew the links to packages whose installation was moved or removed."""
    from spotwright.local.python_envs.build_environment import LINKED  # here: as above

    for name, target in linked_packages().items():
        link = directory / LINKED / name
        if link.is_symlink() and link.exists() and os.path.realpath(link) == target:
            continue
        temporary = link.with_name(f"{name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.rename(link)
