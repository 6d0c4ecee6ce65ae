"""Things that a command could not judge: an object, a pool, a resource. They count neither as fine nor as wrong.

Every command collects such values and shows them in one form: names behind its counts, ``not_judged`` in JSON, and with
``--strict`` exit code 1. Each says what would let Spotwright judge it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

__all__ = ["NotJudged", "Subject", "counted", "not_judged_json", "not_judged_lines"]


class Subject(StrEnum):
    """The sort of the unjudged thing."""

    OBJECT = "object"  # a whole object or document
    FIELD = "field"  # a part of an object whose rest is judged
    POOL = "pool"  # whether a pool's nodes have the size or the devices that the work asks for
    RESOURCE = "resource"  # a requested device that pools do not state


class NotJudged(NamedTuple):
    """One thing that was not judged: its name for people, the reason, and the remedy.

    ``file`` and ``line`` are its place; empty and 0 for a pool.
    """

    subject: Subject
    name: str
    why: str
    remedy: str
    file: str = ""
    line: int = 0


_SHOWN = 3  # names of one sort in a line of counts


def counted(found: Iterable[NotJudged]) -> str:
    """The counts with the first names: ``not judged: 1 object (Runner arc), 2 pools (base, arm)``; empty for none."""
    names: dict[Subject, list[str]] = {}
    for one in found:
        of_subject = names.setdefault(one.subject, [])
        if one.name not in of_subject:
            of_subject.append(one.name)
    parts = (
        f"{len(each)} {subject}{'' if len(each) == 1 else 's'} ({', '.join(each[:_SHOWN])}{', ...' if each[_SHOWN:] else ''})"
        for subject, each in names.items()
    )
    text = ", ".join(parts)
    return f"not judged: {text}" if text else ""


def not_judged_lines(found: Sequence[NotJudged]) -> list[str]:
    """A line for each reason, with all its names and the remedy."""
    reasons: dict[tuple[Subject, str, str], list[str]] = {}
    for one in found:
        names = reasons.setdefault((one.subject, one.why, one.remedy), [])
        if one.name not in names:
            names.append(one.name)
    return [
        f"not judged: {subject}{'' if len(names) == 1 else 's'} {', '.join(names)}: {why}{f': {remedy}' if remedy else ''}"
        for (subject, why, remedy), names in reasons.items()
    ]


def not_judged_json(found: Iterable[NotJudged]) -> list[dict[str, str | int | None]]:
    """Each with ``subject`` (``object``, ``field``, ``pool`` or ``resource``), ``name``, ``why``, ``remedy``, ``file``, ``line``.

    ``file`` and ``line`` are null without a place in a file.
    """
    return [
        {**one._asdict(), "subject": one.subject.value, "file": one.file or None, "line": one.line or None}
        for one in dict.fromkeys(found)
    ]
