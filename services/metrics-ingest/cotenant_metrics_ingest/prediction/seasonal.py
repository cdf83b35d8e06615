"""Forecast of a peak by time of day and weekday, on top of the histogram.

In: one value a minute of each row (a node's services, say: the minute's peak), with its time. Out: the highest value expected
until a horizon, NaN for a row without history. Rows are numbered from 0, as those of `histogram`; values have the
unit of the buckets; times are seconds since the epoch, quarter hours and weekdays are those of UTC.

Kept: the peak of each quarter hour of the last seven days as a bucket's number, one byte: 7 x 96 bytes and one integer, 680
bytes a row, and never more. The end of the bucket stands for the value, so it is above it by at most one bucket (5 % with the
ratio 1.05). A week later the new peak replaces the old one.

    recent    = the highest of the newest quarter hour with a sample and the two before it
    usual(q)  = quantile of quarter hour q over the seven days before, each weighted by its age (half-life three days), four
                times for the same weekday, a quarter for a working day seen from a weekend and the other way round
    level     = today / median of the days before, over the four newest quarter hours, within 1/2 to 2
    forecast  = max(recent, level * max(usual(q) of the quarter hours from now to the horizon))

On its first day a row has no usual value: the forecast is its recent peak. A row that was silent for more than an hour has
no forecast. After a gap the quarter hours in it keep the week before; after more than a week nothing is kept. A sample that
is older than the newest one is left out; one older by more than a day means that the clock was set back, and continues from
there.

The horizon is how long reclaimed resources stay in use until they can be withdrawn. CPU: suppression does so within a
second, and the published amount is recomputed with every report (60 s) and kept at most `updateTimeThresholdSeconds` (300 s)
if it moves less than the dead band; so six minutes, the present quarter hour and mostly no other. A wrong forecast costs
batch some speed, no service its CPU. Memory is freed only by eviction: the grace period (30 s), the end of a container, and
the time until the next report; and a job that is evicted has lost its work, so that the memory should stay as long as a job
runs. An hour is the least that is worthwhile; all quarter hours up to it count.
"""

import math

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant_metrics_ingest.prediction.buckets import Buckets, Floats, Indices

QUARTER_SECONDS = 900
QUARTERS_A_DAY = 96
DAYS = 7
QUARTERS_A_WEEK = DAYS * QUARTERS_A_DAY
CPU_HORIZON_SECONDS = 360
MEMORY_HORIZON_SECONDS = 3600
RECENT_QUARTERS = 3
LEVEL_QUARTERS = 4
SILENT_QUARTERS = 4
MAX_CODES = 255

_AGE_WEIGHTS = (79.0, 63.0, 50.0, 40.0, 31.0, 25.0, 20.0)
"""100 times 2^(-days/3), for one to seven days."""
_SAME_WEEKDAY = 4.0
_OTHER_KIND_OF_DAY = 0.25
_EPOCH_WEEKDAY = 3
"""The first of January 1970 was a Thursday."""
_SATURDAY = 5
_LOWEST_LEVEL, _HIGHEST_LEVEL = 0.5, 2.0


_AGES: Indices = np.arange(1, DAYS + 1)


def _weights(weekday: int) -> list[float]:
    """The weight of one to seven days before such a day."""
    weekend = weekday >= _SATURDAY
    kinds = [1.0 if ((weekday - age) % DAYS >= _SATURDAY) == weekend else _OTHER_KIND_OF_DAY for age in _AGES.tolist()]
    same = [_SAME_WEEKDAY if age == DAYS else 1.0 for age in _AGES.tolist()]
    return [weight * kind * factor for weight, kind, factor in zip(_AGE_WEIGHTS, kinds, same, strict=True)]


_WEIGHTS: Floats = np.array([_weights(weekday) for weekday in range(DAYS)])


class SeasonalError(ValueError):
    """A checkpoint that cannot be loaded."""


class SeasonalCheckpoint(msgspec.Struct, frozen=True):
    """One row's state. `latest_quarter`: quarter hours since the epoch of the newest sample. `peaks`: by quarter hour of the
    week from Monday 00:00, the bucket's number plus one; 0: none."""

    latest_quarter: int
    peaks: bytes


