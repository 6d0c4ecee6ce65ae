"""Component texts from addresses that name a commit, compared from run to run.

A commit never holds another text, but one file cannot show what its commit holds. So the first text that an address gave is
remembered by its digest in the state folder, and another one later is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from spotwright.errors import PipelineError
from spotwright.records.folders import write_atomically

__all__ = ["check_pins", "keep_pins"]


def check_pins(place: str, commits: Mapping[str, str], file: Path) -> tuple[str, ...]:
    """Compare the digests of texts by address with those that ``file`` remembers; what is to be said of new ones.

    Raises :class:`PipelineError` for another text than before.
    """
    known = _known(file)
    for address, digest in commits.items():
        if known.get(address, digest) != digest:
            raise PipelineError(
                f"{place}: {address} names a commit, and its text has the sha256 {digest}; it had {known[address]} before. "
                f"Look at it; to take it, delete {file}"
            )
    return tuple(
        f"{address} names a commit, which cannot be checked: its text, sha256 {digest}, is remembered and compared from now "
        f"on; #sha256={digest} behind the address has it checked everywhere"
        for address, digest in commits.items()
        if address not in known
    )


def keep_pins(commits: Mapping[str, str], file: Path) -> None:
    """Remember the digests; what is remembered already stays."""
    known = _known(file)
    if not commits.keys() <= known.keys():
        write_atomically(file, json.dumps({**commits, **known}, indent=1, sort_keys=True) + "\n")


def _known(file: Path) -> dict[str, str]:
    try:
        known: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise PipelineError(f"{file}: cannot be read ({error}); delete it to begin anew") from error
    return known
