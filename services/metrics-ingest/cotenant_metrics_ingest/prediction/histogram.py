"""Decaying histograms of many series, stored together in one array: a row's buckets in use, and a few beside them.

In: samples with a weight and a time, of any rows; checkpoints. Out: percentiles, checkpoints. The rules:

- A sample's weight is multiplied by 2^((t - reference)/halfLife), which is equivalent to decaying all earlier ones. Without
  a half-life weights stay. A row whose reference is more than 100 half-lives old gets a new one, a multiple of the half-life
  counted from year 1, half up; its weights are scaled by a power of two.
- A bucket counts as used from a weight of epsilon on; a row without a used bucket is empty.
- Percentile p: 0 for an empty row, else the end of the first bucket, from the lowest used one on, up to which the weights
  reach p of the total; at the latest of the highest used one. Of the last bucket it is the start. So it is above the sample by
  at most one bucket.
- Checkpoint: weights scaled so that the heaviest is 10000, rounded half up, zeros left out. Loading one adds weight·total/sum.

Memory: a row's window (see `windows`) of 8 bytes a bucket, and five numbers. Source: Koordinator pkg/util/histogram.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from cotenant_metrics_ingest.prediction.buckets import Buckets, Floats, Indices
from cotenant_metrics_ingest.prediction.windows import Windows

HEAVIEST = 10_000
"""The weight of the heaviest bucket in a checkpoint."""
YEAR_ONE = -62_135_596_800.0
"""The first of January of year 1, as seconds since the epoch: the reference of a row before its first sample."""
MAX_EXPONENT = 100
"""A reference older than this many half-lives is renewed."""


class HistogramError(ValueError):
    """A checkpoint that cannot be loaded, or histograms that cannot be merged."""


class Checkpoint(msgspec.Struct, frozen=True):
    """One row's state, scaled. `reference_seconds`: since the epoch."""

    weights: dict[int, int]
    total_weight: float
    reference_seconds: float = YEAR_ONE


