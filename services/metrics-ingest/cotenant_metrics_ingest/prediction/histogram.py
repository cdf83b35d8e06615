"""Decaying histograms of many series, stored together: only buckets that have a weight take memory.

In: samples with a weight and a time, of any rows; checkpoints. Out: percentiles, checkpoints. The rules:

- A sample's weight is multiplied by 2^((t - reference)/halfLife), which is the same as letting all earlier ones decay. Without
  a half-life weights stay. A row whose reference is more than 100 half-lives old gets a new one, a multiple of the half-life
  counted from year 1, half up; its weights are scaled by a power of two.
- A bucket counts as used from a weight of epsilon on; a row without a used bucket is empty.
- Percentile p: 0 for an empty row, else the end of the first bucket, from the lowest used one on, up to which the weights
  reach p of the total; at the latest of the highest used one. Of the last bucket it is the start. So it is above the sample by
  at most one bucket.
- Checkpoint: weights scaled so that the heaviest is 10000, rounded half up, zeros left out. Loading one adds weight·total/sum.

Memory: one integer and one float a bucket in use (12 bytes), four numbers a row; at most `buckets.count` buckets a row.
Source: Koordinator pkg/util/histogram.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant_metrics_ingest.prediction.buckets import Buckets, Floats, Indices

HEAVIEST = 10_000
"""The weight of the heaviest bucket in a checkpoint."""
YEAR_ONE = -62_135_596_800.0
"""The first of January of year 1, as seconds since the epoch: the reference of a row before its first sample."""
MAX_EXPONENT = 100
"""A reference older than so many half-lives is renewed."""

_ROW_SHIFT = 10
_BUCKET_MASK = (1 << _ROW_SHIFT) - 1


class HistogramError(ValueError):
    """A checkpoint that cannot be loaded, or histograms that cannot be merged."""


class Checkpoint(msgspec.Struct, frozen=True):
    """One row's state, scaled. `reference_seconds`: since the epoch."""

    weights: dict[int, int]
    total_weight: float
    reference_seconds: float = YEAR_ONE