class SeasonalProfiles:
    """Mutable: the quarter hours of a week of many rows."""

    def __init__(self, buckets: Buckets, rows: int = 0) -> None:
        if buckets.count > MAX_CODES:
            raise ValueError(f"{buckets.count} buckets do not fit a byte: at most {MAX_CODES}")
        self.buckets = buckets
        self._peaks: npt.NDArray[np.uint8] = np.zeros((rows, QUARTERS_A_WEEK), dtype=np.uint8)
        self._latest: Indices = np.full(rows, -1, dtype=np.int64)
        self._results: Floats = np.concatenate(([0.0], buckets.results))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._latest)

    def widen(self, rows: int) -> None:
        """Grow to at least this many rows."""
        more = rows - self.rows
        if more > 0:
            self._peaks = np.concatenate((self._peaks, np.zeros((more, QUARTERS_A_WEEK), dtype=np.uint8)))
            self._latest = np.concatenate((self._latest, np.full(more, -1, dtype=np.int64)))

    def keep(self, rows: Indices) -> None:
        """Drop all rows but these; they are numbered again from 0."""
        self._peaks, self._latest = self._peaks[rows], self._latest[rows]

    def add(self, rows: Indices, values: Floats, seconds: float) -> None:
        """Add one value to each of distinct rows; non-finite values are left out, negative ones count as 0."""
        quarter = quarter_of(seconds)
        latest = self._latest[rows]
        taken = np.isfinite(values) & ((quarter >= latest) | (latest - quarter > QUARTERS_A_DAY))
        rows, values, latest = rows[taken], np.maximum(values[taken], 0.0), latest[taken]
        self._peaks[rows[quarter - latest > QUARTERS_A_WEEK]] = 0
        slot = slot_of(quarter)
        codes = (self.buckets.find_all(values) + 1).astype(np.uint8)
        self._peaks[rows, slot] = np.where(latest == quarter, np.maximum(self._peaks[rows, slot], codes), codes)
        self._latest[rows] = quarter

    def clear(self, row: int) -> None:
        """Reset a row."""
        self._peaks[row], self._latest[row] = 0, -1

    def forecast(
        self,
        seconds: float,
        horizon_seconds: float = CPU_HORIZON_SECONDS,
        quantile: float = 0.95,
        rows: Indices | None = None,
    ) -> Floats:
        """The highest value of each of `rows` (all of them) expected until the horizon, float64 (rows,)."""
        rows = self._every() if rows is None else rows
        now, until = quarter_of(seconds), quarter_of(seconds + max(horizon_seconds, 0.0))
        ahead = np.arange(now, min(until, now + QUARTERS_A_DAY - 1) + 1)
        usual = np.fmax.reduce(self.usual(np.tile(ahead, (len(rows), 1)), quantile, rows), axis=1)
        expected = np.fmax(self.recent(rows), usual * self.level(rows))
        latest = self._latest[rows]
        silent = (latest < 0) | (abs(now - latest) > SILENT_QUARTERS)
        return np.where(silent, np.nan, expected)

    def _every(self) -> Indices:
        return np.arange(self.rows)

    def recent(self, rows: Indices | None = None) -> Floats:
        """The highest of each row's newest quarter hours; NaN without one."""
        codes = self._back(RECENT_QUARTERS, self._every() if rows is None else rows).max(axis=1, initial=0)
        return np.where(codes > 0, self._results[codes], np.nan)

    def usual(self, quarters: Indices, quantile: float, rows: Indices | None = None) -> Floats:
        """The quantile of quarter hours (rows, any number) over the seven days before each; NaN where there is none."""
        shape, rows = quarters.shape, np.repeat(self._every() if rows is None else rows, quarters.shape[1])
        asked = quarters.reshape(-1, 1)
        codes = self._peaks[rows[:, np.newaxis], (asked + (_EPOCH_WEEKDAY - _AGES) * QUARTERS_A_DAY) % QUARTERS_A_WEEK]
        replaced = (asked <= self._latest[rows, np.newaxis]) & (_AGES == DAYS)
        weekdays = (asked[:, 0] // QUARTERS_A_DAY + _EPOCH_WEEKDAY) % DAYS
        weights = np.where((codes > 0) & ~replaced, _WEIGHTS[weekdays], 0.0)
        each = np.arange(len(rows))
        order = np.argsort(codes, axis=1, kind="stable")
        reached = weights[each[:, np.newaxis], order].cumsum(axis=1)
        total = reached[:, -1]
        first = (reached >= quantile * total[:, np.newaxis]).argmax(axis=1)
        found = self._results[codes[each, order[each, first]]]
        return np.where(total > 0, found, np.nan).reshape(shape)

    def level(self, rows: Indices) -> Floats:
        """The recent level of each row relative to its usual median; 1 if there is none."""
        codes = self._back(LEVEL_QUARTERS, rows)
        medians = self.usual(self._latest[rows, np.newaxis] - np.arange(LEVEL_QUARTERS), 0.5, rows)
        both = np.isfinite(medians) & (codes > 0)
        today = np.where(both, self._results[codes], 0.0).sum(axis=1)
        usual = np.where(both, medians, 0.0).sum(axis=1)
        known = usual > 0
        return np.where(known, np.clip(today / np.where(known, usual, 1.0), _LOWEST_LEVEL, _HIGHEST_LEVEL), 1.0)

    def _back(self, quarters: int, rows: Indices) -> npt.NDArray[np.uint8]:
        """The codes of each row's newest quarter hour and those before it, (rows, quarters)."""
        latest = self._latest[rows, np.newaxis]
        slots = (latest - np.arange(quarters) + _EPOCH_WEEKDAY * QUARTERS_A_DAY) % QUARTERS_A_WEEK
        return np.where(latest < 0, 0, self._peaks[rows[:, np.newaxis], slots]).astype(np.uint8)

    def checkpoint(self, row: int) -> SeasonalCheckpoint:
        """A row's state: 672 bytes."""
        return SeasonalCheckpoint(int(self._latest[row]), self._peaks[row].tobytes())

    def load(self, row: int, checkpoint: SeasonalCheckpoint) -> None:
        """Replace a row's state. Raises SeasonalError, and leaves the row as it is."""
        if len(checkpoint.peaks) != QUARTERS_A_WEEK:
            raise SeasonalError(f"{len(checkpoint.peaks)} quarter hours: a week has {QUARTERS_A_WEEK}")
        if max(checkpoint.peaks) > self.buckets.count:
            raise SeasonalError(f"bucket {max(checkpoint.peaks) - 1} is beyond the last one, {self.buckets.count - 1}")
        self._latest[row] = max(checkpoint.latest_quarter, -1)
        self._peaks[row] = np.frombuffer(checkpoint.peaks, dtype=np.uint8)


def quarter_of(seconds: float) -> int:
    """Quarter hours since the epoch."""
    return math.floor(seconds / QUARTER_SECONDS)


def slot_of(quarter: int) -> int:
    """The quarter hour of the week, from Monday 00:00."""
    return (quarter + _EPOCH_WEEKDAY * QUARTERS_A_DAY) % QUARTERS_A_WEEK
