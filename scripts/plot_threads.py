#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws docs/pictures/threads.svg from what `rmsnorm bench --threads all --json` wrote.

usage: plot_threads.py threads.json > threads.svg

A column of charts for each shape: above, the speed as a share of the fastest copy on as many threads; below, how many times as
fast as one thread. A curve for each direction and type. Colours follow the reader's light or dark mode, as in the lab's page.
"""
import json
import math
import sys
from html import escape

STYLE = """
svg{--ground:#fff;--ink:#1d2127;--soft:#5c6470;--line:#dcdfe4;--a:#0067b8;--b:#00845c;--c:#cf5a00;--d:#a3468c}
@media (prefers-color-scheme:dark){svg{--ground:#1b1f25;--ink:#e6e8eb;--soft:#9aa3af;--line:#343a43;--a:#5db4ff;--b:#3fd0a0;
--c:#ff9a4d;--d:#e08acb}}
text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:var(--soft)}
.title{font-weight:600;fill:var(--ink);text-anchor:middle}.x{text-anchor:middle}.y{text-anchor:end}
.ground{fill:var(--ground)}.grid{stroke:var(--line);stroke-width:.7}.axis{stroke:var(--soft);fill:none}
.one{stroke:var(--soft);stroke-dasharray:4 3}.curve{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
.dot{fill:currentColor}.key{fill:var(--ink)}
.s0{color:var(--a)}.s1{color:var(--b)}.s2{color:var(--c)}.s3{color:var(--d)}
.s1 .curve{stroke-dasharray:7 3}.s2 .curve{stroke-dasharray:2 3}.s3 .curve{stroke-dasharray:9 3 2 3}
"""

SERIES = [("fwd", "f32", "forward f32"), ("fwd", "bf16", "forward bf16"), ("bwd", "f32", "backward f32"),
          ("bwd", "bf16", "backward bf16")]
WIDTH, HEIGHT, LEFT, TOP, GAP = 230, 170, 58, 62, 40


def read(path):
    """{(shape, direction, type): [(threads, share of the copy, ns), ...]}, and the document's title."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    curves = {}
    for problem in document["problems"]:
        _, direction, dtype, shape = problem["problem"].split(":")[:4]
        curves[shape, direction, dtype] = [(t["threads"], t["of_ceiling"], t["ns_per_call"]) for t in problem["threads"]]
    return curves, f'rmsnorm {document["version"]}, {document["cpu"]}, {document["instruction_set"]}'


class Chart:
    """One chart: threads from left to right, doubling; values from 0 up, or doubling as well."""

    def __init__(self, left, top, counts, most, doubling):
        self.left, self.top, self.counts, self.most, self.doubling = left, top, counts, most, doubling

    def x(self, threads):
        return self.left + WIDTH * (math.log2(threads / self.counts[0]) / max(1e-9, math.log2(self.counts[-1] / self.counts[0])))

    def y(self, value):
        part = math.log2(max(value, 0.5) / 0.5) / math.log2(self.most / 0.5) if self.doubling else value / self.most
        return self.top + HEIGHT * (1 - part)

    def ticks(self):
        if self.doubling:
            return [2.0**i for i in range(-1, int(math.log2(self.most)) + 1)]
        return [i / 4 for i in range(int(self.most * 4) + 1)]

    def frame(self):
        for value in self.ticks():
            y = self.y(value)
            yield f'<path class="grid" d="M{self.left} {y:.1f}h{WIDTH}"/>'
            yield f'<text class="y" x="{self.left - 6}" y="{y + 4:.1f}">{value:g}</text>'
        for count in self.counts:
            yield f'<text class="x" x="{self.x(count):.1f}" y="{self.top + HEIGHT + 16}">{count}</text>'
        yield f'<path class="axis" d="M{self.left} {self.top}v{HEIGHT}h{WIDTH}"/>'
        yield f'<path class="one" d="M{self.left} {self.y(1):.1f}h{WIDTH}"/>'

    def curve(self, number, points):
        at = [(self.x(t), self.y(v)) for t, v in points]
        yield f'<g class="s{number}"><path class="curve" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in at) + '"/>'
        yield "".join(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in at) + "</g>"


def draw(curves, title):
    shapes = list(dict.fromkeys(shape for shape, _, _ in curves))
    counts = [t for t, _, _ in next(iter(curves.values()))]
    share = math.ceil(4 * max(s for points in curves.values() for _, s, _ in points)) / 4
    faster = 2 ** math.ceil(math.log2(max(points[0][2] / ns for points in curves.values() for _, _, ns in points)))
    width, height = LEFT + len(shapes) * (WIDTH + GAP), TOP + 2 * (HEIGHT + 46) + 34
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
    yield f"<title>Speed over numbers of threads: {escape(title)}</title><style>{STYLE}</style>"
    yield f'<rect class="ground" width="{width}" height="{height}"/>'
    yield f'<text class="title" x="{width / 2}" y="20">{escape(title)}</text>'
    for row, name in enumerate(("share of the copy", "times as fast as one thread")):
        y = TOP + row * (HEIGHT + 46)
        yield f'<text class="x" transform="translate(14 {y + HEIGHT / 2}) rotate(-90)">{name}</text>'
    for column, shape in enumerate(shapes):
        left = LEFT + column * (WIDTH + GAP)
        above = Chart(left, TOP, counts, share, False)
        below = Chart(left, TOP + HEIGHT + 46, counts, faster, True)
        yield f'<text class="title" x="{left + WIDTH / 2}" y="{TOP - 14}">{escape(shape.replace("x", "×"))}</text>'
        yield from above.frame()
        yield from below.frame()
        yield f'<text class="x" x="{left + WIDTH / 2}" y="{below.top + HEIGHT + 32}">threads</text>'
        for number, (direction, dtype, _) in enumerate(SERIES):
            points = curves.get((shape, direction, dtype))
            if points:
                yield from above.curve(number, [(t, s) for t, s, _ in points])
                yield from below.curve(number, [(t, points[0][2] / ns) for t, _, ns in points])
    for number, (_, _, name) in enumerate(SERIES):
        x, y = LEFT + number * 150, height - 10
        yield f'<g class="s{number}"><path class="curve" d="M{x} {y - 4}h26"/></g><text class="key" x="{x + 32}" y="{y}">{name}</text>'
    yield "</svg>"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: plot_threads.py threads.json > threads.svg")
    print("\n".join(draw(*read(sys.argv[1]))))


main()
