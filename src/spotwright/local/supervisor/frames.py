"""The wire format between the engine, its fork servers and shims: JSON in frames over a stream socket.

Stream sockets are used because the other kinds of UNIX sockets refuse messages above a machine limit (208 KiB by default).
The fork server imports this module, so it uses only the standard library.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

__all__ = ["pack", "unpack"]


def pack(message: Mapping[str, Any]) -> bytes:
    """Encode a message as a frame: four bytes of length, then JSON."""
    body = json.dumps(message).encode()
    return struct.pack("!I", len(body)) + body


def unpack(buffer: bytearray) -> dict[str, Any] | None:
    """Remove the first complete message from the buffer and return it; ``None`` if it is not complete yet."""
    if len(buffer) < 4:
        return None
    size = struct.unpack_from("!I", buffer)[0]
    if len(buffer) < 4 + size:
        return None
    message: dict[str, Any] = json.loads(buffer[4 : 4 + size])
    del buffer[: 4 + size]
    return message
