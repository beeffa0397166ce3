"""A figure as SVG: panels beside each other, a line for each peer over steps of loss, times on a log scale."""

import math
from html import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 190, 170, 44, 30, 34
# Okabe and Ito's colours, told apart by everyone; ours is the heavy line.
COLORS = ("#000000", "#7f7f7f", "#cc79a7", "#d55e00", "#e69f00", "#009e73", "#0072b2", "#56b4e9")


def ticks(low, high):
    """1, 2, 5 times powers of ten within the range."""
    return [
        digit * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for digit in (1, 2, 5)
        if low <= digit * 10.0**power <= high * 1.0001
    ]


def panels(title, across, steps, drawn):
    """`drawn`: [(heading, {name: [value or None for each step]})]."""
    values = [value for _, series in drawn for line in series.values() for value in line if value]
    low, high = min(values) * 0.9, max(values) * 1.1
    names = list(dict.fromkeys(name for _, series in drawn for name in series))
    total_width = LEFT + len(drawn) * (WIDTH + 12) + 110
    total_height = TOP + HEIGHT + BOTTOM
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_width}" height="{total_height}" '
        f'viewBox="0 0 {total_width} {total_height}" font-family="Helvetica, Arial, sans-serif" font-size="9" fill="none">',
        f'<rect width="{total_width}" height="{total_height}" fill="#ffffff"/>',
        words(LEFT, 11, f"{title}", "start", 10),
    ]
    y = lambda value: TOP + HEIGHT * (1 - math.log(value / low) / math.log(high / low))
    for index, (heading, series) in enumerate(drawn):
        left = LEFT + index * (WIDTH + 12)
        x = lambda step: left + 12 + step * (WIDTH - 24) / max(1, len(steps) - 1)
        out.append(words(left + WIDTH / 2, TOP - 6, heading, "middle"))
        for tick in ticks(low, high):
            out.append(line([(left, y(tick)), (left + WIDTH, y(tick))], "#e2e2e2", 0.7))
            if index == 0:
                out.append(words(left - 4, y(tick) + 3, f"{tick:g}", "end"))
        out.append(f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" stroke="#222222" stroke-width="0.7"/>')
        for step, label in enumerate(steps):
            out.append(words(x(step), TOP + HEIGHT + 12, label, "middle"))
        out.append(words(left + WIDTH / 2, TOP + HEIGHT + 26, across, "middle"))
        for name, row in series.items():
            color = COLORS[names.index(name) % len(COLORS)]
            points = [(x(step), y(value)) for step, value in enumerate(row) if value]
            out.append(line(points, color, 2.2 if name == "dfcp" else 1.1))
            out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2" fill="{color}"/>' for px, py in points]
    for index, name in enumerate(names):
        left, top = LEFT + len(drawn) * (WIDTH + 12) + 4, TOP + 8 + index * 14
        out.append(line([(left, top), (left + 16, top)], COLORS[index % len(COLORS)], 2.2 if name == "dfcp" else 1.1))
        out.append(words(left + 20, top + 3, name, "start"))
    return "\n".join(out) + "\n</svg>\n"


def line(points, color, width):
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{places}" stroke="{color}" stroke-width="{width}"/>'


def words(x, y, text, anchor, size=9):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="#222222">{escape(text)}</text>'
