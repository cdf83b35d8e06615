"""Mean usage of everything on one node over one window: sums by slots of time, in parallel arrays.

In: samples of the node, the system, pods and host applications, each with a row of its own. Out: the mean of any row
over the window that ends at the newest sample. Per slot and row three integers are kept: how many samples, their cpu
sum, their memory sum; a mean is the quotient, cut to an integer. The oldest slot counts with the share of it that lies
in the window.

Memory: KEPT slots of three 8-byte integers a row (144 bytes a row), at most MAX_ROWS rows; rows that had no sample in
any slot are freed when a slot ends.
"""

from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from cotenant.events.metrics import MeanDigest, Usage
from cotenant_metrics_ingest import varints

SLOTS_PER_WINDOW = 5
KEPT = SLOTS_PER_WINDOW + 1
"""Closed slots; with the open one a window and the oldest slot's rest."""

NODE = "\0node"
SYSTEM = "\0system"
HOST = "\0host/"
"""Keys of rows: the node, the system, a host application by name; a pod's key is its uid, which holds no NUL."""

MAX_ROWS = 1024

WHOLE = 64
"""A slot's share in the window is counted in this many parts: exact for whole slots, and far from overflow."""

LARGEST_SUM = 2**55

Table = npt.NDArray[np.int64]
"""Counts, cpu sums and memory sums, by row."""

_Closed = tuple[int, Table, bytes]
"""Slot number, its table, and the table as a digest has it."""


class MeanSlots:
    """Mutable. Times are milliseconds since the epoch, by the node's clock."""

    def __init__(self, width_ms: int) -> None:
        self.width_ms = width_ms
        self.rows: dict[str, int] = {NODE: 0, SYSTEM: 1}
        self.counts: list[int] = [0, 0]
        self.cpu: list[int] = [0, 0]
        self.memory: list[int] = [0, 0]
        self._open_slot = -1
        self._closed: deque[_Closed] = deque(maxlen=KEPT)

    def row(self, key: str) -> int:
        """The row of a key, a new one if it has none; -1 when all are taken."""
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= MAX_ROWS:
                return -1
            row = self.rows[key] = len(self.counts)
            self.counts.append(0)
            self.cpu.append(0)
            self.memory.append(0)
        return row

    def open(self, slot: int) -> None:
        """Make `slot`, which is not before any earlier one, the one that samples are added to."""
        if slot == self._open_slot:
            return
        if self._open_slot >= 0:
            self._closed.append(_closed(self._open_slot, self._open_table()))
            self._free_rows()
        self._open_slot = slot
        size = len(self.rows)
        self.counts, self.cpu, self.memory = [0] * size, [0] * size, [0] * size

    def add(self, row: int, count: int, cpu: int, memory: int) -> None:
        """Add samples of one row to the open slot."""
        self.counts[row] += count
        self.cpu[row] += cpu
        self.memory[row] += memory

    def _open_table(self) -> Table:
        sums = [self.counts, self.cpu, self.memory]
        try:
            return np.array(sums, dtype=np.int64)
        except OverflowError:
            # Only samples that no node can take get here; they must not end the service.
            return np.array([[min(value, LARGEST_SUM) for value in column] for column in sums], dtype=np.int64)

    def _free_rows(self) -> None:
        used = np.zeros(len(self.rows), dtype=bool)
        used[:2] = True
        for _, table, _ in self._closed:
            used[: table.shape[1]] |= table[0] > 0
        if used.all():
            return
        kept = np.flatnonzero(used)
        keys = list(self.rows)
        self.rows = {keys[row]: place for place, row in enumerate(kept.tolist())}
        moved = [_closed(slot, _widened(table, len(used))[:, kept]) for slot, table, _ in self._closed]
        self._closed = deque(moved, maxlen=KEPT)

    def means(self, end_ms: int, duration_ms: int, keys: Iterable[str]) -> Mapping[str, Usage]:
        """The mean of each row that has samples in the window; others are left out."""
        totals = WHOLE * self._open_table()
        start = end_ms - duration_ms
        for slot, table, _ in self._closed:
            share = min(WHOLE, ((slot + 1) * self.width_ms - start) * WHOLE // self.width_ms)
            if share > 0:
                totals[:, : table.shape[1]] += share * table
        counts = totals[0].tolist()
        cpu, memory = (totals[1:] // np.maximum(totals[0], 1)).tolist()
        found: dict[str, Usage] = {}
        for key in keys:
            row = self.rows.get(key)
            if row is not None and counts[row]:
                found[key] = Usage(cpu_milli=cpu[row], memory_bytes=memory[row])
        return found

    # -- going on after a restart --------------------------------------------------------------------------------

    def digest(self) -> MeanDigest:
        """All that is needed to go on; the open slot is the last."""
        if self._open_slot < 0:
            return MeanDigest(width_ms=self.width_ms)
        slots = [*self._closed, _closed(self._open_slot, self._open_table())]
        return MeanDigest(
            width_ms=self.width_ms,
            slots=tuple(slot for slot, _, _ in slots),
            rows=tuple(self.rows),
            sums=b"".join(encoded for _, _, encoded in slots),
        )

    @classmethod
    def restored(cls, digest: MeanDigest, width_ms: int) -> "MeanSlots":
        """Go on from a digest. One of another width, or a damaged one, starts empty."""
        means = cls(width_ms)
        size, slots = len(digest.rows), len(digest.slots)
        fits = (
            digest.width_ms == width_ms
            and digest.rows[:2] == (NODE, SYSTEM)
            and 0 < slots <= KEPT + 1
            and size == len(set(digest.rows)) <= MAX_ROWS
        )
        if not fits:
            return means
        try:
            tables = _tables(digest.sums, slots, size)
        except varints.VarintError:
            return means
        means.rows = {key: row for row, key in enumerate(digest.rows)}
        for slot, table in zip(digest.slots[:-1], tables, strict=False):
            means._closed.append(_closed(slot, table))
        means._open_slot = digest.slots[-1]
        means.counts, means.cpu, means.memory = _widened(tables[-1], size).tolist()
        return means


def _closed(slot: int, table: Table) -> _Closed:
    return slot, table, varints.encode([table.shape[1], *table.reshape(-1).tolist()])


def _tables(encoded: bytes, slots: int, size: int) -> list[Table]:
    values = varints.decode(encoded)
    tables: list[Table] = []
    at = 0
    for _ in range(slots):
        rows = int(values[at]) if at < len(values) else 0
        if not 2 <= rows <= size or at + 1 + 3 * rows > len(values):
            raise varints.VarintError(f"a slot of {rows} rows does not fit")
        tables.append(values[at + 1 : at + 1 + 3 * rows].reshape(3, rows))
        at += 1 + 3 * rows
    return tables


def _widened(table: Table, size: int) -> Table:
    """With zeros for the rows that came later."""
    return np.pad(table, ((0, 0), (0, size - table.shape[1]))) if table.shape[1] < size else table
