"""Line plots with logarithmic axes as SVG, with nothing but text."""

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 170, 40, 52
COLOURS = ("#d1495b", "#1f77b4", "#2a9d8f", "#e9a03b", "#7b5ea7", "#6b6b6b")


class Axis:
    """From a value to a place between `begin` and `end`."""

    def __init__(self, values: list[float], begin: float, end: float, base: float):
        self.low, self.high = min(values), max(values)
        if self.low == self.high:
            self.high = self.low * base
        self.begin, self.end, self.base = begin, end, base

    def place(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self, most: int) -> list[float]:
        """Powers of the base inside, at most so many."""
        first = math.ceil(math.log(self.low, self.base) - 1e-9)
        last = math.floor(math.log(self.high, self.base) + 1e-9)
        step = max(1, math.ceil((last - first + 1) / most))
        return [self.base**power for power in range(first, last + 1, step)]


def text(x: float, y: float, content: str, anchor: str = "middle", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = "#dddddd") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def plot(title: str, y_title: str, series: dict[str, list[tuple[int, float]]], size_text,
         y_ticks: list[float] | None = None) -> str:
    """A plot with logarithmic axes.

    Args:
      title: above the plot.
      y_title: beside the left axis.
      series: name to (bytes, value), values above 0.
      size_text: writes bytes at the lower axis.
      y_ticks: values with a line at the left axis, which has them all; without them powers of 10 have lines.
    """
    points = [point for each in series.values() for point in each]
    x_axis = Axis([x for x, _ in points], LEFT, WIDTH - RIGHT, 2)
    y_axis = Axis([y for _, y in points] + (y_ticks or []), HEIGHT - BOTTOM, TOP, 10)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" fill="#222222">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text((LEFT + WIDTH - RIGHT) / 2, 22, title, size=14),
    ]
    for tick in x_axis.ticks(10):
        x = x_axis.place(tick)
        parts += [line(x, TOP, x, HEIGHT - BOTTOM), text(x, HEIGHT - BOTTOM + 18, size_text(round(tick)))]
    for tick in y_ticks or y_axis.ticks(8):
        y = y_axis.place(tick)
        parts += [line(LEFT, y, WIDTH - RIGHT, y), text(LEFT - 8, y + 4, f"{tick:g}", "end")]
    parts += [
        line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#444444"),
        line(LEFT, TOP, LEFT, HEIGHT - BOTTOM, "#444444"),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "bytes"),
        f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" text-anchor="middle" '
        f'font-size="12">{escape(y_title)}</text>',
    ]
    for number, (name, each) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = " ".join(f"{x_axis.place(x):.1f},{y_axis.place(y):.1f}" for x, y in sorted(each))
        width = 2.5 if number == 0 else 1.4
        parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        y = TOP + 10 + 20 * number
        parts += [line(WIDTH - RIGHT + 12, y, WIDTH - RIGHT + 34, y, colour),
                  text(WIDTH - RIGHT + 40, y + 4, name, "start")]
    return "\n".join([*parts, "</svg>"]) + "\n"
