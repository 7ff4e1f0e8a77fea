"""Pure helpers that build inline SVG: shapes, scales and text alternatives; they know nothing about studies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, tostring

CHARACTER = 0.53  # mean width of a character over the font size, for a humanist or grotesque sans at normal weight


@dataclass(frozen=True)
class Scale:
    """A linear map from values in [low, high] to pixels in [left, right]; values outside are drawn at the edge."""

    low: float
    high: float
    left: float
    right: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        inside = min(max(value, self.low), self.high)
        return self.left + (inside - self.low) / (self.high - self.low) * (self.right - self.left)


def canvas(name: str, width: float, height: float, title: str, description: str, css: str = "") -> Element:
    """Return an empty figure whose title and description are its text alternative; `name` makes its ids unique."""
    name = re.sub(r"[^\w-]+", "-", name)
    attributes = {
        "viewBox": f"0 0 {px(width)} {px(height)}",
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-desc",
        "class": f"chart {css}".strip(),
        "preserveAspectRatio": "xMidYMin meet",
    }
    root = Element("svg", attributes)
    SubElement(root, "title", {"id": f"{name}-title"}).text = title
    SubElement(root, "desc", {"id": f"{name}-desc"}).text = description
    return root


def markup(root: Element) -> str:
    """Return the figure as text; every text in it is escaped by the serialiser."""
    return tostring(root, encoding="unicode")


def text(parent: Element, x: float, y: float, words: str, css: str = "", anchor: str = "start") -> None:
    """Write one line of text with its baseline at y."""
    attributes = {"x": px(x), "y": px(y), "class": css}
    if anchor != "start":
        attributes["text-anchor"] = anchor
    SubElement(parent, "text", attributes).text = words


def line(parent: Element, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
    """Draw a straight line."""
    SubElement(parent, "line", {"x1": px(x1), "y1": px(y1), "x2": px(x2), "y2": px(y2), "class": css})


def box(parent: Element, x: float, y: float, width: float, height: float, css: str, radius: float = 0) -> None:
    """Draw a rectangle; a negative width counts as none."""
    attributes = {"x": px(x), "y": px(y), "width": px(max(width, 0)), "height": px(height), "class": css}
    if radius:
        attributes["rx"] = px(radius)
    SubElement(parent, "rect", attributes)


def arrow(parent: Element, points: Sequence[tuple[float, float]], css: str) -> None:
    """Draw a path of straight pieces that ends in an arrow head."""
    path = "M" + " L".join(f"{px(x)} {px(y)}" for x, y in points)
    SubElement(parent, "path", {"d": path, "class": css})
    (x0, y0), (x, y) = points[-2:]
    down = abs(y - y0) > abs(x - x0)
    head = [(x, y), (x - 4, y - 6), (x + 4, y - 6)] if down else [(x, y), (x - 6, y - 4), (x - 6, y + 4)]
    SubElement(
        parent, "path", {"d": "M" + " L".join(f"{px(a)} {px(b)}" for a, b in head) + " Z", "class": f"{css} head"}
    )


def marker(parent: Element, shape: str, x: float, y: float, size: float, css: str) -> None:
    """Draw a circle, square, diamond, triangle or ring centred on (x, y)."""
    if shape in {"circle", "ring"}:
        SubElement(parent, "circle", {"cx": px(x), "cy": px(y), "r": px(size), "class": css})
        return
    corners = {
        "square": [(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)],
        "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
        "triangle": [(0, -1.2), (1.15, 0.9), (-1.15, 0.9)],
        "down": [(0, 1.2), (1.15, -0.9), (-1.15, -0.9)],
    }[shape]
    points = " ".join(f"{px(x + size * dx)},{px(y + size * dy)}" for dx, dy in corners)
    SubElement(parent, "polygon", {"points": points, "class": css})


def interval(parent: Element, x1: float, x2: float, y: float, css: str, cap: float = 3) -> None:
    """Draw a horizontal interval with end caps."""
    line(parent, x1, y, x2, y, css)
    for x in (x1, x2):
        line(parent, x, y - cap, x, y + cap, css)


def wrap(words: str, width: float, size: float) -> list[str]:
    """Break text into lines that fit `width` at a font size, by an estimate of the mean character width."""
    room, lines = max(int(width / (CHARACTER * size)), 1), [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".strip()
        if len(longer) <= room or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def ticks(low: float, high: float, step: float) -> Iterable[float]:
    """Yield the multiples of `step` from low to high."""
    first, last = round(low / step), round(high / step)
    return (step * n for n in range(first, last + 1))


def px(value: float) -> str:
    """Print a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")
