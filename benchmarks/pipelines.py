"""The pipelines that are measured, as a user would write them: the same source runs here and under ``kfp.local``.

Components are KFP's default ones, so their compiled command installs the SDK first. Static tasks only: what all runners can do.
"""

import os

from kfp import dsl

WHEEL = os.environ.get(
    "BENCHMARK_WHEEL", "benchmark_tiny"
)  # a wheel that the benchmark has written: no network is needed


@dsl.component
def noop(number: int) -> int:
    """Give back what it is given."""
    return number


@dsl.component(packages_to_install=[WHEEL])
def packaged(number: int) -> int:
    """The same with a package to install."""
    import benchmark_tiny

    return benchmark_tiny.same(number)


@dsl.component
def rest(seconds: float) -> None:
    """Sleep."""
    import time

    time.sleep(seconds)


@dsl.pipeline
def chain() -> None:
    """Five tasks, one after the other."""
    last = noop(number=0)
    for _ in range(4):
        last = noop(number=last.output)


@dsl.pipeline
def packaged_chain() -> None:
    """Five tasks that need a package, one after the other."""
    last = packaged(number=0)
    for _ in range(4):
        last = packaged(number=last.output)


@dsl.pipeline
def independent() -> None:
    """Twenty tasks at once."""
    for number in range(20):
        noop(number=number)


@dsl.pipeline
def sleeping() -> None:
    """Twenty tasks at once that sleep a second."""
    for _ in range(20):
        rest(seconds=1.0)


@dsl.pipeline
def looping() -> None:
    """A loop over two numbers, which the benchmark makes longer."""
    with dsl.ParallelFor([0, 1], name="loop") as number:
        noop(number=number)


@dsl.pipeline
def waiting(seconds: float) -> None:
    """Four tasks at once that sleep as long as is wanted."""
    for _ in range(4):
        rest(seconds=seconds)
