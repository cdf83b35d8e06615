"""The forecast by time of day of many nodes beside the histogram's, for CPU and memory, and which of both is in force.

In: once a minute the peak of a node's system and prod pods; the histograms' forecast when a quarter hour begins. Out: the
forecast, the accuracy of both (`forecast_choice`), and one node's state for a restart. Values are milli-cores and bytes;
times are seconds since the epoch by the node's clock.

A minute belongs to the quarter hour of its middle. With the first minute of a quarter hour both forecasts for it are kept, and
the quarter hour before is evaluated by its peak. The first one after a start is not, as its beginning was not observed.

After a restart the week's peaks and the choice are those of the stored state; the errors start again from none, so that
the choice is kept for two hours at least and then evaluated by newer errors. Memory: some 2.9 KiB a node that is configured
for it.
"""

from collections.abc import Callable, Sequence
from math import isfinite

import numpy as np

from cotenant.events.node.metrics import ResourceForecast
from cotenant.events.node.predictions import SeasonState
from cotenant_metrics_ingest.prediction import season_states
from cotenant_metrics_ingest.prediction.buckets import Floats, Indices
from cotenant_metrics_ingest.prediction.forecast_choice import ForecastChoice
from cotenant_metrics_ingest.prediction.models import CPU_BUCKETS, MEMORY_BUCKETS
from cotenant_metrics_ingest.prediction.seasonal import (
    CPU_HORIZON_SECONDS,
    MEMORY_HORIZON_SECONDS,
    QUARTER_SECONDS,
    SeasonalProfiles,
    quarter_of,
)
from cotenant_metrics_ingest.prediction.training import INTERVAL_MS

_MIDDLE_SECONDS = INTERVAL_MS / 2000
_GROWTH = 8
"""Rows grow by this fraction."""


class _Resource:
    """One resource's profiles and choices. `unit`: how many of the values are one of the buckets' unit."""

    def __init__(self, name: str, profiles: SeasonalProfiles, unit: float, horizon_seconds: float) -> None:
        self.name, self.profiles, self.unit, self.horizon = name, profiles, unit, horizon_seconds
        self.choice = ForecastChoice()
        self.expected: Floats = np.full((2, 0), np.nan)
        """Of each row, for the present quarter hour: the forecast by time of day, the histogram's."""
        self.peaks: Floats = np.zeros(0)
        """Its highest value so far."""

    def widen(self, rows: int) -> None:
        more = rows - len(self.peaks)
        self.profiles.widen(rows)
        self.choice.widen(rows)
        self.expected = np.concatenate((self.expected, np.full((2, more), np.nan)), axis=1)
        self.peaks = np.concatenate((self.peaks, np.full(more, np.nan)))

    def clear(self, row: int) -> None:
        self.profiles.clear(row)
        self.choice.clear(row)
        self.expected[:, row] = self.peaks[row] = np.nan

    def forecast(self, rows: Indices, seconds: Floats) -> Floats:
        """The profiles' forecast of each row from its time to the horizon."""
        found = np.full(len(rows), np.nan)
        for which in _alike(seconds, self.horizon):
            expected = self.profiles.forecast(float(seconds[which[0]]), self.horizon, rows=rows[which])
            found[which] = np.trunc(expected * self.unit)
        return found


