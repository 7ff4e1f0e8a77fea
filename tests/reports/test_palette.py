"""Contrast of the colours, computed by the formula of WCAG 2 from the style sheet itself."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

CSS = (files("reports.html") / "templates" / "report.css").read_text(encoding="utf-8")
TEXT = ("ink", "muted", "accent", "win", "lose", "published", "simulated")
GROUNDS = ("paper", "ground", "tint")
MARKS = ("svdd", "least-dense", "density", "recency", "random", "bar", "bar-event")


def palette(start: str) -> dict[str, str]:
    block = CSS[CSS.index(start) :].split("}", 1)[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


LIGHT = palette(":root {")
DARK = LIGHT | palette("@media (prefers-color-scheme: dark)")
PRINT = LIGHT | palette("@media print")


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_formula_gives_the_known_extremes() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("name", ["LIGHT", "DARK", "PRINT"])
def test_text_has_a_contrast_of_at_least_four_and_a_half(name: str) -> None:
    colours = globals()[name]
    pairs = [(text, ground) for text in TEXT for ground in GROUNDS]
    pairs += [("lose", "lose-tint"), ("ink", "lose-tint"), ("muted", "lose-tint")]
    pairs += [(text, ground) for text in ("ink", "muted", "simulated") for ground in ("simulated-tint", "stripe")]
    low = {pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2) for pair in pairs}
    assert {pair: value for pair, value in low.items() if value < 4.5} == {}


@pytest.mark.parametrize("name", ["LIGHT", "DARK", "PRINT"])
def test_marks_have_a_contrast_of_at_least_three_on_paper(name: str) -> None:
    colours = globals()[name]
    low = {mark: round(contrast(colours[mark], colours["paper"]), 2) for mark in MARKS}
    assert {mark: value for mark, value in low.items() if value < 3} == {}


@pytest.mark.parametrize("name", ["LIGHT", "DARK", "PRINT"])
def test_charted_and_filled_parts_of_a_bar_can_be_told_apart(name: str) -> None:
    colours = globals()[name]
    assert contrast(colours["bar"], colours["bar-filled"]) >= 3
    assert contrast(colours["bar-event"], colours["bar-event-filled"]) >= 3


def test_no_colour_is_written_outside_the_palettes() -> None:
    rules = re.sub(r"--[\w-]+: #[0-9a-f]{6};", "", CSS)
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[^{]*;)", rules) == ["#000000"]  # the rule above a printed heading


def test_every_variable_that_is_used_is_defined() -> None:
    assert set(re.findall(r"var\(--([\w-]+)\)", CSS)) - {"c"} <= set(LIGHT)
