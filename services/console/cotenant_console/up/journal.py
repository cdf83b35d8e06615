"""The events of this run, as they are stored: the last of them in words, the present suppression, and counts for the
summary.

In: events of LOG and EXECUTION, in any interleaving. Out: `Journal`, bounded. Events before the run
do not count.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from cotenant.events.commits import CommitRefused, ServiceStarted
from cotenant.events.deadletters import DeadLetter
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome, Migration
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus, RunStatus, reports_stop
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.explain.sentences import sentence

LINES_KEPT = 200
PODS_KEPT = 10_000
SUPPRESS_TOPIC = "suppress"
NEWS = (
    CommitRefused,
    DeadLetter,
    EvictionOutcome,
    Execution,
    ExecutorStatus,
    Migration,
    NodeCondition,
    NodeResources,
    Placement,
    RunStatus,
    ServiceStarted,
    Waiting,
)
"""Events for the screen; samples, metrics and commit records are too many."""


@dataclass(frozen=True)
class JournalLine:
    """One event in words."""

    at: datetime
    ref: str
    words: str


@dataclass
class Journal:
    """What happened since `began`."""

    began: datetime
    lines: deque[JournalLine] = field(default_factory=lambda: deque(maxlen=LINES_KEPT))
    suppressions: int = 0
    suppression_now: str = ""
    placed: int = 0
    refusals: int = 0
    deadletters: int = 0
    _seen: dict[str, int] = field(default_factory=dict)
    _placed_uids: deque[str] = field(default_factory=lambda: deque(maxlen=PODS_KEPT))

    def add(self, event: Event) -> None:
        """Take an event; a duplicate, by its sequence, changes nothing."""
        if event.sequence <= self._seen.get(event.stream, 0):
            return
        self._seen[event.stream] = event.sequence
        data = event.data
        if isinstance(data, Execution) and data.topic == SUPPRESS_TOPIC:
            self.suppression_now = sentence(event)
        if event.time is None or event.time < self.began:
            return
        if isinstance(data, Placement) and data.phase is PlacementPhase.BOUND and data.uid not in self._placed_uids:
            self._placed_uids.append(data.uid)
            self.placed += 1
        elif isinstance(data, Execution) and data.topic == SUPPRESS_TOPIC and shrinks(data):
            self.suppressions += 1
        elif isinstance(data, CommitRefused):
            self.refusals += 1
        elif isinstance(data, DeadLetter):
            self.deadletters += 1
        if isinstance(data, NEWS) and (not event.tombstone or reports_stop(event)):
            self.note(event.time, sentence(event), event.ref)

    def note(self, at: datetime, words: str, ref: str = "-") -> None:
        """Add a line, unless it repeats the last one."""
        if not (self.lines and self.lines[-1].words == words):
            self.lines.append(JournalLine(at, ref, words))


def shrinks(execution: Execution) -> bool:
    """Whether batch work was reduced: a smaller quota (unlimited is -1 or max), or fewer CPUs."""
    return any(_extent(change.new) < _extent(change.old) for change in execution.changes if not change.error)


def _extent(text: str) -> float:
    """How much a quota or a CPU list allows, for comparison only."""
    first = text.split(" ")[0] if text else ""
    if first in ("", "max", "-1"):
        return float("inf")
    if first.isdigit() and "," not in text and "-" not in text:
        return float(first)
    total = 0
    for part in text.split(","):
        low, _, high = part.partition("-")
        if not low.isdigit() or (high and not high.isdigit()):
            return float("inf")
        total += int(high or low) - int(low) + 1
    return float(total)
