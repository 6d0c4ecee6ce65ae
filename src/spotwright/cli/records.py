"""The file of ``--record``: the records that are too large for an annotation, of as many documents as there are.

Records are only ever added, because each is known by its digest and another file may carry the same: so a command that stops
half way leaves no document without its record.
"""

from __future__ import annotations

import json
from pathlib import Path

from spotwright.errors import InputError

__all__ = ["read_records", "records_text"]

_VERSION = 1


def read_records(path: Path, *, must_exist: bool) -> dict[str, str]:
    """The records of a file by their digests; none where the file may be new. Raises :class:`InputError` with the fix."""
    if not must_exist and not path.exists():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"--record {path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"--record {path}: {_NOT_OURS}") from error
    records = found.get("records") if isinstance(found, dict) else None
    if not isinstance(records, dict) or not all(isinstance(record, str) for record in records.values()):
        raise InputError(f"--record {path}: {_NOT_OURS}")
    if found.get("version") != _VERSION:
        raise InputError(f"--record {path}: written by a newer version of spotwright: upgrade")
    return records


_NOT_OURS = "is no file of records: name the one that place wrote, or a new one"


def records_text(records: dict[str, str]) -> str:
    """What the file says."""
    return json.dumps({"version": _VERSION, "records": records}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
