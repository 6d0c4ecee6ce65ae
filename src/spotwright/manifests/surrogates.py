r"""Characters that JSON may write as two escapes (an emoji as ``\ud83d\udd53``), which YAML does not know.

Many tools that write JSON keep to ASCII so. The escapes are hidden from the parser behind as many other characters, so that every
position stays what it is, and come out as the character that they stand for.
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
    """JSON text with every pair of escapes hidden; as long as it was."""
    return _PAIR.sub(lambda pair: pair[1] + pair[2].translate(_HIDE), text)


def reveal(text: str) -> str:
    """A string of such a text as it is meant."""
    return _HIDDEN.sub(lambda pair: str(json.loads(f'"{pair[0].translate(_REVEAL)}"')), text)
