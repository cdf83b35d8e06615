"""Figures for alerts about a process that follows the log: its lag, undecided facts, quarantined subjects.

In: plain fields, written by the loops. Out: metrics, computed when they are read. LOG's end, read every few
seconds, gives the number of messages that are not folded, and since when: the time is exact to LOOK_SECONDS.

Bound: LOOKS recorded ends of LOG that are not reached yet; beyond it the times of lag stop growing at an hour.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from cotenant.engine.quarantine import Quarantine

LOOK_SECONDS = 5.0
LOOKS = 720

Value = tuple[float, dict[str, str]]
_PLAIN: dict[str, str] = {}


class Figures:
    """The figures of one process. Times are monotonic."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self.timer = timer
        self.position: Callable[[], int] = int
        """Sequence of LOG up to which everything is folded."""
        self.undecided_since: float | None = None
        """When the oldest fact was folded that no decision has taken into account; None: there is none."""
        self.clock_ahead_seconds = 0.0
        self.load_seconds: float | None = None
        """How long the last load took, None before the first."""
        self.loads = 0
        self.quarantines: list[Quarantine] = []
        self._ends: deque[tuple[int, float]] = deque(maxlen=LOOKS)
        self._end: int | None = None

    def saw_end(self, end: int) -> None:
        """Take LOG's last sequence."""
        ends, position = self._ends, self.position()
        self._end = end
        while ends and (ends[0][0] <= position or ends[0][0] > end):
            ends.popleft()
        if end > position and len(ends) < LOOKS:
            ends.append((end, self.timer()))

    @property
    def behind_messages(self) -> int | None:
        """How many messages of LOG are not folded; None where LOG's end is not read."""
        return None if self._end is None else max(0, self._end - self.position())

    @property
    def behind_seconds(self) -> float | None:
        """For how long LOG has had a message that is not folded; None where LOG's end is not read."""
        if self._end is None:
            return None
        position = self.position()
        first = next((at for end, at in tuple(self._ends) if end > position), None)
        return 0.0 if first is None else self.timer() - first

    @property
    def undecided_seconds(self) -> float:
        """The age of the oldest fact that no decision has taken into account."""
        since = self.undecided_since
        return 0.0 if since is None else self.timer() - since

    @property
    def quarantined(self) -> int:
        """Number of quarantined subjects."""
        return sum(len(quarantine.held) for quarantine in self.quarantines)

    def register(self, meter: Meter, *, decides: bool = False) -> None:
        """Show the figures. `decides`: of a service whose facts wait for decisions."""
        show(meter, "cotenant_folded_sequence", "Sequence of LOG up to which everything is folded", self._position)
        show(meter, "cotenant_fold_behind_messages", "Messages of LOG that are not folded yet", self._behind)
        show(
            meter, "cotenant_fold_behind_seconds", "For how long LOG has had a message that is not folded", self._behind_for
        )
        show(meter, "cotenant_load_seconds", "How long the last load took", self._load)
        show(meter, "cotenant_loads", "Completed loads of the log", lambda: [(self.loads, _PLAIN)], counter=True)
        show(
            meter, "cotenant_quarantined_subjects", "Subjects that are quarantined", lambda: [(self.quarantined, _PLAIN)]
        )
        if decides:
            show(
                meter,
                "cotenant_oldest_undecided_seconds",
                "Age of the oldest fact that no decision has taken into account",
                lambda: [(self.undecided_seconds, _PLAIN)],
            )
            show(
                meter,
                "cotenant_clock_ahead_seconds",
                "Upper bound of how far this machine's clock is ahead of the log's",
                lambda: [(self.clock_ahead_seconds, _PLAIN)],
            )

    def _position(self) -> Iterable[Value]:
        return [] if self._end is None else [(self.position(), _PLAIN)]

    def _behind(self) -> Iterable[Value]:
        behind = self.behind_messages
        return [] if behind is None else [(behind, _PLAIN)]

    def _behind_for(self) -> Iterable[Value]:
        behind = self.behind_seconds
        return [] if behind is None else [(behind, _PLAIN)]

    def _load(self) -> Iterable[Value]:
        return [] if self.load_seconds is None else [(self.load_seconds, _PLAIN)]


def show(
    meter: Meter, name: str, description: str, read: Callable[[], Iterable[Value]], *, counter: bool = False, unit: str = ""
) -> None:
    """Have a metric show what `read` returns, each value with its labels. It may be called by another thread."""

    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, labels) for value, labels in read()]

    made = meter.create_observable_counter if counter else meter.create_observable_gauge
    made(name, [observe], unit=unit, description=description)


def by_label(label: str, counts: Mapping[str, float]) -> list[Value]:
    """Return counts as the values of one metric."""
    return [(count, {label: key}) for key, count in sorted(counts.items())]
