"""Idle pages by control group, as the Anolis kernel's kidled reports them.

In: the text of `memory.idle_page_stats`. Out: cold bytes. Rule (koordlet): file pages, evictable or not, on inactive lists,
that were idle for at least 60 scans; with a scan every 5 s that is five minutes. Rows are named by four letters: clean/dirty,
swap/file, evictable/unevictable, inactive/active. A number that cannot be read counts as 0; another number of lines raises
ValueError.
"""

from __future__ import annotations

import msgspec

IDLE_STATS = "memory.idle_page_stats"
COLD_FROM_BUCKET = 5
_LINES, _FIRST_ROW, _BUCKETS = 31, 14, 8
_NO_BUCKETS = ("0",) * _BUCKETS
_COLD_ROWS = ("cfei", "dfei", "cfui", "dfui")


class IdlePageStats(msgspec.Struct, frozen=True):
    """One group's file. ``rows``: bytes by name and bucket; ``buckets``: the least idle scans of each."""

    version: str
    page_scans: int
    slab_scans: int
    scan_period_in_seconds: int
    use_hierarchy: int
    buckets: tuple[int, ...]
    rows: dict[str, tuple[int, ...]]

    @property
    def cold_bytes(self) -> int:
        """File pages that were idle for long."""
        return sum(sum(self.rows.get(row, ())[COLD_FROM_BUCKET:]) for row in _COLD_ROWS)


def _number(word: str) -> int:
    return int(word) if word.isascii() and word.isdecimal() else 0


def parse_idle_page_stats(content: str) -> IdlePageStats:
    """Parse one group's file."""
    lines = [line.strip() for line in content.strip().split("\n")]
    if len(lines) != _LINES:
        raise ValueError(f"{IDLE_STATS}: {len(lines)} lines, expected {_LINES}")

    def column(index: int) -> str:
        return lines[index].partition(":")[2].strip()

    rows = {words[0]: words[1:] for line in lines[_FIRST_ROW:] if (words := line.split())}
    return IdlePageStats(
        version=column(0),
        page_scans=_number(column(1)),
        slab_scans=_number(column(2)),
        scan_period_in_seconds=_number(column(3)),
        use_hierarchy=_number(column(4)),
        buckets=tuple(_number(word.strip()) for word in column(5).split(",")),
        rows={name: tuple(_number(word) for word in [*words, *_NO_BUCKETS][:_BUCKETS]) for name, words in rows.items()},
    )


def hot_bytes(with_page_cache: int, cold: int) -> int:
    """Return memory in use or used recently. Cold memory above the total is a race of two reads and gives 0."""
    return max(with_page_cache - cold, 0)


def is_supported(scan_period_file: bool, use_hierarchy_file: bool) -> bool:
    """Return whether the kernel has kidled: both of its switches."""
    return scan_period_file and use_hierarchy_file
