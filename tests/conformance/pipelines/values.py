"""Parameters and placeholders."""

from typing import List

from components import items, kinds_of, listed, mapping, real, seen, text, truth, whole
from kfp import dsl

__all__ = [
    "large_values",
    "numbers_and_kinds",
    "parameters_by_default",
    "placeholders",
    "texts_of_values",
    "written_as_go",
]


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def described(value: dict) -> str:
    import json

    return json.dumps({key: type(each).__name__ for key, each in value.items()}, sort_keys=True)


@dsl.pipeline
def numbers_and_kinds(n: int = 9007199254740992, x: float = 0.1, deep: dict = {"a": [1, 2.5, {"b": "x"}], "c": True}):
    """Every type; whole numbers and fractions stay apart, also deep in lists and mappings. kfp.local: wrong (all fractions)"""
    whole(value=n)
    real(value=x)
    truth(value=True)
    mapping(value=mapping(value=deep).output)
    seen(value=deep)
    described(value={"whole": 1, "real": 1.5, "text": "1", "truth": False, "list": [], "mapping": {}})
    kinds_of(value=[1, 2.5, "x", True, [], {}])
    listed(value=items(value=[[1, [2, [3]]], {"x": {"y": 1}}]).output)


@dsl.pipeline
def parameters_by_default(a: str = "a", b: int = 0, c: bool = False, d: list = [], e: dict = {}, f: float = 0.0):
    """Defaults of the pipeline, also those that are empty or false."""
    text(value=a)
    whole(value=b)
    truth(value=c)
    items(value=d)
    mapping(value=e)
    real(value=f)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def repeat(value: str, times: int) -> str:
    return value * times


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def length(value: str) -> int:
    return len(value)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def numbers(count: int) -> list:
    return list(range(count))


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def count(value: list) -> int:
    return len(value)


@dsl.pipeline
def large_values():
    """Parameters of a megabyte. kfp.local: no (the limit of a command line)"""
    length(value=repeat(value="0123456789abcdef", times=65536).output)
    count(value=numbers(count=200000).output)


@dsl.pipeline
def texts_of_values(n: int = 3, x: float = 0.5, flag: bool = True, many: list = [1, "a"]):
    """Values in texts: f-strings with parameters, outputs and items; conversions to text. kfp.local: wrong (fractions)"""
    text(value=f"{n} {x} {flag} {many}")
    text(value=f"{whole(value=n).output}-{real(value=x).output}-{truth(value=flag).output}")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def made() -> dict:
    return {"b": [2.0, 0.5], "a": {"d": 1, "c": 2}}


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def shown(value: float) -> str:
    return repr(value)


@dsl.pipeline
def written_as_go(shares: List[float] = [2.0, 0.5]):
    """Mappings have sorted keys; whole numbers become floats where a component declares a float. kfp.local: not compared"""
    seen(value=made().output)
    with dsl.ParallelFor(shares, name="loop") as share:
        shown(value=share)


@dsl.pipeline
def placeholders(name: str = "given"):
    """Placeholders of the run and the task: names, ids, times. kfp.local: no"""
    text(value=dsl.PIPELINE_JOB_NAME_PLACEHOLDER)
    text(value=dsl.PIPELINE_JOB_RESOURCE_NAME_PLACEHOLDER)
    text(value=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
    text(value=dsl.PIPELINE_TASK_NAME_PLACEHOLDER)
    text(value=dsl.PIPELINE_JOB_CREATE_TIME_UTC_PLACEHOLDER)
    text(value=f"{name} {dsl.PIPELINE_TASK_NAME_PLACEHOLDER}")
    with dsl.ParallelFor([1], name="loop") as number:
        text(value=f"{number} {dsl.PIPELINE_TASK_NAME_PLACEHOLDER}")
