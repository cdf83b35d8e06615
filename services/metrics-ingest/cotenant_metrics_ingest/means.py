"""Mean usage on one node over one window: sums by time slots, in parallel int64 arrays.

In: samples of the node, the system, pods and host applications, one row for each. Out: the mean of any row over the window
that ends at the newest sample. Per slot and row three integers are stored: the number of samples, their cpu sum (milli-cores),
their memory sum (bytes); a mean is the quotient, truncated to an integer. The oldest slot is weighted by its share inside the
window.

Memory: STORED slots of three 8-byte integers per row (144 bytes a row), at most MAX_ROWS rows; rows without a sample in any
slot are freed when a slot ends.
"""

from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant.events.node.metrics import MeanDigest, Usage
from cotenant_metrics_ingest import varints

SLOTS_PER_WINDOW = 5
STORED = SLOTS_PER_WINDOW + 1
"""Number of closed slots; together with the open one they cover a window and the rest of the oldest slot."""

NODE_ROW = "\0node"
SYSTEM_ROW = "\0system"
HOST_ROW = "\0host/"
"""Keys of rows: the node, the system, a host application by name; a pod's key is its uid, which holds no NUL."""

MAX_ROWS = 1024

WHOLE = 64
"""A slot's share of the window is counted in this many parts: exact for whole slots, without overflow."""

LARGEST_SUM = 2**55
"""Larger sums come from impossible samples only; they are saturated instead of overflowing."""

ADDS_WITHOUT_OVERFLOW = 128
"""A message's sums are below 2^52."""

Table = npt.NDArray[np.int64]
"""int64 (3, rows): sample counts, cpu sums in milli-cores, memory sums in bytes."""

Rows = npt.NDArray[np.int64] | slice


class _Slot(msgspec.Struct):
    """One slot: its number, its table, and the encoded table (None until a digest needs it)."""

    slot: int
    table: Table
    encoded: bytes | None = None


