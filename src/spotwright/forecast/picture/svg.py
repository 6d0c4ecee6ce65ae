"""Writes a picture as SVG 1.1: text, so that it can be compared, and edited in any drawing program."""

from __future__ import annotations

from html import escape

from spotwright.forecast.picture.shapes import Circle, Line, Picture, Rectangle, Shape

__all__ = ["svg"]

_FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"


def svg(picture: Picture) -> str:
    """The picture as a document."""
    width, height = picture.width, picture.height
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{escape(_FONT)}" role="img">',
        f"<title>{escape(picture.title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *map(_element, picture.shapes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _element(shape: Shape) -> str:
    if isinstance(shape, Line):
        dash = f' stroke-dasharray="{shape.dash:g}"' if shape.dash else ""
        return (
            f'<line x1="{shape.x1:.1f}" y1="{shape.y1:.1f}" x2="{shape.x2:.1f}" y2="{shape.y2:.1f}" '
            f'stroke="{shape.colour}" stroke-width="{shape.width:g}"{dash}/>'
        )
    if isinstance(shape, Circle):
        opacity = f' fill-opacity="{shape.opacity:g}"' if shape.fill and shape.opacity < 1 else ""
        edge = f' stroke="{shape.edge}" stroke-width="{shape.width:g}"' if shape.edge else ""
        fill = shape.fill or "none"
        return f'<circle cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius:g}" fill="{fill}"{opacity}{edge}/>'
    if isinstance(shape, Rectangle):
        return (
            f'<rect x="{shape.x:.1f}" y="{shape.y:.1f}" width="{shape.width:.1f}" height="{shape.height:.1f}" '
            f'rx="{shape.radius:g}" fill="{shape.fill}"/>'
        )
    bold = ' font-weight="bold"' if shape.bold else ""
    turned = f' transform="rotate(-90 {shape.x:.1f} {shape.y:.1f})"' if shape.upright else ""
    return (
        f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{shape.size:g}" fill="{shape.colour}" '
        f'text-anchor="{shape.anchor}"{bold}{turned}>{escape(shape.text)}</text>'
    )
