r"""Hide pairs of JSON escapes (an emoji as ``\ud83d\udd53``) from the YAML parser, which does not know them.

Tools that write ASCII-only JSON use such pairs. Each escape is replaced by a text of the same length, so that every position in
the file stays the same; afterwards the pair is read as the one character that it stands for.
"""

from __future__ import annotations

import json
import re

__all__ = ["hide", "reveal"]

_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})")
_PRIVATE = 0xE100  # a private use area of Unicode, which YAML takes for letters
_HIDE = {code: code + _PRIVATE for code in range(0x20, 0x7F)}
_REVEAL = {hidden: code for code, hidden in _HIDE.items()}
_ESCAPE = chr(_HIDE[ord("\\")])
_HIDDEN = re.compile(f"(?:{_ESCAPE}.{{5}}){{2}}")


def hide(text: str) -> str:
    """Hide every pair of escapes in a JSON text. The length stays the same."""
    return _PAIR.sub(lambda pair: pair[1] + pair[2].translate(_HIDE), text)


def reveal(text: str) -> str:
    """Turn the hidden pairs in a string back into the characters that they stand for."""
    return _HIDDEN.sub(lambda pair: str(json.loads(f'"{pair[0].translate(_REVEAL)}"')), text)
