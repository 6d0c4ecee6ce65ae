"""Prevents that a second training in a place resumes at the end of the first one, skips training and looks finished.

Folds, stages and loops over settings run several trainings in one process, or in several processes of one attempt. Each needs
a separate place, so the second claim of a place raises, unless its caller says that it continues the first one's work. Later
attempts claim freely, and so does the same command of one attempt, which a loop of the shell may start again. So does a training
whose place was removed meanwhile.

A training that finds itself complete trains nothing. It says so, and raises if the place is that of a training on other data.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import weakref
from collections.abc import Mapping
from typing import Any

from spotwright.checkpoint.errors import PlaceError

__all__ = ["NEW_EACH_TIME", "PlaceOwner", "accept_complete", "describe_command", "in_use"]

NEW_EACH_TIME = re.compile(r"tmp[a-z0-9_]{8}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Parts of paths that are new in each attempt: the names that ``tempfile`` makes, and UUIDs."""

_owners: dict[tuple[int, str], weakref.ref[object]] = {}  # by process and place: the training that has claimed it


class PlaceOwner:
    """A training that claims a place for this process. This does not keep it alive.

    ``advice`` says how to give it a separate place, or continue in another training's. ``again`` allows the latter.
    """

    def __init__(self, training: object, advice: str, *, again: bool = False) -> None:
        self._training, self._advice, self._again = weakref.ref(training), advice, again

    def check(self, place: str, claim: Mapping[str, Any] | None) -> None:
        """Raise :class:`PlaceError` if another training of this process or attempt has claimed the place, also an ended one.

        ``claim`` is the newest claim of the place. Without one the place was removed, and the training begins anew.
        """
        if claim is None or self._again:
            return
        owner = _owners.get((os.getpid(), place))
        if owner is not None and owner() is not self._training():
            raise in_use(place, self._advice)
        if owner is None and _is_other_command(claim):
            raise in_use(place, self._advice, "another command of this attempt")

    def set(self, place: str) -> None:
        """Give the place to the training."""
        _owners[os.getpid(), place] = self._training


def describe_command() -> dict[str, Any]:
    """Return what tells the commands of one attempt apart, for a claim. The arguments are not in it: they may hold a password."""
    text = "\0".join(NEW_EACH_TIME.sub("", str(each)) for each in getattr(sys, "argv", ()))
    return {"command": hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16], "in": _attempt()}


def _attempt() -> list[str]:
    """Return the names of the attempt of this process; empty outside of one."""
    names = [os.environ.get(f"SPOTWRIGHT_{name}", "") for name in ("RUN", "TASK", "POD_UID", "ATTEMPT")]
    return names if names[-1] else []


def _is_other_command(claim: Mapping[str, Any]) -> bool:
    """Whether a claim is that of a command of this attempt with another script or other arguments."""
    mine = describe_command()
    return (
        bool(mine["in"]) and claim.get("in") == mine["in"] and claim.get("command", mine["command"]) != mine["command"]
    )


def in_use(place: str, advice: str, whose: str = "another training in this process") -> PlaceError:
    """Return the error of a second training in a place."""
    return PlaceError(
        f"{place}: {whose} used this place, and this one would resume from its saves instead of training: {advice}"
    )


def accept_complete(place: object, step: int, saved: Any, training: Mapping[str, Any], advice: str) -> None:
    """Log that a training is complete and trains nothing.

    ``training`` says what it is (its model, the number of its samples), and ``saved`` the same of the one that was saved.
    Raises :class:`PlaceError` if both are known and differ.
    """
    found = saved if isinstance(saved, Mapping) else {}
    differing = [
        f"{name}: {found[name]} there, {now} here" for name, now in training.items() if found.get(name, now) != now
    ]
    if differing:
        raise PlaceError(
            f"{place}: has the complete training of something else ({'; '.join(differing)}), so this one would be skipped: "
            f"{advice}"
        )
    if os.environ.get("RANK", "0") == "0":
        import logging

        logging.getLogger("spotwright.checkpoint").warning(
            "%s: this training is complete at step %d, so nothing is trained now; to train again remove this place",
            place,
            step,
        )
