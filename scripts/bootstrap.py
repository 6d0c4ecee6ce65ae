"""Makes .venv and installs one locked set of packages, then this project itself: `scripts/bootstrap SET`.

It exists so that `make demo` and `make test` work on a machine with Python and nothing else, and cost nothing when
nothing has changed. It decides between three cases: everything is there; the set has to grow; or the environment is made
anew, because it was made from other lock files, by another Python, in another place, or not to its end.

What the user's own pip configuration says (index, proxy, certificates) holds. Only the standard library is used.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "spotwright.json"  # what was installed; empty while work is going on; also the lock
LOCKS = ROOT / "requirements"
SETS = {
    "run": "run",
    "demo": "run demo",
    "docs": "run docs",
    "dev": "run demo docs dev",
}  # with the sets that each holds
SETS |= {name: f"{SETS['dev']} {name}" for name in ("networks", "torch")}
ELSEWHERE = {"PYTHONHOME", "PYTHONPATH", "PIP_PREFIX", "PIP_ROOT", "PIP_TARGET"}  # would lead pip away from .venv
NO_PIP = """this Python can neither give an environment a pip nor has one itself.
Install both, on Debian and Ubuntu with: apt-get install python3-venv"""


class RefusalError(Exception):
    """The set cannot be installed; the text is for the user."""


def main(arguments: list[str]) -> int:
    """Install the named set unless it is there. Returns the exit code."""
    if len(arguments) != 1 or arguments[0] not in SETS:
        return failed(f"usage: scripts/bootstrap {'|'.join(SETS)}")
    if VENV.exists() and not STAMP.exists() and any(VENV.iterdir()):
        return failed(f"{VENV} was not made by this script: move it away or delete it")
    if VENV.is_symlink():
        return failed(f"{VENV} is a link to {VENV.resolve()}, which belongs to another folder: remove the link")
    try:
        VENV.mkdir(exist_ok=True)
        with STAMP.open("a+", encoding="utf-8") as stamp:
            fcntl.flock(stamp, fcntl.LOCK_EX)  # two calls at once: the second finds the work done
            bring_up(arguments[0], stamp)
    except (RefusalError, OSError) as error:
        return failed(str(error))
    except KeyboardInterrupt:
        return 130
    return 0


def failed(text: str) -> int:
    """Tell the user, and give the exit code."""
    print(f"bootstrap: {text}", file=sys.stderr)
    return 1


def bring_up(name: str, stamp: TextIO) -> None:
    """Make .venv hold the named set, and write down that it does when all is done."""
    stamp.seek(0)
    made_from, there = json.loads(stamp.read() or '["", ""]')
    inputs = digest()
    same = made_from == inputs and PYTHON.exists()
    if same and name in there.split():
        return
    stamp.truncate(0)  # stopped between here and the end, the environment counts for nothing
    if not same:
        create()
    install(name)
    held = [*(there.split() if same else ()), *SETS[name].split()]
    json.dump([inputs, " ".join(dict.fromkeys(held))], stamp)


def interpreter() -> str:
    """Find the Python that environments are made from; never that of an environment, such as an activated .venv."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def digest() -> str:
    """Digest what an environment depends on: its place, its Python, the lock files and how this project is built."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    built = [project["build-system"], project["project"], project["tool"]["setuptools"]]
    locks = [path.read_text(encoding="utf-8") for path in sorted(LOCKS.glob("*.txt"))]
    script = Path(__file__).read_text(encoding="utf-8")
    parts = [str(ROOT), interpreter(), sys.version, script, built, locks]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def create() -> None:
    """Create .venv again, with pip if this Python can provide it."""
    print(f"bootstrap: making .venv with Python {sys.version.split()[0]}", flush=True)
    for entry in VENV.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry != STAMP:
            entry.unlink()
    make = [interpreter(), "-m", "venv", str(VENV)]
    if not succeeds(make):  # Debian without python3-venv: there is no ensurepip
        run([*make, "--without-pip"])


def pip() -> list[str]:
    """Find the pip that installs into .venv: its own, else the one of the machine."""
    for command in ([str(PYTHON), "-m", "pip"], [interpreter(), "-m", "pip", "--python", str(PYTHON)]):
        if succeeds([*command, "--version"]):
            return command
    raise RefusalError(NO_PIP)


def install(name: str) -> None:
    """Install the packages that build, then the set, then the project in place.

    kfp-server-api is published as source only. Built in isolation it would fetch a setuptools without a hash, so the locked
    setuptools goes in first and everything is built with it. The lock files are complete: pip need not resolve.
    """
    command = [*pip(), "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    here = ["--no-build-isolation", "--use-pep517"]
    lock = LOCKS / f"{name}.txt"
    count = lock.read_text(encoding="utf-8").count("==")
    print(f"bootstrap: installing {count} locked packages ({name})", flush=True)
    run([*command, "--require-hashes", "-r", str(LOCKS / "build.txt")])
    run([*command, "--require-hashes", "-r", str(lock), *here])
    run([*command, "--editable", str(ROOT), *here])


def environment() -> dict[str, str]:
    """Give the user's environment, without what would lead pip away from .venv."""
    return {key: value for key, value in os.environ.items() if key not in ELSEWHERE} | {"PIP_USER": "0"}


def succeeds(command: list[str]) -> bool:
    """Try a command in silence."""
    return subprocess.run(command, env=environment(), capture_output=True, check=False).returncode == 0


def run(command: list[str]) -> None:
    """Run one step with its output shown. Raises RefusalError if it fails."""
    if subprocess.run(command, env=environment(), check=False).returncode != 0:
        raise RefusalError("the step above failed; fix what it names and run this again: it starts over")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
