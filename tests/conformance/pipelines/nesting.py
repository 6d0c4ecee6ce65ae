"""Pipelines inside pipelines."""

from typing import NamedTuple

from components import add, optional, read, text, whole, write
from kfp import dsl

__all__ = [
    "inside_with_artifacts",
    "inside_with_branches",
    "inside_with_optional_inputs",
    "inside_with_outputs",
    "inside_with_placeholders",
    "inside_with_retries",
]


class Doubled(NamedTuple):
    number: int
    data: dsl.Dataset


@dsl.pipeline
def doubling(n: int) -> Doubled:
    twice = add(a=n, b=n)
    made = write(value=f"{twice.output}")
    return Doubled(number=twice.output, data=made.outputs["out"])


@dsl.pipeline
def inside_with_outputs() -> int:
    """A pipeline inside a pipeline inside a pipeline, with outputs; the same one twice. kfp.local: wrong (fractions)"""
    first = doubling(n=1)
    second = doubling(n=first.outputs["number"])
    read(data=second.outputs["data"])
    return second.outputs["number"]


@dsl.pipeline
def reading(data: dsl.Input[dsl.Dataset]) -> str:
    return read(data=data).output


@dsl.pipeline
def inside_with_artifacts() -> str:
    """A nested pipeline with artifacts as its only inputs. kfp.local: no"""
    return reading(data=write(value="given").outputs["out"]).output


@dsl.pipeline
def options(a: str = None, b: int = None, c: str = "inner") -> str:
    return optional(a=a, b=b, c=c).output


@dsl.pipeline
def inside_with_optional_inputs(nothing: str = None, number: int = None):
    """Optional inputs: left out, None, by default; of components and of nested pipelines. kfp.local: no"""
    optional()
    optional(a=nothing, b=number)
    options()
    options(a="given", b=3, c="given")
    options(a=nothing, b=number, c=nothing)


@dsl.pipeline
def saying(value: str) -> str:
    return text(value=f"<{value}>").output


@dsl.pipeline
def inside_with_placeholders(name: str = "n"):
    """Texts with values in them as inputs of a nested pipeline, `f"{name}-{task.output}"`. kfp.local: wrong ("<null-null>")"""
    number = whole(value=4)
    saying(value=f"{name}-{number.output}")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def not_at_once() -> int:
    import os

    if os.environ["SPOTWRIGHT_ATTEMPT"] == "1":
        raise RuntimeError("not yet")
    return 1


@dsl.pipeline
def trying() -> int:
    not_at_once()
    return not_at_once().set_retry(1, backoff_duration="0s").output


@dsl.pipeline
def inside_with_retries() -> int:
    """Retries of a nested pipeline apply to its tasks without retries of their own. kfp.local: not compared"""
    return trying().set_retry(2, backoff_duration="0s").output


@dsl.pipeline
def sign(n: int) -> str:
    with dsl.If(n < 0):
        below = text(value="below")
    with dsl.Else():
        above = text(value="above")
    return dsl.OneOf(below.output, above.output)


@dsl.pipeline
def inside_with_branches(n: int = 1) -> str:
    """Conditions in a nested pipeline, beside conditions in a loop of the outer one. kfp.local: no"""
    with dsl.ParallelFor([1, 2]) as item:
        with dsl.If(item == 2):
            text(value="two")
    sign(n=-1)
    return sign(n=n).output