class Histograms:
    """Mutable: rows are numbered from 0. Values have the unit of the buckets; times are seconds since the epoch. A result does
    not depend on which rows it is computed with."""

    def __init__(self, buckets: Buckets, half_life_seconds: float | None = None, epsilon: float = 1e-4, rows: int = 0) -> None:
        self.buckets, self.half_life, self.epsilon = buckets, half_life_seconds, epsilon
        self.windows = Windows(buckets.count, rows)
        self.totals: Floats = np.zeros(rows)
        self.references: Floats = np.full(rows, YEAR_ONE)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.totals)

    def widen(self, rows: int) -> None:
        """Grow to at least this many rows."""
        more = rows - self.rows
        if more > 0:
            self.windows.widen(rows)
            self.totals = np.concatenate((self.totals, np.zeros(more)))
            self.references = np.concatenate((self.references, np.full(more, YEAR_ONE)))

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all rows but these, ascending; they are numbered again from 0."""
        kept = np.array(rows, dtype=np.int64)
        self.windows.keep(kept)
        self.totals, self.references = self.totals[kept], self.references[kept]

    def clear(self, rows: Indices) -> None:
        """Empty rows, as they were at first."""
        self.windows.clear(rows)
        self.totals[rows], self.references[rows] = 0.0, YEAR_ONE

    # -- samples -------------------------------------------------------------------------------------------------

    def add(self, rows: Indices, values: Floats, weights: Floats | float, seconds: Floats | float) -> None:
        """Add one sample to each of distinct rows; weights and times of each, or of all."""
        if not len(rows):
            return
        self._renew(rows, seconds)
        grown = weights * self._growth(rows, seconds)
        self.totals[rows] += grown
        self.windows.weights[self.windows.places(rows, self.buckets.find_all(values))] += grown

    def subtract(self, row: int, value: float, weight: float, seconds: float) -> None:
        """Remove a sample; a rest below epsilon counts as 0."""
        rows = np.array([row])
        self._renew(rows, seconds)
        taken = weight * float(self._growth(rows, seconds)[0])
        total = self.totals[row] - taken
        self.totals[row] = total if total >= self.epsilon else 0.0
        place = int(self.windows.places(rows, self.buckets.find_all(np.array([value])))[0])
        left = self.windows.weights[place] - taken
        self.windows.weights[place] = left if left >= self.epsilon else 0.0

    def _growth(self, rows: Indices, seconds: Floats | float) -> Floats:
        """The factor of a weight of this time over one of each row's reference."""
        if self.half_life is None:
            return np.ones(len(rows))
        exponents = (seconds - self.references[rows]) / self.half_life
        if not len(rows):
            return exponents
        # Rows of one node come one after the other. Powers are computed one by one: those of arrays differ between machines in
        # the last bit.
        starts = np.flatnonzero(np.concatenate(([True], exponents[1:] != exponents[:-1])))
        powers = [2.0**exponent for exponent in exponents[starts].tolist()]
        grown: Floats = np.repeat(powers, np.diff(starts, append=len(rows)))
        return grown

    def _renew(self, rows: Indices, seconds: Floats | float) -> None:
        if self.half_life is None:
            return
        old = np.flatnonzero(self.references[rows] + MAX_EXPONENT * self.half_life < seconds)
        if len(old):
            times = np.broadcast_to(seconds, rows.shape)[old]
            references = YEAR_ONE + np.floor((times - YEAR_ONE) / self.half_life + 0.5) * self.half_life
            empty = self.totals[rows[old]] == 0
            self.references[rows[old[empty]]] = references[empty]
            for row, reference in zip(rows[old[~empty]].tolist(), references[~empty].tolist(), strict=True):
                self._shift(row, reference)

    def _shift(self, row: int, reference: float) -> None:
        """Give a row another reference."""
        scale = self._scale(row, reference)
        if scale != 1.0:
            self.windows.scale(row, scale)
            self.totals[row] *= scale
        if self.half_life is not None:
            self.references[row] = reference

    def _scale(self, row: int, reference: float) -> float:
        """The factor of a row's weights with another reference."""
        if self.half_life is None:
            return 1.0
        exponent = int(np.floor((self.references[row] - reference) / self.half_life + 0.5))
        return 2.0**exponent if exponent > -1100 else 0.0

    # -- figures -------------------------------------------------------------------------------------------------

    def weights(self, row: int) -> Floats:
        """A row's weight of each bucket, float64 (buckets,)."""
        return self.windows.of(row)

    def percentiles(self, wanted: Sequence[float], rows: Indices | None = None) -> Floats:
        """Percentiles of rows (all of them), float64 (rows, wanted), in the unit of the buckets."""
        rows = np.arange(self.rows) if rows is None else rows
        found = np.zeros((len(rows), len(wanted)))
        for which, firsts, table in self.windows.tables(rows):
            used = table >= self.epsilon
            lowest = used.argmax(axis=1)
            highest = table.shape[1] - 1 - used[:, ::-1].argmax(axis=1)
            if not np.array_equal(used, table > 0):
                # Weights below epsilon, which only a renewed reference leaves behind.
                table[np.arange(table.shape[1]) < lowest[:, np.newaxis]] = 0.0
            reached = table.cumsum(axis=1)
            totals = self.totals[rows[which]]
            known = used[np.arange(len(which)), lowest]
            for column, percentile in enumerate(wanted):
                # The first bucket that reaches the threshold; beyond the last one where none does.
                below = reached < (totals * percentile)[:, np.newaxis]
                first = np.where(below[:, -1], table.shape[1], below.argmin(axis=1))
                at = firsts + np.minimum(np.maximum(first, lowest), highest)
                found[which, column] = np.where(known, self.buckets.results[at], 0.0)
        return found

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def scaled(self, rows: Indices, heaviest: int = HEAVIEST) -> tuple[Indices, Indices, Indices]:
        """Place in `rows`, bucket and scaled weight of every bucket whose weight does not vanish, by place and bucket."""
        parts: list[Indices] = []
        for which, firsts, table in self.windows.tables(rows):
            most = table.max(axis=1, keepdims=True)
            shares = np.divide(table, most, out=np.zeros(table.shape), where=most > 0)
            weights = np.floor(shares * heaviest + 0.5).astype(np.int64)
            places, columns = weights.nonzero()
            parts.append(np.array([which[places], firsts[places] + columns, weights[places, columns]]))
        if not parts:
            return (np.zeros(0, dtype=np.int64),) * 3
        table_of_all = np.concatenate(parts, axis=1)
        order = (table_of_all[0] * self.buckets.count + table_of_all[1]).argsort()
        places, buckets, weights = table_of_all[:, order]
        return places, buckets, weights

    def totals_at(self, rows: Indices, seconds: Floats | float) -> Floats:
        """The total weight of rows, in samples of this time, or of one each."""
        return self.totals[rows] / self._growth(rows, seconds)

    def restore(
        self, into: Indices, places: Indices, buckets: Indices, weights: Floats, totals: Floats, seconds: float
    ) -> None:
        """Add scaled weights to distinct rows `into`, by place there and bucket ascending: in each row `weights` make up its
        total of `totals`, which counts samples of this time. Raises HistogramError, and leaves everything as it is."""
        if len(totals) != len(into) or not (np.isfinite(totals).all() and (totals >= 0).all()):
            raise HistogramError("a total weight is negative, or of no row")
        if len(buckets) and (int(buckets.min()) < 0 or int(buckets.max()) >= self.buckets.count):
            raise HistogramError(f"a bucket is beyond the last one, {self.buckets.count - 1}")
        if len(places) and (int(places.min()) < 0 or int(places.max()) >= len(into) or not (weights >= 0).all()):
            raise HistogramError("a weight is negative, or of no row")
        # As one ascending number: the place, then the bucket.
        keys = places * self.buckets.count + buckets
        if (keys[1:] <= keys[:-1]).any():
            raise HistogramError("a bucket comes twice")
        if self.half_life is not None:
            self.references[into] = seconds
        sums = np.bincount(places, weights, minlength=len(into))
        held = sums[places] > 0
        places, buckets, weights = places[held], buckets[held], weights[held]
        if len(places):
            at = self.windows.places_of_many(into[places], buckets)
            self.windows.weights[at] += weights * totals[places] / sums[places]
        self.totals[into] += np.where(sums > 0, totals, 0.0)

    def checkpoint(self, row: int) -> Checkpoint:
        """A row's state."""
        _, buckets, weights = self.scaled(np.array([row]))
        scaled = dict(zip(buckets.tolist(), weights.tolist(), strict=True))
        return Checkpoint(scaled, float(self.totals[row]), float(self.references[row]))

    def load(self, checkpoint: Checkpoint | None) -> None:
        """Add a checkpoint to the first row. Raises HistogramError, and leaves the row as it is."""
        if checkpoint is None:
            raise HistogramError("there is no checkpoint")
        buckets = np.array(sorted(checkpoint.weights), dtype=np.int64)
        weights = np.array([checkpoint.weights[bucket] for bucket in buckets.tolist()], dtype=np.float64)
        totals = np.array([checkpoint.total_weight])
        one, all_of_it = np.zeros(1, dtype=np.int64), np.zeros(len(buckets), dtype=np.int64)
        self.restore(one, all_of_it, buckets, weights, totals, checkpoint.reference_seconds)
