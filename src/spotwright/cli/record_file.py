"""The file of ``--record``, with the placement records of any number of documents that are too large for an annotation.

A record is identified by its digest, and several files may have the same record, so records are only added: a command that stops
half way leaves no document without its record.
"""

from __future__ import annotations

import json
from pathlib import Path

from spotwright.errors import InputError

__all__ = ["read_records", "records_text"]

_VERSION = 1


def read_records(path: Path, *, must_exist: bool) -> dict[str, str]:
    """The records of a file by their digests; none if the file does not exist and need not. Raises :class:`InputError`."""
    if not must_exist and not path.exists():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"--record {path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"--record {path}: {_NOT_RECORDS}") from error
    records = content.get("records") if isinstance(content, dict) else None
    if not isinstance(records, dict) or not all(isinstance(record, str) for record in records.values()):
        raise InputError(f"--record {path}: {_NOT_RECORDS}")
    if content.get("version") != _VERSION:
        raise InputError(f"--record {path}: written by a newer version of spotwright: upgrade")
    return records


_NOT_RECORDS = "this is no file of records: name the file that place wrote, or a new one"


def records_text(records: dict[str, str]) -> str:
    """The content of the file for these records."""
    return json.dumps({"version": _VERSION, "records": records}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
