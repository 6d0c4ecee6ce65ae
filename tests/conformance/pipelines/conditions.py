"""Conditions: If, Elif, Else, OneOf, and skipped tasks."""

from components import add, read, real, text, truth, whole, write
from kfp import dsl

__all__ = [
    "comparisons",
    "conditions_nested",
    "elif_chain",
    "one_of_artifacts",
    "one_of_parameters",
    "quoted_texts",
]


@dsl.pipeline
def comparisons(number: int = 3, size: float = 2.5, flag: bool = True, name: str = "b"):
    """If: every comparison, of whole numbers, numbers, texts and truth values; values of the pipeline and of tasks."""
    given = whole(value=number)
    with dsl.If(number == 3):
        text(value="equal")
    with dsl.If(number != 3):
        text(value="different")
    with dsl.If(given.output >= 3):
        text(value="at least")
    with dsl.If(given.output < number):
        text(value="less")
    with dsl.If(size > 2.4):
        text(value="greater")
    with dsl.If(size <= 2):
        text(value="at most")
    with dsl.If(flag == True):  # noqa: E712 (a condition of a pipeline is written so)
        text(value="true")
    with dsl.If(truth(value=flag).output == False):  # noqa: E712
        text(value="false")
    with dsl.If(name < "c"):
        text(value="before c")
    with dsl.If(real(value=size).output == number):
        text(value="two kinds of number")


@dsl.pipeline
def quoted_texts(a: str = "it's", b: str = "say \"x\" && 'y'", c: str = "back\\slash"):
    """If: texts with quotes, signs and backslashes in them. kfp.local: wrong (both branches are skipped)"""
    with dsl.If(a == "it's"):
        text(value="a")
    with dsl.Else():
        text(value="not a")
    with dsl.If(b == "say \"x\" && 'y'"):
        text(value="b")
    with dsl.Else():
        text(value="not b")
    with dsl.If(c != "back\\slash"):
        text(value="not c")
    with dsl.Elif(text(value=a).output == a):
        text(value="c")


@dsl.pipeline
def elif_chain(value: int = 2) -> str:
    """Elif and Else: only the first branch whose condition holds."""
    with dsl.If(value == 1):
        first = text(value="first")
    with dsl.Elif(value == 2):
        second = text(value="second")
    with dsl.Elif(value > 1):
        third = text(value="third")
    with dsl.Else():
        last = text(value="last")
    return text(value=dsl.OneOf(first.output, second.output, third.output, last.output)).output


@dsl.pipeline
def one_of_parameters(flag: bool = False) -> int:
    """OneOf of parameters, as an input and as an output of the pipeline."""
    with dsl.If(flag == True):  # noqa: E712
        yes = whole(value=1)
    with dsl.Else():
        no = whole(value=2)
    either = dsl.OneOf(yes.output, no.output)
    add(a=either, b=40)
    return either


@dsl.pipeline
def one_of_artifacts(flag: bool = True) -> dsl.Dataset:
    """OneOf of artifacts, as an input and as an output of the pipeline. kfp.local: no"""
    with dsl.If(flag == True):  # noqa: E712
        yes = write(value="yes")
    with dsl.Else():
        no = write(value="no")
    either = dsl.OneOf(yes.outputs["out"], no.outputs["out"])
    read(data=either)
    return either


@dsl.pipeline
def conditions_nested(values: list = [1, 2, 3]):
    """Conditions in loops, loops in conditions, conditions in conditions. kfp.local: wrong (items as text)"""
    with dsl.ParallelFor(values) as value:
        with dsl.If(value == "2"):
            text(value=f"two {value}")
    with dsl.If(whole(value=1).output == 1):
        with dsl.ParallelFor(["x", "y"]) as letter:
            with dsl.If(letter == "y"):
                text(value=letter)
        with dsl.If(whole(value=2).output == 1):
            text(value="never")
