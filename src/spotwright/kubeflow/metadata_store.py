"""Reads output parameters from the store in which KFP's launcher keeps them: ML Metadata, which speaks gRPC.

No answer of KFP's REST API has them. The store stands behind the address of KFP's pages, which ask it with gRPC-web
(https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md). One request with one field is enough, so the few bytes are written
and read here instead of with a package of 10 MB. Fields are those of ``metadata_store.proto`` and
``metadata_store_service.proto``; the key ``outputs`` is the launcher's (backend ``v2/metadata/client.go``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["METHOD", "CannotRead", "outputs_in", "request_for"]

METHOD = "/ml_metadata.MetadataStoreService/GetExecutionsByID"
"""The path of the request."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TRAILERS = 0x80  # the flag of a frame without a message
_EXECUTIONS, _ID, _CUSTOM_PROPERTIES = 1, 1, 5
_KEY, _VALUE, _STRUCT = 1, 2, 4


class CannotRead(ValueError):
    """The answer is none of the store."""


def request_for(execution_ids: Iterable[int]) -> bytes:
    """The body of a request for executions."""
    message = b"".join(bytes([_ID << 3 | _VARINT]) + _varint(each) for each in execution_ids)
    return b"\0" + struct.pack(">I", len(message)) + message


def outputs_in(answer: bytes) -> dict[int, dict[str, Any]]:
    """The output parameters of executions, by id. Raises :class:`CannotRead`."""
    try:
        found = {}
        for field, execution in _fields(_message(answer)):
            if field == _EXECUTIONS and isinstance(execution, bytes):
                number, outputs = _execution(execution)
                found[number] = outputs
    except (IndexError, struct.error, ValueError) as error:
        raise CannotRead(f"the metadata store answers what cannot be read ({type(error).__name__})") from error
    return found


def _message(answer: bytes) -> bytes:
    """The message in the frames of an answer; an error of gRPC comes in the trailers alone."""
    message, place, frames = b"", 0, 0
    while place < len(answer):
        flag, length = answer[place], struct.unpack_from(">I", answer, place + 1)[0]
        if place + 5 + length > len(answer):
            raise ValueError("a frame is cut")
        if not flag & _TRAILERS:
            message += answer[place + 5 : place + 5 + length]
            frames += 1
        place += 5 + length
    if not frames:
        raise ValueError("there is no message")
    return message


def _execution(data: bytes) -> tuple[int, dict[str, Any]]:
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.struct_pb2 import Struct

    number, outputs = 0, dict[str, Any]()
    for field, value in _fields(data):
        if field == _ID and isinstance(value, int):
            number = value
        elif field == _CUSTOM_PROPERTIES and isinstance(value, bytes):
            entry = dict(_fields(value))
            if entry.get(_KEY) == b"outputs" and isinstance(entry.get(_VALUE), bytes):
                written = dict(_fields(entry[_VALUE])).get(_STRUCT, b"")
                outputs = MessageToDict(Struct.FromString(written))
    return number, outputs


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message with their values: numbers, or bytes."""
    place = 0
    while place < len(data):
        tag, place = _read_varint(data, place)
        kind = tag & 7
        if kind == _VARINT:
            value, place = _read_varint(data, place)
            yield tag >> 3, value
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            length, place = _read_varint(data, place)
        if length is None or place + length > len(data):
            raise ValueError("a field is cut")
        yield tag >> 3, data[place : place + length]
        place += length


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place
