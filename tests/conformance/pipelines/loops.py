"""Loops: ParallelFor over every kind of items, and Collected."""

from typing import Dict, List

from components import add, items, kinds_of, listed, mapping, read, read_all, real, seen, text, total, whole, write
from kfp import dsl

__all__ = [
    "collected_artifacts",
    "collected_nested",
    "collected_parameters",
    "collected_with_skipped",
    "loop_in_loop",
    "loop_limit",
    "loop_over_artifacts",
    "loop_over_constants",
    "loop_over_fields",
    "loop_over_nothing",
    "loop_over_outputs",
    "loop_over_parameters",
    "loop_with_retries",
    "loop_with_tasks_that_follow",
]


@dsl.pipeline
def loop_over_constants():
    """ParallelFor over constants: whole numbers, numbers, texts, mappings. kfp.local: wrong (mappings are missing)"""
    with dsl.ParallelFor([1, 2, 30], name="wholes") as number:
        whole(value=number)
    with dsl.ParallelFor([0.5, 1.25], name="reals") as share:
        real(value=share)
    with dsl.ParallelFor(["it's", 'say "x"'], name="texts") as word:
        text(value=word)
    with dsl.ParallelFor([{"a": 1, "b": 10}, {"a": 2, "b": 20}], name="mappings") as each:
        mapping(value=each)
        whole(value=each.a)
        text(value=f"b{each.b}")


@dsl.pipeline
def loop_over_parameters(numbers: List[int], words: List[str] = ["a", "b"], anything: list = [1, "x"]):
    """ParallelFor over parameters of the pipeline, as arguments and by default. kfp.local: wrong (an item is missing)"""
    with dsl.ParallelFor(numbers, name="numbers") as number:
        whole(value=number)
    with dsl.ParallelFor(words, name="words") as word:
        text(value=f"{word}!")
    with dsl.ParallelFor(anything, name="anything") as each:
        text(value=each)


@dsl.pipeline
def loop_over_outputs():
    """ParallelFor over the output of a task; numbers in it stay numbers. kfp.local: wrong (fractions)"""
    made = items(value=[1, 20, 3000000000])
    with dsl.ParallelFor(made.output, name="loop") as number:
        whole(value=number)
    nested = items(value=[{"n": {"deep": [1, 2.5, True]}}])
    with dsl.ParallelFor(nested.output, name="mappings") as each:
        seen(value=each)


@dsl.pipeline
def loop_over_fields(rows: List[Dict] = [{"title": "a", "sizes": [1, 2]}, {"title": "b", "sizes": [3]}]):
    """ParallelFor over a field of the outer item, `item.field`. kfp.local: wrong (another list, or none)"""
    with dsl.ParallelFor(rows, name="rows") as row:
        text(value=row.title)
        with dsl.ParallelFor(row.sizes, name="sizes") as size:
            whole(value=size)
            text(value=f"{row.title}{size}")


@dsl.pipeline
def loop_in_loop():
    """Three nested loops; inner items never replace outer ones."""
    with dsl.ParallelFor([1, 2], name="a") as a:
        with dsl.ParallelFor([10, 20], name="b") as b:
            with dsl.ParallelFor([100], name="c") as c:
                add(a=add(a=a, b=b).output, b=c)


@dsl.pipeline
def loop_over_nothing(nothing: List[int] = []):
    """ParallelFor over an empty list: the loop succeeds, and Collected is empty. kfp.local: no"""
    with dsl.ParallelFor(nothing, name="loop") as number:
        one = whole(value=number)
    total(values=dsl.Collected(one.output))


@dsl.pipeline
def writing(values: List[str] = ["p", "q"]) -> List[dsl.Dataset]:
    with dsl.ParallelFor(values) as value:
        one = write(value=value)
    return dsl.Collected(one.outputs["out"])


@dsl.pipeline
def loop_over_artifacts():
    """ParallelFor over a list of artifacts."""
    with dsl.ParallelFor(writing().output, name="loop") as data:
        read(data=data)


@dsl.pipeline
def loop_limit():
    """ParallelFor with a parallelism limit. kfp.local: never more than two at a time"""
    with dsl.ParallelFor([1, 2, 3, 4, 5], parallelism=2, name="loop") as number:
        doubled = add(a=number, b=number)
        whole(value=doubled.output)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def flaky(value: int) -> int:
    import os

    if value == 2 and os.environ["SPOTWRIGHT_ATTEMPT"] == "1":
        raise RuntimeError("once")
    return value


@dsl.pipeline
def loop_with_retries():
    """Retries in a loop, only for the failed iteration. kfp.local: not compared"""
    with dsl.ParallelFor([1, 2, 3], name="loop") as number:
        flaky(value=number).set_retry(2, backoff_duration="0s")


@dsl.pipeline
def loop_with_tasks_that_follow(word: str = "w"):
    """Tasks in a loop that follow each other, and one that follows the loop."""
    with dsl.ParallelFor(["a", "b"], name="loop") as letter:
        first = text(value=f"{word}{letter}")
        second = text(value=f"{first.output}2")
    listed(value=dsl.Collected(second.output))


@dsl.pipeline
def collected_parameters() -> List[int]:
    """Collected of parameters in the order of the items, as an input and as an output. kfp.local: wrong (fractions)"""
    with dsl.ParallelFor([3, 1, 2]) as number:
        doubled = add(a=number, b=number)
    total(values=dsl.Collected(doubled.output))
    kinds_of(value=dsl.Collected(doubled.output))
    return dsl.Collected(doubled.output)


@dsl.pipeline
def collected_artifacts() -> List[dsl.Dataset]:
    """Collected of artifacts, as an input and as an output of the pipeline."""
    with dsl.ParallelFor(["x", "y", "z"]) as value:
        one = write(value=value)
    read_all(data=dsl.Collected(one.outputs["out"]))
    return dsl.Collected(one.outputs["out"])


@dsl.pipeline
def collected_nested():
    """Collected over loops in loops: parameters as lists of lists, artifacts as one list. kfp.local: no"""
    with dsl.ParallelFor([1, 2]) as a:
        with dsl.ParallelFor([10, 20, 30]) as b:
            one = add(a=a, b=b)
            made = write(value=f"{a}{b}")
        total(values=dsl.Collected(one.output))
    listed(value=dsl.Collected(one.output))
    read_all(data=dsl.Collected(made.outputs["out"]))


@dsl.pipeline
def collected_with_skipped():
    """Collected where some producers were skipped: the other outputs, in order. kfp.local: wrong"""
    with dsl.ParallelFor([1, 2, 3]) as number:
        with dsl.If(number != 2):
            kept = whole(value=number)
            made = write(value=f"{number}")
    listed(value=dsl.Collected(kept.output))
    read_all(data=dsl.Collected(made.outputs["out"]))
