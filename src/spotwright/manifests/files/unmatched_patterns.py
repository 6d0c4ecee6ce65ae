"""Find the patterns of ``policy.tasks`` that match no role of the placed files, so that a misspelt name is seen."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from spotwright.config import Config, matches
from spotwright.manifests.rules.context import Finding, Level, RoleReport

__all__ = ["unmatched_patterns"]


def unmatched_patterns(config: Config, roles: Iterable[RoleReport]) -> Iterator[Finding]:
    """A warning for each pattern that nearly names a role, a note for each other one; nothing if there are no roles.

    One configuration may serve many files, so a pattern that names none of these roles may well be right.
    """
    paths = list(dict.fromkeys(role.policy_path for role in roles))
    for pattern, layer in config.policy_tasks if paths else ():
        if any(matches(pattern, path) for path in paths):
            continue
        file, _, line = layer.source.rpartition(":")
        nearest = _nearest(pattern, paths)
        text = f"policy.tasks {pattern!r} matches nothing that is placed"
        finding = Finding(Level.NOTE, file, int(line), ("policy", "tasks", pattern), text)
        yield finding._replace(level=Level.WARNING, text=f"{text}: did you mean {nearest!r}?") if nearest else finding


def _nearest(pattern: str, paths: Iterable[str]) -> str:
    """The path that is most like the pattern without its stars, as a whole or in its last segment; empty if none is."""
    name = pattern.replace("*", "").strip("/")
    by_name = {candidate: path for path in paths for candidate in (path, path.rpartition("/")[2])}
    return next((by_name[close] for close in difflib.get_close_matches(name, by_name, n=1)), "")
