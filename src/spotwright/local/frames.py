"""How the engine and a fork server talk: JSON in frames over a stream socket.

A stream, because the other kinds of UNIX sockets refuse messages above a limit of the machine (208 KiB by default).
Read by the fork server too, so it imports nothing outside the standard library.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

__all__ = ["pack", "unpack"]


def pack(message: Mapping[str, Any]) -> bytes:
    """One message as it goes over the socket: four bytes of length, then JSON."""
    body = json.dumps(message).encode()
    return struct.pack("!I", len(body)) + body


def unpack(buffer: bytearray) -> dict[str, Any] | None:
    """Take the first whole message out of the buffer; ``None`` where there is none yet."""
    if len(buffer) < 4:
        return None
    size = struct.unpack_from("!I", buffer)[0]
    if len(buffer) < 4 + size:
        return None
    message: dict[str, Any] = json.loads(buffer[4 : 4 + size])
    del buffer[: 4 + size]
    return message
