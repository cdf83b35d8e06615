"""Utilisation over time as a chart for the terminal.

In: a named series of (moment, percent), a width and a height. Out: lines of block characters, eight steps to a
character. Each column shows the time-weighted mean of its stretch of time, for a value holds until the next one;
the axis ends at a round number above the highest column, so that a nearly empty cluster is readable too.
"""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
TOPS = (1, 2, 5, 10, 20, 25, 50, 75, 100, 150, 200, 500, 1000)


def column_means(points: Sequence[tuple[float, float]], begin: float, end: float, columns: int) -> list[float]:
    """The time-weighted mean of each column; before the first point the value is zero."""
    if end <= begin or columns < 1:
        return [0.0] * max(columns, 0)
    width = (end - begin) / columns
    sums = [0.0] * columns
    for index, (at, value) in enumerate(points):
        until = points[index + 1][0] if index + 1 < len(points) else end
        left, right = max(at, begin), min(until, end)
        if right <= left:
            continue
        first, last = int((left - begin) / width), min(int((right - begin) / width), columns - 1)
        for column in range(first, last + 1):
            low, high = begin + column * width, begin + (column + 1) * width
            sums[column] += value * max(0.0, min(right, high) - max(left, low))
    return [total / width for total in sums]


def axis_top(highest: float) -> int:
    """The round number at the top of the axis."""
    return next((top for top in TOPS if highest <= top), TOPS[-1])


def chart_lines(
    title: str, points: Sequence[tuple[float, float]], begin: float, end: float, width: int = 72, height: int = 6
) -> list[str]:
    """The chart with its title, axis and the first and last moment in days."""
    means = column_means(points, begin, end, width)
    highest = max(means, default=0.0)
    top = axis_top(highest)
    peak = max((value for _, value in points), default=0.0)
    lines = [f"{title}  (highest mean of a column {highest:.1f} %, highest moment {peak:.1f} %)"]
    for row in range(height - 1, -1, -1):
        label = f"{top * (row + 1) / height:5.1f} %" if row in (height - 1, 0) else " " * 7
        cells = "".join(_block(mean / top * height - row) for mean in means)
        lines.append(f"{label} |{cells}".rstrip())
    lines.append(f"{'':7} +{'-' * width}")
    last = span(end - begin)
    lines.append(f"{'':7}  0{last:>{max(width - 1, 1)}}")
    return lines


def _block(part: float) -> str:
    """The character that fills a cell to this part (below 0 empty, above 1 full)."""
    return BLOCKS[max(0, min(8, round(part * 8)))]


def span(seconds: float) -> str:
    """A span of time in its largest fitting unit."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
