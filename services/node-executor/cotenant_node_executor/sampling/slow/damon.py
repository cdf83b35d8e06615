"""DAMON: which ranges of physical memory were not accessed for five minutes. It monitors only: nothing is paged out or moved.

In: /sys/kernel/mm/damon/admin. Out: cold byte ranges. One kdamond watches all of System RAM (`paddr`): every second one page a
region, at most MOST_REGIONS; its one scheme (`stat`, which does nothing) selects regions that were not accessed for AGE
aggregations of AGGREGATION_US. Read through `update_schemes_tried_regions`, which takes up to APPLY_US: never from the main
thread.

Page cache that is read by system calls only, and mapped by nobody, looks cold to DAMON where the kernel's multi-generational
LRU is on (seen on 6.12): its pages are not marked as accessed then.

A foreign kdamond is not touched, running or not: DAMON has one list of them, which cannot be changed while
one runs. One with exactly these settings is adopted: a killed executor left it. At the end it is stopped and
removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cotenant_node_executor.sampling.slow.page_owners import Range
from cotenant_node_executor.sampling.slow.readings import Unavailable
from cotenant_node_executor.targets.cgroup.tree import read_file

SAMPLE_US, AGGREGATION_US, UPDATE_US, APPLY_US = 1_000_000, 20_000_000, 60_000_000, 5_000_000
AGE = 300_000_000 // AGGREGATION_US
LEAST_REGIONS, MOST_REGIONS = 10, 1000
FOREVER = 2**32 - 1
ANY_SIZE = 2**64 - 1
MOST_RANGES = 64
"""Ranges of System RAM; the largest ones are watched."""
_OPTIONAL = frozenset({"contexts/0/schemes/0/apply_interval_us"})
"""What older kernels lack."""


def settings(ranges: Sequence[Range]) -> Iterator[tuple[str, str]]:
    """Walk the files below a kdamond and their values, in the order in which they can be written."""
    context, scheme = "contexts/0", "contexts/0/schemes/0"
    yield "contexts/nr_contexts", "1"
    yield f"{context}/operations", "paddr"
    attributes = f"{context}/monitoring_attrs"
    yield f"{attributes}/intervals/sample_us", str(SAMPLE_US)
    yield f"{attributes}/intervals/aggr_us", str(AGGREGATION_US)
    yield f"{attributes}/intervals/update_us", str(UPDATE_US)
    yield f"{attributes}/nr_regions/min", str(LEAST_REGIONS)
    yield f"{attributes}/nr_regions/max", str(MOST_REGIONS)
    yield f"{context}/targets/nr_targets", "1"
    yield f"{context}/targets/0/regions/nr_regions", str(len(ranges))
    for index, (start, end) in enumerate(ranges):
        yield f"{context}/targets/0/regions/{index}/start", str(start)
        yield f"{context}/targets/0/regions/{index}/end", str(end)
    yield f"{context}/schemes/nr_schemes", "1"
    yield f"{scheme}/action", "stat"
    for what, least, most in (("sz", 0, ANY_SIZE), ("nr_accesses", 0, 0), ("age", AGE, FOREVER)):
        yield f"{scheme}/access_pattern/{what}/max", str(most)
        yield f"{scheme}/access_pattern/{what}/min", str(least)
    yield f"{scheme}/apply_interval_us", str(APPLY_US)


class Damon:
    """One kdamond from its start to its end. Raises Unavailable if none can be started."""

    def __init__(self, sys: Path, ranges: Sequence[Range]) -> None:
        self._all = sys / "kernel/mm/damon/admin/kdamonds"
        self._own = self._all / "0"
        largest = sorted(ranges, key=lambda each: each[0] - each[1])[:MOST_RANGES]
        self._settings = tuple(settings(sorted(largest)))
        self._begun = False
        present = (read_file(self._all / "nr_kdamonds") or "").strip()
        if not present.isdecimal():
            raise Unavailable("this kernel has no DAMON")
        if present != "0" and not (present == "1" and self._holds_settings()):
            state = (read_file(self._own / "state") or "").strip()
            raise Unavailable(f"DAMON belongs to another program: {present} kdamonds, the first is {state or 'unknown'}")
        try:
            self._begin(present == "0")
        except OSError as error:
            self.close()
            raise Unavailable(f"DAMON: {error}") from error

    def _holds_settings(self) -> bool:
        """Return whether the first kdamond has exactly this one's settings."""
        return all(
            (read_file(self._own / path) or "").strip() == value or (path in _OPTIONAL and not (self._own / path).exists())
            for path, value in self._settings
        )

    def _begin(self, new: bool) -> None:
        self._begun = True
        if new:
            (self._all / "nr_kdamonds").write_text("1")
            for path, value in self._settings:
                if path not in _OPTIONAL or (self._own / path).exists():
                    (self._own / path).write_text(value)
        if (read_file(self._own / "state") or "").strip() != "on":
            (self._own / "state").write_text("on")

    def cold_ranges(self) -> list[Range]:
        """Return the byte ranges that are cold now. Raises OSError where the kdamond has ended meanwhile."""
        (self._own / "state").write_text("update_schemes_tried_regions")
        folder = self._own / "contexts/0/schemes/0/tried_regions"
        found: list[Range] = []
        for region in sorted(folder.iterdir()):
            if region.name.isdecimal():
                start, end = ((read_file(region / name) or "").strip() for name in ("start", "end"))
                if start.isdecimal() and end.isdecimal() and int(end) > int(start):
                    found.append((int(start), int(end)))
        (self._own / "state").write_text("clear_schemes_tried_regions")
        return sorted(found)

    def close(self) -> None:
        """Stop and remove the kdamond."""
        if not self._begun:
            return
        self._begun = False
        for path, text in ((self._own / "state", "off"), (self._all / "nr_kdamonds", "0")):
            try:
                path.write_text(text)
            except OSError:
                continue  # it has ended by itself
