"""The stand-in for logind, asked as a kubelet asks: with messages of D-Bus written by hand."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.machine.logind import Logind


class Client:
    """As much of a D-Bus client as a kubelet needs."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(120.0)
        self._socket.connect(str(path))
        self._serial = 0

    def say(self, line: bytes) -> bytes:
        self._socket.sendall(line + b"\r\n")
        return self._socket.recv(200).strip()

    def begin(self) -> None:
        self._socket.sendall(b"\0")
        assert self.say(b"AUTH").startswith(b"REJECTED EXTERNAL")
        assert self.say(b"AUTH EXTERNAL 30").startswith(b"OK ")
        assert self.say(b"NEGOTIATE_UNIX_FD") == b"AGREE_UNIX_FD"
        self._socket.sendall(b"BEGIN\r\n")

    def call(self, member: str) -> tuple[int, bytes, list[int]]:
        """Call a method, and return the kind of the answer, the answer, and the descriptors with it."""
        self._serial += 1
        path, name = b"/org/freedesktop/login1", member.encode()
        fields = b"\x01\x01o\0" + struct.pack("<I", len(path)) + path + b"\0"
        fields += b"\0" * (-len(fields) % 8) + b"\x03\x01s\0" + struct.pack("<I", len(name)) + name + b"\0"
        head = struct.pack("<cBBBIII", b"l", 1, 0, 1, 0, self._serial, len(fields))
        self._socket.sendall(head + fields + b"\0" * (-len(fields) % 8))
        return self.receive()

    def receive(self) -> tuple[int, bytes, list[int]]:
        data, descriptors, _, _ = socket.recv_fds(self._socket, 4096, 1)
        return data[1], data, descriptors

    def close(self) -> None:
        self._socket.close()


REPLY, ERROR, SIGNAL = 2, 3, 4


@pytest.fixture
def bus(tmp_path: Path) -> Path:
    return tmp_path / "bus"


@pytest.fixture
def client(bus: Path, logind: Logind) -> Iterator[Client]:
    client = Client(bus)
    client.begin()
    yield client
    client.close()


@pytest.fixture
def logind(bus: Path) -> Logind:
    return Logind(bus, 5.0)


def test_it_says_how_long_a_shutdown_may_be_held_up(client: Client) -> None:
    kind, data, _ = client.call("Get")
    assert kind == REPLY
    assert struct.unpack("<Q", data[-8:]) == (5_000_000,)


def test_a_shutdown_is_announced_and_waits_until_the_lock_is_released(logind: Logind, client: Client) -> None:
    assert client.call("Hello")[0] == REPLY
    assert client.call("AddMatch")[0] == REPLY
    held = [logind.inhibited]
    kind, _, (lock,) = client.call("Inhibit")
    assert kind == REPLY
    held.append(logind.inhibited)
    results: list[bool] = []
    waiting = threading.Thread(target=lambda: results.append(logind.shut_down()))
    waiting.start()
    kind, data, _ = client.receive()
    assert kind == SIGNAL
    assert b"PrepareForShutdown" in data
    assert data[-4:] == struct.pack("<I", 1)  # true: it goes down
    assert results == []
    os.close(lock)
    waiting.join(5.0)
    assert results == [True]
    assert [*held, logind.inhibited] == [False, True, False]


def test_a_lock_that_is_not_released_holds_the_shutdown_up_no_longer_than_allowed(bus: Path) -> None:
    logind = Logind(bus, 0.1)
    client = Client(bus)
    client.begin()
    _, _, (lock,) = client.call("Inhibit")
    assert logind.shut_down() is False
    os.close(lock)
    client.close()


def test_a_method_that_it_does_not_have_is_refused(client: Client) -> None:
    kind, data, _ = client.call("CanHibernate")
    assert kind == ERROR
    assert b"org.freedesktop.DBus.Error.UnknownMethod" in data
