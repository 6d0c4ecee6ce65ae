"""The page's third-party modules, such as Preact: from npm, in the wheel, and not in the repository.

``assets/vendor.json`` lists them: for each imported name its file in ``assets/vendor``, its source in npm's folder, and its
SHA-256. The server makes the import map from it, ``scripts/page_assets.py`` the files, and ``setup.py`` refuses to build a
wheel without them. It uses only the standard library, as builds have to.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spotwright.errors import InputError

__all__ = ["TABLE", "VENDOR", "ensure_vendor", "vendor_faults", "vendor_files", "vendor_modules"]

TABLE = Path(__file__).parent / "assets" / "vendor.json"
VENDOR = TABLE.with_suffix("")
_SCRIPT = Path(__file__).parents[3] / "scripts" / "page_assets.py"  # only in a clone


def vendor_files(table: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every file of the table: the modules, and the licences of their packages. Each has ``file``, ``source`` and ``sha256``."""
    entries: list[Any] = [*table.values(), *(entry["licence"] for entry in table.values() if "licence" in entry)]
    return entries


def vendor_modules(table: Path = TABLE) -> dict[str, str]:
    """The file in ``assets/vendor`` for each imported name, for the import map."""
    return {name: entry["file"] for name, entry in json.loads(table.read_text(encoding="utf-8")).items()}


def vendor_faults() -> list[str]:
    """The problems with the files in ``assets/vendor``; empty if they match the table."""
    expected = {entry["file"]: entry["sha256"] for entry in vendor_files(json.loads(TABLE.read_text(encoding="utf-8")))}
    there = {path.name: path for path in VENDOR.glob("[!.]*")}
    missing = [name for name in expected if name not in there]
    lacks = [f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"] if missing else []
    strange = [f"{name} is not in {TABLE.name}" for name in sorted(there) if name not in expected]
    other = [
        f"{name} is not the file of {TABLE.name}"
        for name, path in sorted(there.items())
        if name in expected and hashlib.sha256(path.read_bytes()).hexdigest() != expected[name]
    ]
    return [*lacks, *other, *strange]


def ensure_vendor() -> None:
    """Create the files in a clone, which needs npm and takes seconds the first time. Raises :class:`InputError`.

    The error names the command to run. No effect if all files exist.
    """
    faults = vendor_faults()
    if not faults:
        return
    if not _SCRIPT.exists():
        raise InputError(f"the page's modules: {faults[0]}; install spotwright again, or in a clone run: make page")
    # Its output is not a result of the command, so it goes to the error output (descriptor 2).
    if subprocess.run([sys.executable, str(_SCRIPT)], stdout=2, check=False).returncode != 0:
        raise InputError("the page's modules could not be made, as said above; fix that, then run: make page")
