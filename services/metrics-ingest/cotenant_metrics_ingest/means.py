"""Mean usage of everything on one node over one window: sums by slots of time, in parallel arrays.

In: samples of the node, the system, pods and host applications, each with a row of its own. Out: the mean of any row
over the window that ends at the newest sample. Per slot and row three integers are kept: how many samples, their cpu
sum, their memory sum; a mean is the quotient, cut to an integer. The oldest slot counts with the share of it that lies
in the window.

Memory: KEPT slots of three 8-byte integers a row (168 bytes a row), at most MAX_ROWS rows; rows that had no sample in
any slot are freed when a slot ends.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np
from cotenant.events.metrics import MeanDigest, Usage

from cotenant_metrics_ingest.packing import PackingError, pack, unpack

SLOTS_PER_WINDOW = 5
KEPT = SLOTS_PER_WINDOW + 1
"""Closed slots; with the open one a window and the oldest slot's rest."""

RowKey = tuple[str, str]
"""What the row is of (`node`, `system`, `host`, `pod`) and its name or uid."""

NODE: RowKey = ("node", "")
SYSTEM: RowKey = ("system", "")
MAX_ROWS = 1024

_Closed = tuple[int, "array[int]", "array[int]", "array[int]"]


class MeanSlots:
    """Mutable. Times are milliseconds since the epoch, by the node's clock."""

    def __init__(self, width_ms: int) -> None:
        self.width_ms = width_ms
        self.rows: dict[RowKey, int] = {NODE: 0, SYSTEM: 1}
        self.counts: list[int] = [0, 0]
        self.cpu: list[int] = [0, 0]
        self.memory: list[int] = [0, 0]
        self._open_slot = -1
        self._closed: deque[_Closed] = deque(maxlen=KEPT)

    def row(self, key: RowKey) -> int:
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
            self._closed.append((self._open_slot, array("q", self.counts), array("q", self.cpu), array("q", self.memory)))
            self._free_rows()
        self._open_slot = slot
        size = len(self.rows)
        self.counts, self.cpu, self.memory = [0] * size, [0] * size, [0] * size

    def add(self, row: int, count: int, cpu: int, memory: int) -> None:
        """Add samples of one row to the open slot."""
        self.counts[row] += count
        self.cpu[row] += cpu
        self.memory[row] += memory

    def _free_rows(self) -> None:
        used = {
            key
            for key, row in self.rows.items()
            if row < 2 or any(row < len(counts) and counts[row] for _, counts, _, _ in self._closed)
        }
        if len(used) == len(self.rows):
            return
        kept = [(key, row) for key, row in self.rows.items() if key in used]
        self.rows = {key: place for place, (key, _) in enumerate(kept)}

        def moved(values: "array[int]") -> "array[int]":
            return array("q", [values[row] if row < len(values) else 0 for _, row in kept])

        self._closed = deque(
            ((slot, moved(counts), moved(cpu), moved(memory)) for slot, counts, cpu, memory in self._closed), maxlen=KEPT
        )

    def means(self, end_ms: int, duration_ms: int, keys: Iterable[RowKey]) -> Mapping[RowKey, Usage]:
        """The mean of each row that has samples in the window; others are left out."""
        parts: list[tuple[int, list[int] | array[int], list[int] | array[int], list[int] | array[int]]] = []
        start = end_ms - duration_ms
        for slot, counts, cpu, memory in self._closed:
            inside = min(self.width_ms, (slot + 1) * self.width_ms - start)
            if inside > 0:
                parts.append((inside, counts, cpu, memory))
        parts.append((self.width_ms, self.counts, self.cpu, self.memory))
        found: dict[RowKey, Usage] = {}
        for key in keys:
            row = self.rows.get(key)
            if row is None:
                continue
            count = cpu_sum = memory_sum = 0
            for share, row_counts, row_cpu, row_memory in parts:
                if row < len(row_counts):
                    count += share * row_counts[row]
                    cpu_sum += share * row_cpu[row]
                    memory_sum += share * row_memory[row]
            if count:
                found[key] = Usage(cpu_milli=cpu_sum // count, memory_bytes=memory_sum // count)
        return found

    # -- going on after a restart --------------------------------------------------------------------------------

    def state(self) -> MeanDigest:
        """All that is needed to go on; the open slot is the last."""
        if self._open_slot < 0:
            return MeanDigest(width_ms=self.width_ms)
        size = len(self.rows)
        slots: list[_Closed] = [
            *self._closed,
            (self._open_slot, array("q", self.counts), array("q", self.cpu), array("q", self.memory)),
        ]
        sums = array("q")
        for _, *columns in slots:
            for column in columns:
                sums.extend(column)
                sums.extend([0] * (size - len(column)))
        return MeanDigest(
            width_ms=self.width_ms,
            slots=tuple(slot for slot, *_ in slots),
            rows=tuple(self.rows),
            sums=pack(np.frombuffer(sums, dtype=np.int64)),
        )

    @classmethod
    def restored(cls, state: MeanDigest, width_ms: int) -> "MeanSlots":
        """Go on from a state. One of another width, or whose parts do not fit together, starts empty."""
        means = cls(width_ms)
        size = len(state.rows)
        fits = (
            state.width_ms == width_ms
            and state.rows[:2] == (NODE, SYSTEM)
            and 0 < len(state.slots) <= KEPT + 1
            and size <= MAX_ROWS
            and len(set(state.rows)) == size
        )
        if not fits:
            return means
        try:
            sums = array("q", unpack(state.sums, len(state.slots) * 3 * size).tolist())
        except PackingError:
            return means
        columns = [sums[start : start + size] for start in range(0, len(sums), size)]
        means.rows = {key: row for row, key in enumerate(state.rows)}
        for number, slot in enumerate(state.slots[:-1]):
            counts, cpu, memory = columns[3 * number : 3 * number + 3]
            means._closed.append((slot, counts, cpu, memory))
        means._open_slot = state.slots[-1]
        means.counts, means.cpu, means.memory = (list(column) for column in columns[-3:])
        return means
