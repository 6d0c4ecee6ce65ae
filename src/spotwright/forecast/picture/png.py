"""Writes a picture as PNG with Pillow: 1.5 pixels a point, drawn twice as large and then reduced, so that edges are smooth."""

from __future__ import annotations

import io
from typing import Any

from spotwright.errors import InputError
from spotwright.forecast.picture.shapes import Circle, Line, Picture, Rectangle, Shape, Text

__all__ = ["png"]

_PIXELS = 1.5  # a point
_LARGER = 2  # than the result, while it is drawn
_BOLD = 0.016  # of the size of a text: its strokes are that much thicker, because the font of Pillow has one weight


def png(picture: Picture) -> bytes:
    """The picture as a file. Raises :class:`InputError` where Pillow is missing."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise InputError(
            "a .png picture needs Pillow: pip install 'spotwright[picture]', or name a .svg file"
        ) from None
    size = round(picture.width * _PIXELS), round(picture.height * _PIXELS)
    canvas = _Canvas(Image.new("RGB", (size[0] * _LARGER, size[1] * _LARGER), "#ffffff"))
    for shape in picture.shapes:
        canvas.draw(shape)
    stream = io.BytesIO()
    canvas.image.resize(size, Image.Resampling.LANCZOS).save(stream, "PNG", optimize=True)
    return stream.getvalue()


class _Canvas:
    """An image on which shapes are drawn."""

    def __init__(self, image: Any) -> None:
        from PIL import ImageDraw

        self.image = image
        self._scale = _PIXELS * _LARGER
        self._draw = ImageDraw.Draw(image, "RGBA")  # colours with opacity are blended
        self._fonts: dict[float, Any] = {}

    def draw(self, shape: Shape) -> None:
        """Draw one shape."""
        if isinstance(shape, Line):
            self._line(shape)
        elif isinstance(shape, Circle):
            self._circle(shape)
        elif isinstance(shape, Rectangle):
            box = self._points(shape.x, shape.y, shape.x + shape.width, shape.y + shape.height)
            self._draw.rounded_rectangle(box, shape.radius * self._scale, fill=shape.fill)
        else:
            self._text(shape)

    def _points(self, *values: float) -> list[float]:
        return [value * self._scale for value in values]

    def _line(self, line: Line) -> None:
        width = max(1, round(line.width * self._scale))
        length = ((line.x2 - line.x1) ** 2 + (line.y2 - line.y1) ** 2) ** 0.5
        step = line.dash or length or 1.0
        at = 0.0
        while at < length:
            first, last = at / length, min(length, at + step) / length
            ends = (self._between(line, first), self._between(line, last))
            self._draw.line([*ends[0], *ends[1]], fill=line.colour, width=width)
            at += 2 * step if line.dash else length

    def _between(self, line: Line, share: float) -> list[float]:
        return self._points(line.x1 + (line.x2 - line.x1) * share, line.y1 + (line.y2 - line.y1) * share)

    def _circle(self, circle: Circle) -> None:
        x, y, radius = self._points(circle.x, circle.y, circle.radius)
        if circle.fill:
            fill = circle.fill + f"{round(circle.opacity * 255):02x}"
            self._draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=fill)
        if circle.edge:
            half = circle.width * self._scale / 2
            outer = radius + half
            box = [x - outer, y - outer, x + outer, y + outer]
            self._draw.ellipse(box, outline=circle.edge, width=max(1, round(2 * half)))

    def _text(self, text: Text) -> None:
        from PIL import Image, ImageDraw

        font = self._font(text.size)
        stroke = _BOLD * text.size * self._scale if text.bold else 0.0
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[text.anchor]
        place = text.x * self._scale, text.y * self._scale
        if not text.upright:
            self._draw.text(place, text.text, fill=text.colour, font=font, anchor=anchor, stroke_width=stroke)
            return
        long, high = round(font.getlength(text.text)) + 8, round(text.size * self._scale * 1.4)
        label = Image.new("RGBA", (long, high), (255, 255, 255, 0))
        ImageDraw.Draw(label).text(
            (long / 2, high * 0.75), text.text, fill=text.colour, font=font, anchor="ms", stroke_width=stroke
        )
        turned = label.rotate(90, expand=True)
        corner = round(place[0] - high * 0.75), round(place[1] - long / 2)
        self.image.paste(turned, corner, turned)

    def _font(self, size: float) -> Any:
        from PIL import ImageFont

        if size not in self._fonts:
            self._fonts[size] = ImageFont.load_default(size * self._scale)
        return self._fonts[size]
