"""Chooses between the forecast by time of day and the histogram's, by what each of them has cost so far.

In: for each row and quarter hour both forecasts, made when it began, and the peak that came. Out: the forecast to use, and the
figures of `Accuracy`, which an event can carry.

    cost       of a forecast: 19 times what it was too low by, or what it was too high by (the loss whose minimum is the 95 %
               quantile)
    error      mean cost of the last quarter hours, each new one with weight 1/32 (eight hours), over the mean peak
    by_season  a row begins with the histogram. After at least eight quarter hours with both forecasts it changes to the one by
               time of day when that one's error is below 9/10 of the histogram's, and back when it is above 11/10; never within
               an hour of the last change

A forecast that is missing (NaN) is not compared, and the other one is used; without both there is none. Memory: 41 bytes a
row. Source of the loss: Koenker and Bassett, Regression quantiles, 1978.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant_metrics_ingest.prediction.buckets import Floats, Indices

TOO_LOW = 19.0
MEMORY_QUARTERS = 32
LEAST_QUARTERS = 8
DWELL_QUARTERS = 4
BETTER, WORSE = 0.9, 1.1


class Accuracy(msgspec.Struct, frozen=True):
    """One row's figures. Errors in thousandths of the mean peak; `quarters`: how many were compared, up to 1,000,000."""

    by_season: bool = False
    season_error_permille: int = 0
    histogram_error_permille: int = 0
    quarters: int = 0


class ForecastChoice:
    """Mutable: the mean costs of many rows, numbered from 0."""

    def __init__(self, rows: int = 0) -> None:
        self.by_season: npt.NDArray[np.bool_] = np.zeros(rows, dtype=np.bool_)
        self._costs: Floats = np.zeros((rows, 2))
        self._peaks: Floats = np.zeros(rows)
        self._quarters: Indices = np.zeros(rows, dtype=np.int64)
        self._since: Indices = np.zeros(rows, dtype=np.int64)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._peaks)

    def judge(self, season: Floats, histogram: Floats, peaks: Floats) -> None:
        """Take in a quarter hour of all rows: both forecasts for it, and the peak; NaN where one is missing."""
        seen = np.isfinite(season) & np.isfinite(histogram) & np.isfinite(peaks)
        share = np.where(seen, 1.0 / np.minimum(self._quarters + 1, MEMORY_QUARTERS), 0.0)
        known = np.where(seen, peaks, 0.0)
        for column, forecast in enumerate((season, histogram)):
            error = known - np.where(seen, forecast, 0.0)
            costs = np.where(error > 0, TOO_LOW * error, -error)
            self._costs[:, column] += share * (costs - self._costs[:, column])
        self._peaks += share * (known - self._peaks)
        self._quarters += seen
        self._since += seen
        bound = np.where(self.by_season, WORSE, BETTER) * self._costs[:, 1]
        wanted = np.where(self.by_season, self._costs[:, 0] <= bound, self._costs[:, 0] < bound)
        ready = (self._quarters >= LEAST_QUARTERS) & (self._since >= DWELL_QUARTERS)
        changed = ready & (wanted != self.by_season)
        self.by_season = np.where(changed, wanted, self.by_season)
        self._since = np.where(changed, 0, self._since)

    def choose(self, season: Floats, histogram: Floats) -> Floats:
        """The forecast in force of each row."""
        first, second = np.where(self.by_season, season, histogram), np.where(self.by_season, histogram, season)
        return np.where(np.isfinite(first), first, second)

    def accuracy(self, row: int) -> Accuracy:
        """A row's figures."""
        peak = float(self._peaks[row])
        permille = [min(round(1000 * cost / peak), 1_000_000) if peak > 0 else 0 for cost in self._costs[row].tolist()]
        return Accuracy(bool(self.by_season[row]), permille[0], permille[1], min(int(self._quarters[row]), 1_000_000))
