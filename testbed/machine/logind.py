"""A stand-in for systemd-logind on a node, which announces a shutdown to the kubelet and waits until it lets go.

A kubelet shuts its node down gracefully if logind says that the machine goes (`PrepareForShutdown`); until then it holds an
inhibitor lock, a file descriptor that it closes once its pods have ended. There is no logind in a node's namespaces, so
this module is both the bus and the service behind it, as far as the kubelet uses them:
https://systemd.io/INHIBITOR_LOCKS/ and https://dbus.freedesktop.org/doc/dbus-specification.html, "Message Protocol",
"Authentication Protocol". Only the standard library is used.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Logind"]

_CALL, _REPLY, _ERROR, _SIGNAL = 1, 2, 3, 4
_PATH, _INTERFACE, _MEMBER, _ERROR_NAME, _REPLY_SERIAL, _SENDER, _SIGNATURE, _DESCRIPTORS = 1, 2, 3, 4, 5, 7, 8, 9
_FIELD_TYPES = {_PATH: "o", _REPLY_SERIAL: "u", _SIGNATURE: "g", _DESCRIPTORS: "u"}  # all others are strings
_MAX_MESSAGE = 1 << 16  # bytes; the kubelet's take hundreds
_MANAGER = "org.freedesktop.login1.Manager"
_UNIQUE_NAME = ":1.1"  # of the kubelet; that of logind is :1.0


@dataclass(frozen=True, slots=True)
class _Message:
    kind: int
    serial: int
    member: str


class Logind:
    """The system bus at a path. ``max_delay`` is the longest time in seconds for which a shutdown is held up."""

    def __init__(self, path: Path, max_delay: float) -> None:
        self._max_delay = max_delay
        self._connections: list[_Connection] = []
        self._locks: list[int] = []  # the reading ends of the inhibitor locks
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def inhibited(self) -> bool:
        """Whether a kubelet holds a lock, so that it would hear of a shutdown."""
        return bool(self._locks)

    def shut_down(self) -> bool:
        """Announce a shutdown. Returns whether all locks were released in time, as logind waits before it continues."""
        for connection in self._connections:
            connection.send(
                _SIGNAL, [(_PATH, "/org/freedesktop/login1"), *_named("PrepareForShutdown")], "b", _bool(True)
            )
        poller = select.poll()
        for lock in self._locks:
            poller.register(lock, select.POLLHUP)
        waiting = set(self._locks)
        while waiting:
            ended = poller.poll(self._max_delay * 1000)
            if not ended:
                return False
            for lock, _ in ended:
                poller.unregister(lock)
                waiting.discard(lock)
                self._locks.remove(lock)
                os.close(lock)
        return True

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            connection = _Connection(client)
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: _Connection) -> None:
        try:
            connection.authenticate()
            while True:
                message = connection.receive()
                if message.kind == _CALL:
                    self._answer(connection, message)
        except (OSError, EOFError):  # the kubelet has ended; it connects again when it is back
            self._connections.remove(connection)

    def _answer(self, connection: _Connection, message: _Message) -> None:
        if message.member == "Hello":
            connection.reply(message, "s", _string(_UNIQUE_NAME))
        elif message.member == "AddMatch":
            connection.reply(message)
        elif message.member == "Get":  # InhibitDelayMaxUSec: the kubelet reads no other property
            microseconds = int(self._max_delay * 1_000_000)
            connection.reply(message, "v", struct.pack("<B2sxxxxxQ", 1, b"t\0", microseconds))
        elif message.member == "Inhibit":
            reading, writing = os.pipe2(os.O_CLOEXEC)
            self._locks.append(reading)
            connection.reply(message, "h", struct.pack("<I", 0), descriptor=writing)
            os.close(writing)
        else:
            connection.refuse(message)


class _Connection:
    """One client of the bus."""

    def __init__(self, client: socket.socket) -> None:
        self._socket = client
        self._serial = 0
        self._sending = threading.Lock()

    def authenticate(self) -> None:
        """Accept any client that may open the socket: the file is the access control."""
        self._exactly(1)  # a zero byte comes first
        while (line := self._line()) != b"BEGIN":
            if line.startswith(b"AUTH EXTERNAL"):
                self._socket.sendall(b"OK " + b"0" * 32 + b"\r\n")
            elif line == b"NEGOTIATE_UNIX_FD":
                self._socket.sendall(b"AGREE_UNIX_FD\r\n")
            else:
                self._socket.sendall(b"REJECTED EXTERNAL\r\n")

    def receive(self) -> _Message:
        """Read one message; its body is dropped."""
        head = self._exactly(16)
        order = "<" if head[:1] == b"l" else ">"
        kind, body_size, serial, fields_size = struct.unpack(order + "xBxxIII", head)
        if body_size + fields_size > _MAX_MESSAGE:
            raise EOFError
        fields = self._exactly(fields_size + -fields_size % 8)
        self._exactly(body_size)
        return _Message(kind, serial, _member(fields[:fields_size], order))

    def reply(self, call: _Message, signature: str = "", body: bytes = b"", descriptor: int | None = None) -> None:
        """Answer a call."""
        self.send(_REPLY, [(_REPLY_SERIAL, call.serial)], signature, body, descriptor)

    def refuse(self, call: _Message) -> None:
        """Answer an unknown call."""
        name = "org.freedesktop.DBus.Error.UnknownMethod"
        text = f"the stand-in for logind has no {call.member}"
        self.send(_ERROR, [(_ERROR_NAME, name), (_REPLY_SERIAL, call.serial)], "s", _string(text))

    def send(
        self,
        kind: int,
        fields: list[tuple[int, str | int]],
        signature: str = "",
        body: bytes = b"",
        descriptor: int | None = None,
    ) -> None:
        """Send a message, with a file descriptor if one is given."""
        all_fields: list[tuple[int, str | int]] = [*fields, (_SENDER, ":1.0")]
        if signature:
            all_fields.append((_SIGNATURE, signature))
        if descriptor is not None:
            all_fields.append((_DESCRIPTORS, 1))
        packed = _packed(all_fields)
        with self._sending:
            self._serial += 1
            head = struct.pack("<cBBBIII", b"l", kind, 0, 1, len(body), self._serial, len(packed))
            data = head + packed + b"\0" * (-len(packed) % 8) + body
            socket.send_fds(self._socket, [data], [] if descriptor is None else [descriptor])

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\r\n"):
            line += self._exactly(1)
            if len(line) > _MAX_MESSAGE:
                raise EOFError
        return line[:-2]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data


def _named(member: str) -> list[tuple[int, str | int]]:
    return [(_INTERFACE, _MANAGER), (_MEMBER, member)]


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data + b"\0"


def _bool(value: bool) -> bytes:
    return struct.pack("<I", value)


def _packed(fields: list[tuple[int, str | int]]) -> bytes:
    """The fields of a header: each a byte and a variant, at a multiple of eight bytes."""
    packed = b""
    for code, value in fields:
        packed += b"\0" * (-len(packed) % 8)
        kind = _FIELD_TYPES.get(code, "s")
        packed += struct.pack("<BB2s", code, 1, kind.encode() + b"\0")  # four bytes, so that numbers and lengths follow
        if isinstance(value, int):
            packed += struct.pack("<I", value)
        elif kind == "g":
            packed += struct.pack("<B", len(value)) + value.encode() + b"\0"
        else:
            packed += _string(value)
    return packed


def _member(fields: bytes, order: str) -> str:
    """The member among the packed fields of a header; empty if it has none."""
    at = 0
    while at < len(fields):
        at += -at % 8
        code, kind = fields[at], chr(fields[at + 2])
        at += 4
        if kind == "g":
            at += fields[at] + 2
            continue
        (number,) = struct.unpack_from(order + "I", fields, at)
        at += 4
        if kind == "u":
            continue
        if code == _MEMBER:
            return fields[at : at + number].decode()
        at += number + 1
    return ""