class Histograms:
    """Mutable: rows are numbered from 0. Values have the unit of the buckets; times are seconds since the epoch."""

    def __init__(self, buckets: Buckets, half_life_seconds: float | None = None, epsilon: float = 1e-4, rows: int = 0) -> None:
        self.buckets, self.half_life, self.epsilon = buckets, half_life_seconds, epsilon
        self._keys: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        """Row and bucket of each weight, ascending."""
        self._weights: Floats = np.zeros(0)
        self.totals: Floats = np.zeros(rows)
        self.references: Floats = np.full(rows, YEAR_ONE)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.totals)

    @property
    def used_buckets(self) -> int:
        """Number of weights that are stored."""
        return len(self._keys)

    def widen(self, rows: int) -> None:
        """Have at least so many rows."""
        more = rows - self.rows
        if more > 0:
            self.totals = np.concatenate((self.totals, np.zeros(more)))
            self.references = np.concatenate((self.references, np.full(more, YEAR_ONE)))

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all rows but these, ascending; they are numbered anew from 0."""
        kept = np.array(rows, dtype=np.int64)
        numbers = np.full(self.rows, -1, dtype=np.int64)
        numbers[kept] = np.arange(len(kept))
        places = numbers[self._keys >> _ROW_SHIFT]
        held = places >= 0
        self._keys = ((places[held] << _ROW_SHIFT) | (self._keys[held] & _BUCKET_MASK)).astype(np.int32)
        self._weights = self._weights[held]
        self.totals, self.references = self.totals[kept], self.references[kept]

    # -- samples -------------------------------------------------------------------------------------------------

    def add(self, rows: Indices, values: Floats, weight: float, seconds: float) -> None:
        """Add one sample to each of distinct rows, ascending."""
        if not len(rows):
            return
        self._renew(rows, seconds)
        weights = weight * self._growth(rows, seconds)
        self.totals[rows] += weights
        self._put(self._keys_of(rows, values), weights)

    def subtract(self, row: int, value: float, weight: float, seconds: float) -> None:
        """Take a sample back; what is left below epsilon counts as nothing."""
        rows = np.array([row])
        self._renew(rows, seconds)
        taken = weight * float(self._growth(rows, seconds)[0])
        total = self.totals[row] - taken
        self.totals[row] = total if total >= self.epsilon else 0.0
        key = self._keys_of(rows, np.array([value]))[0]
        place = int(np.searchsorted(self._keys, key))
        if place < len(self._keys) and self._keys[place] == key:
            left = self._weights[place] - taken
            self._weights[place] = left if left >= self.epsilon else 0.0

    def merge(self, other: "Histograms") -> None:
        """Add the weights of histograms of the same buckets, row by row. Raises HistogramError."""
        alike = self.buckets.same_as(other.buckets) and (self.half_life, self.epsilon) == (other.half_life, other.epsilon)
        if not alike:
            raise HistogramError("histograms of different buckets, half-lives or epsilons cannot be merged")
        self.widen(other.rows)
        theirs = Histograms(other.buckets, other.half_life, other.epsilon)
        theirs._keys, theirs._weights = other._keys, other._weights.copy()
        theirs.totals, theirs.references = other.totals.copy(), other.references.copy()
        for row in range(theirs.rows):
            younger = max(self.references[row], theirs.references[row])
            self._shift(row, younger)
            theirs._shift(row, younger)
        self.totals[: theirs.rows] += theirs.totals
        self._put(theirs._keys, theirs._weights)

    def _keys_of(self, rows: Indices, values: Floats) -> npt.NDArray[np.int32]:
        return ((rows << _ROW_SHIFT) | self.buckets.find_all(values)).astype(np.int32)

    def _put(self, keys: npt.NDArray[np.int32], weights: Floats) -> None:
        """Add weights to buckets; `keys` ascend."""
        places = np.searchsorted(self._keys, keys)
        if len(self._keys):
            there = self._keys[np.minimum(places, len(self._keys) - 1)] == keys
            if there.all():
                self._weights[places] += weights
                return
            self._weights[places[there]] += weights[there]
            keys, weights, places = keys[~there], weights[~there], places[~there]
        self._keys = np.insert(self._keys, places, keys)
        self._weights = np.insert(self._weights, places, weights)

    def _growth(self, rows: Indices, seconds: float) -> Floats:
        """By how much a weight of this time counts more than one of each row's reference."""
        if self.half_life is None:
            return np.ones(len(rows))
        references = self.references[rows]
        if (references == references[0]).all():
            return np.full(len(rows), 2.0 ** ((seconds - float(references[0])) / self.half_life))
        return np.array([2.0 ** ((seconds - reference) / self.half_life) for reference in references.tolist()])

    def _renew(self, rows: Indices, seconds: float) -> None:
        if self.half_life is None:
            return
        old = self.references[rows] + MAX_EXPONENT * self.half_life < seconds
        if old.any():
            reference = YEAR_ONE + float(np.floor((seconds - YEAR_ONE) / self.half_life + 0.5)) * self.half_life
            empty = old & (self.totals[rows] == 0)
            self.references[rows[empty]] = reference
            for row in rows[old & ~empty].tolist():
                self._shift(row, reference)

    def _shift(self, row: int, reference: float) -> None:
        """Give a row another reference."""
        if self.half_life is None or reference == self.references[row]:
            return
        exponent = int(np.floor((self.references[row] - reference) / self.half_life + 0.5))
        start, stop = self._span(row)
        scale = 2.0**exponent if exponent > -1100 else 0.0
        self._weights[start:stop] *= scale
        self.totals[row] *= scale
        self.references[row] = reference
        faded = np.flatnonzero(self._weights[start:stop] == 0.0) + start
        if len(faded):
            self._keys, self._weights = np.delete(self._keys, faded), np.delete(self._weights, faded)

    def _span(self, row: int) -> tuple[int, int]:
        start, stop = np.searchsorted(self._keys, [row << _ROW_SHIFT, (row + 1) << _ROW_SHIFT]).tolist()
        return start, stop

    # -- figures -------------------------------------------------------------------------------------------------

    def weights(self, row: int) -> Floats:
        """A row's weight of each bucket, float64 (buckets,)."""
        found = np.zeros(self.buckets.count)
        start, stop = self._span(row)
        found[self._keys[start:stop] & _BUCKET_MASK] = self._weights[start:stop]
        return found

    def percentiles(self, wanted: Sequence[float]) -> Floats:
        """Percentiles of all rows, float64 (rows, wanted), in the unit of the buckets."""
        if not len(self._keys):
            return np.zeros((self.rows, len(wanted)))
        rows = self._keys >> _ROW_SHIFT
        starts = np.searchsorted(rows, np.arange(self.rows))
        columns = np.arange(len(rows)) - starts[rows]
        table = np.zeros((self.rows, int(columns.max()) + 1))
        buckets = np.zeros(table.shape, dtype=np.int64)
        table[rows, columns] = self._weights
        buckets[rows, columns] = self._keys & _BUCKET_MASK
        used = table >= self.epsilon
        lowest = used.argmax(axis=1)
        highest = table.shape[1] - 1 - used[:, ::-1].argmax(axis=1)
        every = np.arange(self.rows)
        table[np.arange(table.shape[1]) < lowest[:, np.newaxis]] = 0.0
        reached = table.cumsum(axis=1)
        thresholds = self.totals[:, np.newaxis] * np.array(wanted)
        # The first column that reaches the threshold; beyond the last one where none does.
        first = (reached[:, :, np.newaxis] < thresholds[:, np.newaxis, :]).sum(axis=1)
        at = np.minimum(np.maximum(first, lowest[:, np.newaxis]), highest[:, np.newaxis])
        found: Floats = self.buckets.results[buckets[every[:, np.newaxis], at]]
        found[~used[every, lowest]] = 0.0
        return found

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def scaled(self, heaviest: int = HEAVIEST) -> tuple[Indices, Indices, Indices]:
        """Row, bucket and scaled weight of every bucket whose weight does not vanish, by row and bucket."""
        rows = (self._keys >> _ROW_SHIFT).astype(np.int64)
        most = np.zeros(self.rows)
        np.maximum.at(most, rows, self._weights)
        shares = np.divide(self._weights, most[rows], out=np.zeros(len(rows)), where=most[rows] > 0)
        weights = np.floor(shares * heaviest + 0.5).astype(np.int64)
        kept = weights > 0
        return rows[kept], (self._keys[kept] & _BUCKET_MASK).astype(np.int64), weights[kept]

    def totals_at(self, seconds: float) -> Floats:
        """Each row's total weight, in samples of this time."""
        return self.totals / self._growth(np.arange(self.rows), seconds) if self.rows else self.totals

    def restore(self, rows: Indices, buckets: Indices, weights: Floats, totals: Floats, seconds: float) -> None:
        """Add scaled weights to rows, by row and bucket ascending: in each row `weights` make up its total of `totals`, which
        counts samples of this time. Raises HistogramError, and leaves everything as it is."""
        if len(totals) != self.rows or not (np.isfinite(totals).all() and (totals >= 0).all()):
            raise HistogramError("a total weight is negative, or of no row")
        if len(buckets) and (int(buckets.min()) < 0 or int(buckets.max()) >= self.buckets.count):
            raise HistogramError(f"a bucket is beyond the last one, {self.buckets.count - 1}")
        if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= self.rows or not (weights >= 0).all()):
            raise HistogramError("a weight is negative, or of no row")
        keys = (rows << _ROW_SHIFT) | buckets
        if (keys[1:] <= keys[:-1]).any():
            raise HistogramError("a bucket comes twice")
        if self.half_life is not None:
            self.references[:] = seconds
        sums = np.zeros(self.rows)
        np.add.at(sums, rows, weights)
        held = sums[rows] > 0
        self._put(keys[held].astype(np.int32), weights[held] * totals[rows[held]] / sums[rows[held]])
        self.totals += np.where(sums > 0, totals, 0.0)

    def checkpoint(self, row: int) -> Checkpoint:
        """A row's state."""
        rows, buckets, weights = self.scaled()
        own = rows == row
        scaled = dict(zip(buckets[own].tolist(), weights[own].tolist(), strict=True))
        return Checkpoint(scaled, float(self.totals[row]), float(self.references[row]))

    def load(self, checkpoint: Checkpoint | None) -> None:
        """Add a checkpoint to a histogram of one row. Raises HistogramError, and leaves the row as it is."""
        if checkpoint is None:
            raise HistogramError("there is no checkpoint")
        buckets = np.array(sorted(checkpoint.weights), dtype=np.int64)
        weights = np.array([checkpoint.weights[bucket] for bucket in buckets.tolist()], dtype=np.float64)
        totals = np.array([checkpoint.total_weight])
        self.restore(np.zeros(len(buckets), dtype=np.int64), buckets, weights, totals, checkpoint.reference_seconds)

