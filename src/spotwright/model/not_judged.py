"""What a command could not judge: an object, a pool, a resource. It counts neither as fine nor as wrong.

Every command collects such values and shows them in one form: names behind its counts, ``not_judged`` in JSON, and with
``--strict`` exit code 1. Each says what would let Spotwright judge it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

__all__ = ["NotJudged", "Subject", "counted", "not_judged_json", "not_judged_lines"]


class Subject(StrEnum):
    """What was not judged."""

    OBJECT = "object"  # an object or a document, with all that is in it
    FIELD = "field"  # a part of an object that is judged otherwise
    POOL = "pool"  # whether the nodes of a pool are large enough, or have what the work asks for
    RESOURCE = "resource"  # a device that the work asks for in a way that no pool states


class NotJudged(NamedTuple):
    """One thing that was not judged: its name for people, why not, and what would let Spotwright judge it.

    ``file`` and ``line`` say where it stands; empty and 0 for a pool.
    """

    subject: Subject
    name: str
    why: str
    remedy: str
    file: str = ""
    line: int = 0


_SHOWN = 3  # names of one sort in a line of counts


def counted(found: Iterable[NotJudged]) -> str:
    """How many there are, with the first names: ``not judged: 1 object (Runner arc), 2 pools (base, arm)``; empty for none."""
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
    """A line for each reason, with the names of all that it holds for and the remedy."""
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

    ``file`` and ``line`` are null where it has no place in a file.
    """
    return [
        {**one._asdict(), "subject": one.subject.value, "file": one.file or None, "line": one.line or None}
        for one in dict.fromkeys(found)
    ]
