"""Counts of a conformance run, by page and group."""

from __future__ import annotations

COLUMNS = ("passed", "failed", "mended", "missing")
COUNTS: dict[str, dict[str, int]] = {}


def count(page: str, group: str, outcome: str) -> None:
    """Count one vector."""
    row = COUNTS.setdefault(f"{page}/{group}", dict.fromkeys(COLUMNS, 0))
    row[outcome] += 1


def table() -> list[str]:
    """Return the closing table."""
    width = max((len(name) for name in COUNTS), default=10)
    lines = [f"{'group':<{width}}  {'passed':>6}  {'failed':>6}  {'mended':>6}  {'no adapter':>10}"]
    total = dict.fromkeys(COLUMNS, 0)
    for name, row in sorted(COUNTS.items()):
        lines.append(_row(name, row, width))
        for column in COLUMNS:
            total[column] += row[column]
    return [*lines, _row("total", total, width)]


def _row(name: str, row: dict[str, int], width: int) -> str:
    return f"{name:<{width}}  {row['passed']:>6}  {row['failed']:>6}  {row['mended']:>6}  {row['missing']:>10}"
