"""Draws the ratios as SVG: a panel for each pass, a row for each shape, a dot for each implementation.

The axis is logarithmic, so that twice as fast and twice as slow are equally far from the line at 1. A dot's whisker
reaches from the first to the third quartile of the implementation's time over fa2's median.
"""

import math
from html import escape
from typing import Any, List, Sequence

_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#a463f2", "#9c6b4e", "#97bbf5", "#3ca951")
_ROW, _LABELS, _PANEL, _GAP, _TOP = 15, 250, 300, 24, 62
_TICKS = (0.25, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)


def _text(x: float, y: float, text: str, anchor: str = "start", style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


class _Panel:
    def __init__(self, left: float, bottom: float, least: float, most: float):
        self.left, self.bottom = left, bottom
        self.least, self.span = math.log(least), math.log(most / least)

    def x(self, ratio: float) -> float:
        share = (math.log(ratio) - self.least) / self.span
        return self.left + _PANEL * min(1.0, max(0.0, share))

    def frame(self, title: str) -> List[str]:
        shapes = [_text(self.left, _TOP - 22, title, style=' font-weight="bold"')]
        for tick in _TICKS:
            if self.least <= math.log(tick) <= self.least + self.span:
                x = self.x(tick)
                shapes += [_line(x, _TOP - 4, x, self.bottom, "#333" if tick == 1 else "#ddd"),
                           _text(x, _TOP - 8, f"{tick:g}", "middle")]
        return shapes

    def dot(self, y: float, result: Any, name: str, colour: str) -> List[str]:
        times, own = result.times[name], result.times["fa2"].median
        low, middle, high = (self.x(value / own) for value in (times.q1, times.median, times.q3))
        tip = f"{result.shape} {result.which}: {name} {times.median:.1f} us, fa2 {own:.1f} us"
        return [_line(low, y, high, y, colour),
                f'<circle cx="{middle:.1f}" cy="{y:.1f}" r="4" fill="{colour}" fill-opacity="0.8">'
                f"<title>{escape(tip)}</title></circle>"]


def _label(shape: Any) -> str:
    batch, heads, length, width, dtype, masks = shape.cells()
    return " ".join(filter(None, (f"B{batch} H{heads} S{length} D{width}", dtype, masks)))


def svg(results: Sequence[Any], others: Sequence[str], title: str) -> str:
    """Returns the picture. Shapes without a time of fa2 are left out; the others keep their order."""
    results = [result for result in results if "fa2" in result.times]
    shapes = list(dict.fromkeys(result.shape for result in results))
    passes = list(dict.fromkeys(result.which for result in results))
    drawn = [name for name in others if any(result.ratio(name) for result in results)]
    ratios = [result.ratio(name) for result in results for name in drawn if result.ratio(name)]
    least, most = min([0.7, *ratios]) / 1.1, max([1.5, *ratios]) * 1.1
    bottom = _TOP + _ROW * len(shapes) + 4
    width, height = _LABELS + len(passes) * (_PANEL + _GAP), bottom + 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
             f'font-size="11">', f'<rect width="{width}" height="{height}" fill="white"/>', _text(8, 18, title)]
    rows = {shape: _TOP + _ROW * i + _ROW / 2 for i, shape in enumerate(shapes)}
    parts += [_text(_LABELS - 10, y + 4, _label(shape), "end") for shape, y in rows.items()]
    for i, which in enumerate(passes):
        panel = _Panel(_LABELS + i * (_PANEL + _GAP), bottom, least, most)
        parts += panel.frame(f"{which}: time of … / time of fa2")
        for result in results:
            if result.which == which:
                for name in drawn:
                    if result.ratio(name):
                        colour = _COLOURS[drawn.index(name) % len(_COLOURS)]
                        parts += panel.dot(rows[result.shape], result, name, colour)
    for i, name in enumerate(drawn):
        x = _LABELS + 110 * i
        parts += [f'<circle cx="{x}" cy="{bottom + 15}" r="4" fill="{_COLOURS[i % len(_COLOURS)]}"/>',
                  _text(x + 9, bottom + 19, name)]
    return "\n".join([*parts, "</svg>"]) + "\n"
