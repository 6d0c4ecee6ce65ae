"""Settings with which podman starts containers where its defaults do not.

Its defaults raise limits, which needs CAP_SYS_RESOURCE, and crun refuses a machine that mounts both versions of control groups;
runc does not. A machine where the defaults work is left alone.
"""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

__all__ = ["environment_to_start"]

_FILES, _PROCESSES = 20_000, 4_000


def environment_to_start(folder: Path, starts: Callable[[Mapping[str, str]], bool]) -> Mapping[str, str]:
    """The environment variables with which a container starts, as ``starts`` tries them; empty if none helps.

    The settings are written to ``folder``.
    """
    return next((env for env in _environments(folder) if starts(env)), {})


def _environments(folder: Path) -> Iterator[Mapping[str, str]]:
    yield {}
    for runtime in ("", "runc"):
        if not runtime or shutil.which(runtime) is not None:
            path = folder / f"containers-{runtime or 'default'}.conf"
            path.write_text(_settings(runtime), encoding="utf-8")
            yield {"CONTAINERS_CONF": str(path)}


def _settings(runtime: str) -> str:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = _FILES if most == resource.RLIM_INFINITY else min(most, _FILES)
    limits = [f"nofile={files}:{files}", f"nproc={_PROCESSES}:{_PROCESSES}"]
    lines = ["[containers]", f"default_ulimits = {json.dumps(limits)}"]
    lines += ["[engine]", f'runtime = "{runtime}"'] if runtime else []
    return "\n".join(lines) + "\n"
