"""The shapes of a picture, in points from the top left corner, so that every format draws the same picture."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Circle", "Line", "Picture", "Rectangle", "Shape", "Text"]


class Line(NamedTuple):
    """A straight line; ``dash`` is the length of its dashes and gaps, 0 for a whole line."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    width: float = 1.0
    dash: float = 0.0


class Circle(NamedTuple):
    """A circle; ``fill`` and ``edge`` are colours, empty for none. ``opacity`` is 0 to 1 and holds for the fill."""

    x: float
    y: float
    radius: float
    fill: str = ""
    edge: str = ""
    width: float = 2.0
    opacity: float = 1.0


class Rectangle(NamedTuple):
    """A filled rectangle with round corners."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    radius: float = 0.0


class Text(NamedTuple):
    """A line of text on its baseline; ``anchor`` is ``start``, ``middle`` or ``end``. ``upright``: turned to read upwards."""

    x: float
    y: float
    text: str
    size: float
    colour: str = "#1f2933"
    anchor: str = "start"
    bold: bool = False
    upright: bool = False


Shape = Line | Circle | Rectangle | Text


class Picture(NamedTuple):
    """Shapes from the back to the front, on white. ``title`` is read to those who cannot see it."""

    width: int
    height: int
    title: str
    shapes: tuple[Shape, ...]
