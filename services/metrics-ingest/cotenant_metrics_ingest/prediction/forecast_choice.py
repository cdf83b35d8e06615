"""Chooses between the forecast by time of day and the histogram's: the one that has reclaimed more at the same risk.

In: for each row and quarter hour both forecasts, made when it began, and the actual peak. Out: the forecast to use, and the
figures of `Accuracy`, which an event can carry.

    error      forecast - peak of a quarter hour: above 0 it withheld unused CPU, below 0 services used reclaimed CPU
    excess     mean error of the last two hours, at least 0
    shortfall  by how much the forecast was too low in all but 1 in 20 of the last quarter hours, up to a day; at least 0
    cost       excess + shortfall: what the forecast withholds in vain, once it is raised so far that it is rarely too low
    by_season  a row begins with the histogram. After at least eight quarter hours with both forecasts it changes to the one by
               time of day when that one's cost is below 9/10 of the histogram's, and back when it is above 11/10; never within
               an hour of the last change

The two windows differ because waste shows at once, while a rise that a forecast misses comes a few times a day. A
missing forecast (NaN) is not compared, and the other one is used; without both there is none.

Memory: the errors of 96 quarter hours as float32, 793 bytes a row in all.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant_metrics_ingest.prediction.buckets import Floats, Indices

SHORTFALL_QUARTERS = 96
EXCESS_QUARTERS = 8
SELDOM = 20
LEAST_QUARTERS = 8
DWELL_QUARTERS = 4
BETTER, WORSE = 0.9, 1.1


class Accuracy(msgspec.Struct, frozen=True):
    """One row's figures. Costs in the unit of the forecasts, rounded; `quarters`: how many were compared."""

    by_season: bool
    season_cost: int
    histogram_cost: int
    quarters: int


class ForecastChoice:
    """Mutable: the last errors of many rows, numbered from 0."""

    def __init__(self, rows: int = 0) -> None:
        self.by_season: npt.NDArray[np.bool_] = np.zeros(rows, dtype=np.bool_)
        self.costs: Floats = np.zeros((2, rows))
        """Of the forecast by time of day, and of the histogram's."""
        self._errors: npt.NDArray[np.float32] = np.full((2, rows, SHORTFALL_QUARTERS), np.nan, dtype=np.float32)
        """The newest is last."""
        self._quarters: Indices = np.zeros(rows, dtype=np.int64)
        self._since: Indices = np.zeros(rows, dtype=np.int64)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._quarters)

    def widen(self, rows: int) -> None:
        """Grow to at least this many rows."""
        more = max(rows - self.rows, 0)
        self.by_season = np.concatenate((self.by_season, np.zeros(more, dtype=np.bool_)))
        self.costs = np.concatenate((self.costs, np.zeros((2, more))), axis=1)
        errors = np.full((2, more, SHORTFALL_QUARTERS), np.nan, dtype=np.float32)
        self._errors = np.concatenate((self._errors, errors), axis=1)
        self._quarters, self._since = (
            np.concatenate((each, np.zeros(more, dtype=np.int64))) for each in (self._quarters, self._since)
        )

    def clear(self, row: int) -> None:
        """Reset a row."""
        self.by_season[row], self._quarters[row], self._since[row] = False, 0, 0
        self.costs[:, row], self._errors[:, row] = 0.0, np.nan

    def judge(self, season: Floats, histogram: Floats, peaks: Floats) -> None:
        """Take a quarter hour of all rows: both forecasts for it, and the peak; NaN where one is missing."""
        seen = np.isfinite(season) & np.isfinite(histogram) & np.isfinite(peaks)
        rows = np.flatnonzero(seen)
        for place, forecast in enumerate((season, histogram)):
            errors = self._errors[place]
            errors[rows, :-1] = errors[rows, 1:]
            errors[rows, -1] = forecast[rows] - peaks[rows]
            self.costs[place, rows] = _costs(errors[rows])
        self._quarters += seen
        self._since += seen
        bound = np.where(self.by_season, WORSE, BETTER) * self.costs[1]
        wanted = np.where(self.by_season, self.costs[0] <= bound, self.costs[0] < bound)
        changed = seen & (self._quarters >= LEAST_QUARTERS) & (self._since >= DWELL_QUARTERS) & (wanted != self.by_season)
        self.by_season = np.where(changed, wanted, self.by_season)
        self._since = np.where(changed, 0, self._since)

    def choose(self, season: Floats, histogram: Floats) -> Floats:
        """The forecast in force of each row."""
        first, second = np.where(self.by_season, season, histogram), np.where(self.by_season, histogram, season)
        return np.where(np.isfinite(first), first, second)

    def accuracy(self, row: int) -> Accuracy:
        """A row's figures."""
        season, histogram = (round(cost) for cost in self.costs[:, row].tolist())
        return Accuracy(bool(self.by_season[row]), season, histogram, int(self._quarters[row]))


def _costs(errors: npt.NDArray[np.float32]) -> Floats:
    """The cost of each row's errors, for rows with a last error."""
    excess = np.nanmean(errors[:, -EXCESS_QUARTERS:].astype(np.float64), axis=1)
    ordered = np.sort(errors, axis=1)
    place = np.isfinite(errors).sum(axis=1) // SELDOM
    low = np.take_along_axis(ordered, place[:, np.newaxis], axis=1)[:, 0].astype(np.float64)
    return np.asarray(np.maximum(excess, 0.0) + np.maximum(-low, 0.0))