class Seasons:
    """Mutable: rows are numbered from 0, and reused when their node is gone."""

    def __init__(self) -> None:
        self.resources = (
            _Resource("cpu", SeasonalProfiles(CPU_BUCKETS), 1000.0, CPU_HORIZON_SECONDS),
            _Resource("memory", SeasonalProfiles(MEMORY_BUCKETS), 1.0, MEMORY_HORIZON_SECONDS),
        )
        self._quarters: Indices = np.zeros(0, dtype=np.int64)
        """The present quarter hour of each row; -1 before its first minute."""
        self._free: list[int] = []

    def begin(self) -> int:
        """Return an empty row."""
        if not self._free:
            size = len(self._quarters)
            grown = size + max(size // _GROWTH, 1)
            for resource in self.resources:
                resource.widen(grown)
            self._quarters = np.concatenate((self._quarters, np.full(grown - size, -1, dtype=np.int64)))
            self._free += range(grown - 1, size - 1, -1)
        return self._free.pop()

    def end(self, row: int) -> None:
        """Release a row."""
        for resource in self.resources:
            resource.clear(row)
        self._quarters[row] = -1
        self._free.append(row)

    # -- samples -------------------------------------------------------------------------------------------------

    def observe(self, rows: Indices, seconds: Floats, peaks: Floats, by_histogram: Callable[[Indices], Floats]) -> None:
        """Take the minutes that ended at `seconds` of distinct rows: peaks, (2, rows). `by_histogram`: the forecasts of the
        histograms of some of them, by their place in `rows`: (2, places), NaN if unknown."""
        middles = seconds - _MIDDLE_SECONDS
        quarters = np.floor(middles / QUARTER_SECONDS).astype(np.int64)
        new = np.flatnonzero(quarters != self._quarters[rows])
        if len(new):
            self._judge(rows[new])
            self._expect(rows[new], quarters[new], by_histogram(new))
        for resource, values in zip(self.resources, peaks, strict=True):
            resource.peaks[rows] = np.fmax(resource.peaks[rows], values)
            for which in _alike(middles, 0.0):
                resource.profiles.add(rows[which], values[which] / resource.unit, float(middles[which[0]]))

    def _judge(self, rows: Indices) -> None:
        for resource in self.resources:
            season, histogram, peaks = np.full((3, len(self._quarters)), np.nan)
            season[rows], histogram[rows] = resource.expected[:, rows]
            peaks[rows] = resource.peaks[rows]
            resource.choice.judge(season, histogram, peaks)
            resource.peaks[rows] = np.nan

    def _expect(self, rows: Indices, quarters: Indices, by_histogram: Floats) -> None:
        begun = self._quarters[rows] >= 0
        begins = (quarters * QUARTER_SECONDS).astype(np.float64)
        for resource, histogram in zip(self.resources, by_histogram, strict=True):
            resource.expected[0, rows] = resource.forecast(rows, begins)
            resource.expected[1, rows] = np.where(begun, histogram, np.nan)
        self._quarters[rows] = quarters

    # -- figures -------------------------------------------------------------------------------------------------

    def forecasts(self, rows: Indices, seconds: Floats, by_histogram: Floats) -> list[tuple[ResourceForecast, ...]]:
        """The forecast of each row from its time on, for CPU and memory. `by_histogram`: (2, rows), NaN if
        known."""
        of_resources = [
            [
                _shown(resource, row, season, histogram)
                for row, season, histogram in zip(
                    rows.tolist(), resource.forecast(rows, seconds).tolist(), values.tolist(), strict=True
                )
            ]
            for resource, values in zip(self.resources, by_histogram, strict=True)
        ]
        return list(zip(*of_resources, strict=True))

    # -- restart -------------------------------------------------------------------------------------------------

    def state(self, row: int) -> tuple[SeasonState, ...]:
        """A row's state for a restart, for CPU and memory."""
        return tuple(
            season_states.state_of(
                resource.name, resource.profiles.checkpoint(row), by_time_of_day=bool(resource.choice.by_season[row])
            )
            for resource in self.resources
        )

    def restore(self, row: int, states: Sequence[SeasonState]) -> None:
        """Take a row's state; a damaged one counts as none."""
        for resource in self.resources:
            for state in states:
                if state.resource == resource.name and season_states.load(state, resource.profiles, row):
                    resource.choice.by_season[row] = state.by_time_of_day


def _alike(seconds: Floats, horizon: float) -> list[Indices]:
    """The places of times that are in the same quarter hour, and so are their horizons."""
    found: dict[tuple[int, int], list[int]] = {}
    for place, each in enumerate(seconds.tolist()):
        found.setdefault((quarter_of(each), quarter_of(each + horizon)), []).append(place)
    return [np.array(places, dtype=np.int64) for places in found.values()]


def _shown(resource: _Resource, row: int, season: float, histogram: float) -> ResourceForecast:
    accuracy = resource.choice.accuracy(row)
    return ResourceForecast(
        resource=resource.name,
        by_time_of_day=accuracy.by_season and isfinite(season),
        time_of_day=int(season) if isfinite(season) else None,
        histogram=int(histogram) if isfinite(histogram) else None,
        time_of_day_cost=accuracy.season_cost,
        histogram_cost=accuracy.histogram_cost,
        quarters=accuracy.quarters,
    )
