"""Pin components that are loaded from addresses with a commit: their content is compared from run to run.

The content at a commit never changes, but a single file does not prove that it belongs to its commit. So the digest of the first
content of an address is stored in the state folder, and other content is refused later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from spotwright.errors import PipelineError
from spotwright.records.state_folder import write_atomically

__all__ = ["check_pins", "keep_pins"]


def check_pins(place: str, commits: Mapping[str, str], file: Path) -> tuple[str, ...]:
    """Compare digests by address with those in ``file``. Returns notes about new addresses.

    Raises :class:`PipelineError` for content that differs from before.
    """
    pins = _read_pins(file)
    for address, digest in commits.items():
        if pins.get(address, digest) != digest:
            raise PipelineError(
                f"{place}: {address} names a commit, but its content has changed: the sha256 is {digest}, and was "
                f"{pins[address]}. Review it; to accept it, delete {file}"
            )
    return tuple(
        f"{address} names a commit, which cannot be checked: its content, sha256 {digest}, is compared from now on; "
        f"write #sha256={digest} after the address to have it checked everywhere"
        for address, digest in commits.items()
        if address not in pins
    )


def keep_pins(commits: Mapping[str, str], file: Path) -> None:
    """Store the digests of new addresses; stored ones stay."""
    pins = _read_pins(file)
    if not commits.keys() <= pins.keys():
        write_atomically(file, json.dumps({**commits, **pins}, indent=1, sort_keys=True) + "\n")


def _read_pins(file: Path) -> dict[str, str]:
    try:
        pins: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise PipelineError(f"{file}: cannot be read ({error}); delete it to pin all components again") from error
    return pins
