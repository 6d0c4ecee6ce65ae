"""A pipeline file whose tasks wait: what is killed and resumed."""

from kfp import dsl


@dsl.component
def rest(seconds: float) -> None:
    """Sleep."""
    import time

    time.sleep(seconds)


@dsl.pipeline
def waiting(seconds: float) -> None:
    """Four tasks at once that sleep as long as is wanted."""
    for _ in range(4):
        rest(seconds=seconds)
