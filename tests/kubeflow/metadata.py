"""The messages of ML Metadata, made with protobuf itself from the fields of its proto files, and its answers in gRPC-web."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2

__all__ = ["executions"]

_FIELD = descriptor_pb2.FieldDescriptorProto


def _messages() -> tuple[Any, Any]:
    """The classes of the request and the response."""
    file = descriptor_pb2.FileDescriptorProto(name="mlmd_of_tests.proto", package="tests", syntax="proto2")
    file.dependency.append(struct_pb2.DESCRIPTOR.name)

    def message(parent: Any, name: str, *fields: tuple[str, int, int, int, str]) -> Any:
        made = parent.add(name=name)
        for field, number, label, kind, of in fields:
            made.field.add(name=field, number=number, label=label, type=kind, **({"type_name": of} if of else {}))
        return made

    one, many, number, text, inner = (
        _FIELD.LABEL_OPTIONAL, _FIELD.LABEL_REPEATED, _FIELD.TYPE_INT64, _FIELD.TYPE_STRING, _FIELD.TYPE_MESSAGE
    )  # fmt: skip
    value_fields = (
        ("int_value", 1, one, number, ""),
        ("string_value", 3, one, text, ""),
        ("struct_value", 4, one, inner, ".google.protobuf.Struct"),
    )
    message(file.message_type, "Value", *value_fields)
    execution = message(
        file.message_type,
        "Execution",
        ("id", 1, one, number, ""),
        ("name", 6, one, text, ""),
        ("custom_properties", 5, many, inner, ".tests.Execution.CustomPropertiesEntry"),
        ("create_time_since_epoch", 8, one, number, ""),
    )
    entry = ("key", 1, one, text, ""), ("value", 2, one, inner, ".tests.Value")
    message(execution.nested_type, "CustomPropertiesEntry", *entry).options.map_entry = True
    message(file.message_type, "Request", ("execution_ids", 1, many, number, ""))
    message(file.message_type, "Response", ("executions", 1, many, inner, ".tests.Execution"))
    pool = descriptor_pool.Default()
    pool.Add(file)
    request, response = (pool.FindMessageTypeByName(f"tests.{name}") for name in ("Request", "Response"))
    return message_factory.GetMessageClass(request), message_factory.GetMessageClass(response)


_REQUEST, _RESPONSE = _messages()


def executions(body: bytes, outputs: Mapping[int, Mapping[str, Any]]) -> bytes:
    """The answer to a request: the existing executions, with the launcher's records beside their outputs."""
    assert body[:1] == b"\0"
    assert struct.unpack(">I", body[1:5])[0] == len(body) - 5
    answer = _RESPONSE()
    for number in _REQUEST.FromString(body[5:]).execution_ids:
        if number in outputs:
            execution = answer.executions.add(
                id=number, name=f"run/{number}", create_time_since_epoch=1_790_000_000_000
            )
            execution.custom_properties["task_name"].string_value = "train"
            execution.custom_properties["parent_dag_id"].int_value = 3
            execution.custom_properties["outputs"].struct_value.update(dict(outputs[number]))
    message, trailers = answer.SerializeToString(), b"grpc-status:0\r\n"
    return b"\0" + struct.pack(">I", len(message)) + message + b"\x80" + struct.pack(">I", len(trailers)) + trailers
