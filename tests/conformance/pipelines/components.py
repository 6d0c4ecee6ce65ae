"""The components of the conformance pipelines: each returns its inputs, so that runs show their values."""

from functools import partial
from typing import List

from kfp import dsl

component = partial(dsl.component, base_image="python:3.11", install_kfp_package=False)


@component
def text(value: str) -> str:
    return value


@component
def whole(value: int) -> int:
    return value


@component
def real(value: float) -> float:
    return value


@component
def truth(value: bool) -> bool:
    return value


@component
def items(value: list) -> list:
    return value


@component
def mapping(value: dict) -> dict:
    return value


@component
def kinds_of(value: list) -> str:
    return ",".join(type(each).__name__ for each in value)


@component
def total(values: List[int]) -> int:
    return sum(values)


@component
def add(a: int, b: int) -> int:
    return a + b


@component
def seen(value: dict) -> str:
    return repr(value)


@component
def listed(value: list) -> str:
    return repr(value)


@component
def fail(message: str) -> str:
    raise RuntimeError(message)


@component
def optional(a: str = "default", b: int = 7, c: str = None) -> str:
    return f"{a!r} {b!r} {c!r}"


@component
def write(value: str, out: dsl.Output[dsl.Dataset]) -> None:
    with open(out.path, "w") as file:
        file.write(value)
    out.metadata["value"] = value


@component
def read(data: dsl.Input[dsl.Dataset]) -> str:
    with open(data.path) as file:
        return file.read()


@component
def read_all(data: dsl.Input[List[dsl.Dataset]]) -> str:
    found = []
    for each in data or []:
        with open(each.path) as file:
            found.append(file.read())
    return ",".join(found)
