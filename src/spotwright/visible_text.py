"""Untrusted text for people: characters that control a terminal, or are invisible, become marks.

Task names, manifests, messages of processes and logs are untrusted text that people read on a terminal or the page. Only this
module decides which characters are shown.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

__all__ = ["ESCAPES", "coloured", "visible"]

_UNUSUAL = re.compile(r"[^\w\x20-\x7e]+|[\u115f\u1160\u3164\uffa0]+")
_UNUSUAL_IN_BLOCK = re.compile(r"[^\w\x20-\x7e\n\t]+|[\u115f\u1160\u3164\uffa0]+")
_INVISIBLE = re.compile(  # drawn empty, though letters, marks or symbols by Unicode
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_MOST_ACCENTS = 4  # on one letter: today's languages need three
_JOINER, _AS_EMOJI, _KEYCAP = "\u200d", "\ufe0f", "\u20e3"


def visible(text: str, *, block: bool = False) -> str:
    """The text with a mark such as ``<U+202E>`` for each character that controls a terminal or is invisible.

    These are the characters of Unicode's categories *other* (control, format, surrogate, private, unassigned), separators of
    lines and paragraphs, variation selectors and fillers that are drawn empty, and accents from the fifth on the same letter
    on. Spaces of all widths and the joiners of emoji stay. ``block``: the text has lines, so newlines and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return (_UNUSUAL_IN_BLOCK if block else _UNUSUAL).sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    """A run of characters that are neither letters, digits nor printable ASCII, with its marks."""
    run = match[0]
    if (
        run.isprintable()
        and not _INVISIBLE.search(run)
        and (len(run) <= _MOST_ACCENTS or not any(map(_is_accent, run)))
    ):
        return run
    parts, accents = [], 0
    for index, letter in enumerate(run):
        accents = accents + 1 if _is_accent(letter) else 0
        stays = accents <= _MOST_ACCENTS and (not _is_hidden(letter) or _makes_emoji(run, index))
        parts.append(letter if stays else _mark(letter))
    return "".join(parts)


@lru_cache(maxsize=4096)
def _mark(letter: str) -> str:
    return f"<U+{ord(letter):04X}>"


@lru_cache(maxsize=4096)
def _is_hidden(letter: str) -> bool:
    """Whether a character is neither drawn nor a space."""
    is_space = unicodedata.category(letter) == "Zs"
    return not is_space and (not letter.isprintable() or _INVISIBLE.match(letter) is not None)


@lru_cache(maxsize=4096)
def _is_accent(letter: str) -> bool:
    """Whether a character is drawn over the one before it."""
    return unicodedata.category(letter) in ("Mn", "Me")


def _makes_emoji(run: str, index: int) -> bool:
    """Whether a character belongs to an emoji: after a symbol, between two joined ones, or after a keycap's digit."""
    letter = run[index]
    if letter not in (_AS_EMOJI, _JOINER):
        return False
    before, after = run[max(0, index - 1) : index], run[index + 1 : index + 2]
    if letter == _AS_EMOJI:
        return after == _KEYCAP or _is_symbol(before)
    return _is_symbol(after) and (before == _AS_EMOJI or _is_symbol(before))


def _is_symbol(letter: str) -> bool:
    return letter != "" and unicodedata.category(letter) in ("So", "Sm", "Sk")


ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)(?P<values>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~])"  # a control sequence
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f\n]*(?:\x07|\x1b\\|\x9c)"  # a string, with its end
    r"|\x1b[ -/]*[0-~]"  # others: for an unterminated string its first two characters
)
"""Terminals' escape sequences (ECMA-48) in 7-bit and 8-bit form; SGR has the final ``m``."""


def coloured(text: str) -> str:
    """The text of a log for a terminal: colours and changes within a line stay, all other escape sequences are dropped.

    Other control characters and invisible ones become marks, see :func:`visible`.
    """
    parts, position, has_colours = [], 0, False
    for match in ESCAPES.finditer(text):
        parts.append(_moving(text[position : match.start()]))
        position = match.end()
        known = _KEPT.fullmatch(f"{match['values']}{match['between']}{match['final']}") if match["final"] else None
        if known is not None:
            parts.append(f"\x1b[{known[0]}")
            has_colours = has_colours or match["final"] == "m"
    parts.append(_moving(text[position:]))
    return "".join([*parts, "\x1b[0m"] if has_colours else parts)


_KEPT = re.compile(r"[0-9;:]*m|[012]?K")  # SGR, and erase in line


def _moving(text: str) -> str:
    """The text with its marks; carriage returns and backspaces, which draw progress bars, stay."""
    return "".join(
        part if part[:1] in ("\r", "\b") else visible(part, block=True) for part in re.split(r"([\r\b]+)", text)
    )
