"""The result of a simulation: placements, waiting pods with reasons, and utilisation over time.

In: the events of the simulated log, as they are stored. Out: counts and series. A pod counts as placed if it was placed once;
utilisation is the requests of placed pods over the nodes' allocatable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Placement, PlacementPhase, Waiting

MAX_POINTS = 200_000


@dataclass
class SimulationTally:
    """Counts from `began` on, over `capacity` (resource name to amount, as in placements)."""

    began: datetime
    capacity: Mapping[str, int]
    placed: int = 0
    placements: int = 0
    evictions: int = 0
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _running: dict[str, dict[str, int]] = field(default_factory=dict)
    _ever_placed: set[str] = field(default_factory=set)
    _waiting: dict[str, Waiting] = field(default_factory=dict)
    _gave_up: dict[str, Waiting] = field(default_factory=dict)
    _used: Counter[str] = field(default_factory=Counter)

    def add(self, event: Event) -> None:
        """Take in one stored event."""
        data = event.data
        if isinstance(data, Placement):
            self._place(data, event.tombstone, event.time or self.began)
        elif isinstance(data, Waiting):
            if event.tombstone:
                ended = self._waiting.pop(data.uid, None)
                if ended is not None and data.uid not in self._ever_placed:
                    self._gave_up[data.uid] = ended
            else:
                self._waiting[data.uid] = data
        elif isinstance(data, ObjectDeleted) and event.subject.startswith("objects.core.pods."):
            waited = self._waiting.pop(data.uid, None)
            if waited is not None and data.uid not in self._ever_placed:
                self._gave_up[data.uid] = waited

    def _place(self, placement: Placement, tombstone: bool, at: datetime) -> None:
        gone = tombstone or placement.phase is PlacementPhase.GONE
        if gone:
            held = self._running.pop(placement.uid, None)
            if held is None:
                return
            self._used.subtract(held)
        elif placement.uid not in self._running:
            self.placements += 1
            if placement.uid not in self._ever_placed:
                self._ever_placed.add(placement.uid)
                self.placed += 1
            self._gave_up.pop(placement.uid, None)
            self._running[placement.uid] = dict(placement.requests)
            self._used.update(placement.requests)
        else:
            return
        seconds = (at - self.began).total_seconds()
        for name, total in self.capacity.items():
            points = self.series.setdefault(name, [])
            percent = 100.0 * self._used[name] / total if total else 0.0
            if points and points[-1][0] == seconds:
                points[-1] = (seconds, percent)
            elif len(points) < MAX_POINTS:
                points.append((seconds, percent))

    @property
    def running(self) -> int:
        """Pods that have a placement now."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Pods that wait now."""
        return sum(1 for uid in self._waiting if uid not in self._running)

    @property
    def never_placed(self) -> int:
        """Pods that ended, or still wait, without ever having been placed, and have a reason."""
        return len(self._gave_up) + sum(1 for uid in self._waiting if uid not in self._ever_placed)

    def reasons(self) -> dict[str, int]:
        """Pods never placed, by the reason that most nodes gave; ties by name."""
        counts: Counter[str] = Counter()
        stuck = [waiting for uid, waiting in self._waiting.items() if uid not in self._ever_placed]
        for waiting in [*self._gave_up.values(), *stuck]:
            counts[main_reason(waiting)] += 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def main_reason(waiting: Waiting) -> str:
    """The reason that most nodes gave, with its resource; the message where there is none."""
    if not waiting.reasons:
        return waiting.message or "no reason given"
    first = min(waiting.reasons, key=lambda reason: (-reason.count, reason.code, reason.resource))
    return f"{first.code} {first.resource}".strip()