class MeanSlots:
    """Mutable. Times are milliseconds since the epoch, by the node's clock. Shapes and units: see the module."""

    __slots__ = ("_adds", "_closed", "_open", "_open_slot", "rows", "width_ms")

    def __init__(self, width_ms: int) -> None:
        self.width_ms = width_ms
        self.rows: dict[str, int] = {NODE_ROW: 0, SYSTEM_ROW: 1}
        """A new dictionary when rows are moved."""
        self._open_slot = -1
        self._open: Table = np.zeros((3, 2), dtype=np.int64)
        self._adds = 0
        self._closed: deque[_Slot] = deque(maxlen=STORED)

    def rows_of(self, keys: Sequence[str]) -> list[int]:
        """Return the row of each key, allocating missing ones; -1 when all rows are in use."""
        rows = self.rows
        for key in keys:
            if key not in rows and len(rows) < MAX_ROWS:
                rows[key] = len(rows)
        self._open = _widened(self._open, len(rows))
        return [rows.get(key, -1) for key in keys]

    def open(self, slot: int) -> None:
        """Open `slot`, which is not before the present one; samples are added to it."""
        if slot == self._open_slot:
            return
        if self._open_slot >= 0:
            self._closed.append(_Slot(self._open_slot, self._bounded()))
            self._free_rows()
        self._open_slot = slot
        self._open = np.zeros((3, len(self.rows)), dtype=np.int64)

    def add(self, rows: Rows, counts_and_sums: Table) -> None:
        """Add samples to distinct rows of the open slot: their number, milli-cores and bytes, int64 (3, rows)."""
        if isinstance(rows, slice):
            own = self._open[:, rows]
            own += counts_and_sums
        else:
            self._open[:, rows] += counts_and_sums
        self._adds += 1
        if self._adds % ADDS_WITHOUT_OVERFLOW == 0:
            self._bounded()

    def _bounded(self) -> Table:
        return np.minimum(self._open, LARGEST_SUM, out=self._open)

    def _free_rows(self) -> None:
        if self._closed[-1].table[0, 2:].all():
            return
        used = np.zeros(len(self.rows), dtype=bool)
        used[:2] = True
        for closed in self._closed:
            used[: closed.table.shape[1]] |= closed.table[0] > 0
        if used.all():
            return
        kept = used.nonzero()[0]
        keys = list(self.rows)
        self.rows = {keys[row]: place for place, row in enumerate(kept.tolist())}
        for closed in self._closed:
            closed.table, closed.encoded = _widened(closed.table, len(used))[:, kept], None

    def parts(self, start_ms: int) -> list[tuple[int, Table]]:
        """Return the slots with samples from `start_ms` on, each with its share of them in parts of WHOLE; the open one is
        first. Tables of closed slots may lack the last rows."""
        width = self.width_ms
        parts: list[tuple[int, Table]] = [(WHOLE, self._bounded())]
        for closed in self._closed:
            share = min(WHOLE, ((closed.slot + 1) * width - start_ms) * WHOLE // width)
            if share > 0:
                parts.append((share, closed.table))
        return parts

    def largest_since(self, start_ms: int) -> dict[str, tuple[int, int]]:
        """Return each row's largest mean over the closed slots from `start_ms` on: milli-cores, bytes."""
        largest = np.full((2, len(self.rows)), -1, dtype=np.int64)
        for closed in self._closed:
            if closed.slot * self.width_ms >= start_ms:
                counts, own = closed.table[0], largest[:, : closed.table.shape[1]]
                np.maximum(own, np.where(counts > 0, closed.table[1:] // np.maximum(counts, 1), -1), out=own)
        cpu, memory = largest.tolist()
        return {key: (cpu[row], memory[row]) for row, key in enumerate(self.rows) if cpu[row] >= 0}

    # -- restart -------------------------------------------------------------------------------------------------

    def slots(self) -> list[_Slot]:
        """Return all slots, oldest first; the open one is last."""
        return [*self._closed, _Slot(self._open_slot, self._bounded())] if self._open_slot >= 0 else []

    @classmethod
    def restored(cls, digest: MeanDigest, width_ms: int) -> "MeanSlots":
        """Restore from a digest; one of another width, or a damaged one, gives an empty state."""
        means = cls(width_ms)
        size, slots = len(digest.rows), len(digest.slots)
        fits = (
            digest.width_ms == width_ms
            and digest.rows[:2] == (NODE_ROW, SYSTEM_ROW)
            and 0 < slots <= STORED + 1
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
            means._closed.append(_Slot(slot, table))
        means._open_slot = digest.slots[-1]
        means._open = _widened(tables[-1], size).copy()
        return means


class MeansWindow(msgspec.Struct, frozen=True):
    """A window of which means are wanted, of the rows with these keys."""

    slots: MeanSlots
    end_ms: int
    duration_ms: int
    keys: Sequence[str]


def means_of(windows: Sequence[MeansWindow]) -> list[list[Usage | None]]:
    """Return for each window the mean of each of its keys, None for a row without samples in it; all windows are computed
    together, side by side."""
    parts = [window.slots.parts(window.end_ms - window.duration_ms) for window in windows]
    sizes = [of_window[0][1].shape[1] for of_window in parts]
    totals = np.zeros((3, sum(sizes)), dtype=np.int64)
    nothing = (0, np.zeros((3, 0), dtype=np.int64))
    for depth in range(max(map(len, parts), default=0)):
        slots = [of_window[depth] if depth < len(of_window) else nothing for of_window in parts]
        tables = [_widened(table, size) for (_, table), size in zip(slots, sizes, strict=True)]
        totals += np.repeat([share for share, _ in slots], sizes) * np.concatenate(tables, axis=1)
    counts = totals[0].tolist()
    cpu, memory = (totals[1:] // np.maximum(totals[0], 1)).tolist()
    found: list[list[Usage | None]] = []
    first = 0
    for window, size in zip(windows, sizes, strict=True):
        row_of = window.slots.rows.get
        places = [first + row if (row := row_of(key)) is not None else -1 for key in window.keys]
        found.append(
            [Usage(cpu_milli=cpu[at], memory_bytes=memory[at]) if at >= 0 and counts[at] else None for at in places]
        )
        first += size
    return found


def digests(nodes: Sequence[MeanSlots]) -> list[MeanDigest]:
    """Return each node's digest for a restart."""
    slots = [means.slots() for means in nodes]
    late = [slot for each in slots for slot in each if slot.encoded is None]
    if late:
        values = np.concatenate([part for slot in late for part in ([slot.table.shape[1]], slot.table.reshape(-1))])
        lengths = np.array([1 + slot.table.size for slot in late])
        for slot, encoded in zip(late, varints.encode_each(values, lengths), strict=True):
            slot.encoded = encoded
    return [
        MeanDigest(
            width_ms=means.width_ms,
            slots=tuple(slot.slot for slot in each),
            rows=tuple(means.rows) if each else (),
            sums=b"".join(slot.encoded or b"" for slot in each),
        )
        for means, each in zip(nodes, slots, strict=True)
    ]


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
    """Pad the table with zeros for rows that were allocated later."""
    if table.shape[1] >= size:
        return table
    wider = np.zeros((3, size), dtype=np.int64)
    wider[:, : table.shape[1]] = table
    return wider
