"""Builds one environment of packages, in a process of its own so that the engine never waits: ``build_environment.py DIRECTORY``.

What to install comes as JSON on standard input, because index addresses can hold credentials and a command line is seen by
everybody on the machine. One builder at a time holds the lock beside the directory; the marker is written last, so that an
environment without it is half built and is made again. Executed by file path with the engine's interpreter; imports nothing
outside the standard library.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

__all__ = ["interpreter", "is_built"]

_MARKER = "spotwright-built.json"
_KFP_LINK = "spotwright-kfp.pth"


def interpreter(directory: Path) -> Path:
    """The environment's Python."""
    return directory / "bin" / "python"


def is_built(directory: Path) -> bool:
    """Whether the environment is complete, and the Python that it stands on is still there."""
    return (directory / _MARKER).exists() and os.access(interpreter(directory), os.X_OK)


def main() -> int:
    """Build unless it is built. Returns the exit status; what went wrong is on standard error."""
    directory, what = Path(sys.argv[1]), json.load(sys.stdin)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(directory.name + ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_built(directory):
            return 0
        shutil.rmtree(directory, ignore_errors=True)
        return _build(directory, what)


def _build(directory: Path, what: dict[str, Any]) -> int:
    make = subprocess.run([what["python"], "-m", "venv", "--without-pip", str(directory)], check=False)
    if make.returncode:
        return make.returncode
    _link_kfp(directory, what["kfp"])
    install = subprocess.run(_installer(directory) + what["packages"], env=_index(what), check=False)
    if install.returncode:
        return install.returncode
    temporary = directory / f"{_MARKER}.tmp"
    temporary.write_text(json.dumps({"packages": what["shown"]}))
    temporary.rename(directory / _MARKER)
    return 0


def _link_kfp(directory: Path, kfp: str) -> None:
    """Make our own KFP's runtime importable after everything that is installed: one that the user lists comes first.

    Only the package is linked, not what says that it is installed: pip must never think that it may replace it.
    """
    folder = directory / "kfp-runtime"
    folder.mkdir()
    (folder / "kfp").symlink_to(kfp)
    variables = {"base": str(directory), "platbase": str(directory)}
    site = Path(sysconfig.get_path("purelib", "venv", vars=variables))
    (site / _KFP_LINK).write_text(f"{folder}\n")


def _installer(directory: Path) -> list[str]:
    python = str(interpreter(directory))
    if importlib.util.find_spec("pip") is not None:
        quiet = ["--quiet", "--no-warn-script-location", "--disable-pip-version-check", "--no-input"]
        return [sys.executable, "-m", "pip", "--python", python, "install", *quiet]
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        sys.exit(
            "neither pip nor uv is here to install packages: run 'python -m ensurepip' in Spotwright's environment"
        )
    return [uv, "pip", "install", "--quiet", "--python", python]


def _index(what: dict[str, Any]) -> dict[str, str]:
    """Index options of pip and uv as environment variables; see "Configuration" in pip's documentation."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    env["PIP_USER"] = "0"  # a user's own setting would lead out of the environment
    if what["index_urls"]:
        env["PIP_INDEX_URL"] = env["UV_DEFAULT_INDEX"] = what["index_urls"][0]
        env["PIP_EXTRA_INDEX_URL"] = env["UV_INDEX"] = " ".join(what["index_urls"][1:])
    if what["trusted_hosts"]:
        env["PIP_TRUSTED_HOST"] = env["UV_INSECURE_HOST"] = " ".join(what["trusted_hosts"])
    return env


if __name__ == "__main__":
    sys.exit(main())
