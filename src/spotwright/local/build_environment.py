"""Build one Python environment in a separate process, so that the engine never waits: ``build_environment.py DIRECTORY``.

The request comes as JSON on standard input, because index URLs can hold credentials and every user of the machine can read
command lines. A builder holds the lock beside the directory. The marker file is written last: an environment without it is
incomplete and is built again. Standard output and error are the log of the build: credentials of indexes are removed.
Executed by path with the engine's interpreter; uses only the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

__all__ = ["LINKED", "UNWRITABLE", "interpreter", "is_built", "mark_used", "used_at", "without_credentials"]


_MARKER = "spotwright-built.json"

LINKED = "linked-packages"
"""The folder of an environment with links to packages that are not installed into it."""

UNWRITABLE = os.EX_CANTCREAT
"""The exit status if the environment's folder cannot be written; the last line of the log has the reason and the fix."""

_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_PATH_FILE = "spotwright-linked.pth"
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def interpreter(directory: Path) -> Path:
    """The environment's interpreter."""
    return directory / "bin" / "python"


def is_built(directory: Path) -> bool:
    """Whether the environment is complete and its base interpreter still exists."""
    return (directory / _MARKER).exists() and os.access(interpreter(directory), os.X_OK)


def mark_used(directory: Path) -> None:
    """Record a use of the environment now: prune deletes environments that were unused for long."""
    with contextlib.suppress(OSError):  # a read-only cache folder
        os.utime(directory / _MARKER)


def used_at(directory: Path) -> float:
    """The Unix time of the environment's last use; for an incomplete one, of its last change."""
    marker = directory / _MARKER
    return (marker if marker.exists() else directory).stat().st_mtime


def without_credentials(text: str) -> str:
    """The text with user names, passwords and tokens in its URLs replaced."""
    return _CREDENTIALS.sub("***", text)


def main() -> int:
    """Build the environment unless it is built. Returns the exit status; errors are on standard error."""
    directory, request = Path(sys.argv[1]), json.load(sys.stdin)
    try:
        return _build_once(directory, request)
    except OSError as error:
        return _unwritable(directory.parent, str(error.strerror or error), "XDG_CACHE_HOME")


def _unwritable(folder: Path, reason: str, variable: str) -> int:
    """Log why a folder cannot be written, and what to do, as the last line. Returns the exit status for it."""
    _log(
        f"{folder}: cannot be written ({reason}); free some space there, or set {variable} to a folder that this user can write\n"
    )
    return UNWRITABLE


def _build_once(directory: Path, request: dict[str, Any]) -> int:
    import shutil

    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(directory.name + ".lock").open("a") as lock:
        _wait_for(lock)
        if is_built(directory):
            return 0
        shutil.rmtree(directory, ignore_errors=True)
        full = _FullDisk(directory.parent)
        status = _build(directory, request, full)
        if status and full.words:
            shutil.rmtree(directory, ignore_errors=True)  # a partial installation would keep the disk full
            return _unwritable(full.folder, full.words, full.variable)
        return status


class _FullDisk:
    """Detects a full disk, of environments or temporary files, in the output of venv, pip or uv."""

    def __init__(self, environments: Path) -> None:
        import tempfile

        self._temporary = Path(tempfile.gettempdir())
        self.folder, self.variable, self.words = environments, "XDG_CACHE_HOME", ""

    def look(self, line: str) -> None:
        """Note the folder with the least space at the first line that reports a full disk."""
        report = _NO_SPACE.search(line)
        if report is None or self.words:
            return
        self.words = report[0]
        if _free(self._temporary) < _free(self.folder):
            self.folder, self.variable = self._temporary, "TMPDIR"


def _free(folder: Path) -> int:
    """The free bytes for this user on a folder's disk."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return 0
    return disk.f_bavail * disk.f_frsize


def _wait_for(lock: TextIO) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _log("waiting for another run, which is building the same environment\n")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _log(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _build(directory: Path, request: dict[str, Any], full: _FullDisk) -> int:
    _log(f"installing {' '.join(request['shown'])}\n")
    status = _execute([request["python"], "-m", "venv", "--without-pip", str(directory)], dict(os.environ), full)
    if status:
        return status
    _link_packages(directory, request["linked"])
    status = _execute(_installer(directory) + request["packages"], _index_environment(request), full)
    if status:
        return status
    temporary = directory / f"{_MARKER}.tmp"
    temporary.write_text(json.dumps({"packages": request["shown"]}))
    temporary.rename(directory / _MARKER)
    return 0


def _execute(command: list[str], env: dict[str, str], full: _FullDisk) -> int:
    """Execute a program, and pass its output on line by line without credentials. Returns its exit status."""
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            full.look(line)
            _log(without_credentials(line))
    return process.returncode


def _link_packages(directory: Path, packages: dict[str, str]) -> None:
    """Make KFP's runtime and Spotwright importable after all installed packages, so that the user's own versions come first.

    Only the packages are linked, by name and folder, without their metadata, so that pip never tries to replace them.
    """
    import sysconfig

    folder = directory / LINKED
    folder.mkdir()
    for name, path in packages.items():
        (folder / name).symlink_to(path)
    variables = {"base": str(directory), "platbase": str(directory)}
    site = Path(sysconfig.get_path("purelib", "venv", vars=variables))
    (site / _PATH_FILE).write_text(f"{folder}\n")


def _installer(directory: Path) -> list[str]:
    import shutil

    python = str(interpreter(directory))
    if importlib.util.find_spec("pip") is not None:
        plain = ["--progress-bar", "off", "--no-warn-script-location", "--disable-pip-version-check", "--no-input"]
        return [sys.executable, "-m", "pip", "--python", python, "install", *plain]
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        sys.exit(
            "neither pip nor uv is available to install packages: run 'python -m ensurepip' in Spotwright's environment"
        )
    return [uv, "pip", "install", "--no-progress", "--python", python]


def _index_environment(request: dict[str, Any]) -> dict[str, str]:
    """The index options of pip and uv as environment variables; see "Configuration" in pip's documentation."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    env["PIP_USER"] = "0"  # the user's own setting would install outside of the environment
    if request["index_urls"]:
        env["PIP_INDEX_URL"] = env["UV_DEFAULT_INDEX"] = request["index_urls"][0]
        env["PIP_EXTRA_INDEX_URL"] = env["UV_INDEX"] = " ".join(request["index_urls"][1:])
    if request["trusted_hosts"]:
        env["PIP_TRUSTED_HOST"] = env["UV_INSECURE_HOST"] = " ".join(request["trusted_hosts"])
    return env


if __name__ == "__main__":
    sys.exit(main())
