"""A pipeline file with one pipeline: what ``spotwright run`` compiles in a process of its own."""

from kfp import dsl


@dsl.component
def noop(number: int) -> int:
    """Give back what it is given."""
    return number


@dsl.pipeline
def small() -> None:
    """Five tasks, one after the other."""
    last = noop(number=0)
    for _ in range(4):
        last = noop(number=last.output)
