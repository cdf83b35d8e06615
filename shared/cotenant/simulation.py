"""All cores in one process under a virtual clock, on the in-memory log: no I/O, no threads, no real time.

Time moves from one planned step to the next. A message that is stored is delivered to every participant whose filters
select it, and wakes it `hop` later; beside that a participant is woken when it asked to be. What happens at the same moment
happens in the order in which it was planned, so one seed gives one history.

Bounds: a participant's inbox holds what was stored since it last woke (at most MAX_INBOX, else SimulationError); at most
MAX_STEPS_AT_ONCE steps without time moving on.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Protocol

import msgspec

from cotenant.cycle import Cycle, Identity
from cotenant.definition import Definition
from cotenant.events.envelope import Event
from cotenant.log import EXECUTION, LOG, USAGE, Refused, Stored, Write
from cotenant.memory_log import MemoryStream
from cotenant.subjects import matches

START = datetime(2026, 1, 1, tzinfo=UTC)
HOP = timedelta(milliseconds=1)
TICK = timedelta(seconds=1)
MAX_INBOX = 1_000_000
MAX_STEPS_AT_ONCE = 1_000_000


class SimulationError(RuntimeError):
    """The simulation cannot go on; the text says why."""


class Participant(Protocol):
    """Anything that lives in the simulation: a service, a node, a workload, a fault."""

    name: str
    filters: tuple[str, ...]
    """LOG subjects."""
    usage_filters: tuple[str, ...]

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """Fold the inbox, act, and say when to be woken at the latest (None: at the next delivery)."""


class Streams(msgspec.Struct, frozen=True):
    """The streams of the simulated log."""

    log: MemoryStream
    usage: MemoryStream
    execution: MemoryStream


class _Seat:
    def __init__(self, participant: Participant) -> None:
        self.participant = participant
        self.inbox: deque[Event] = deque()
        self.planned: datetime | None = None


class World:
    """The clock, the streams and everybody in it."""

    def __init__(self, *, seed: int = 0, start: datetime = START, hop: timedelta = HOP, keep_history: bool = False) -> None:
        self.now = start
        self.random = Random(seed)
        self.streams = Streams(
            MemoryStream(LOG, self._clock, keep_per_subject=64),
            MemoryStream(USAGE, self._clock, keep_per_subject=4),
            MemoryStream(EXECUTION, self._clock, keep_per_subject=256),
        )
        self.events = 0
        self.steps = 0
        self.history: list[Event] | None = [] if keep_history else None
        self.watchers: list[Callable[[Event], None]] = []
        self._hop = hop
        self._seats: list[_Seat] = []
        self._routes: dict[str, dict[str, list[tuple[str, _Seat]]]] = {LOG: {}, USAGE: {}}
        self._plan: list[tuple[datetime, int, _Seat]] = []
        self._order = 0

    def _clock(self) -> datetime:
        return self.now

    def add(self, participant: Participant) -> None:
        """Seat a participant: it is given the last message of each of its subjects, then everything that follows."""
        seat = _Seat(participant)
        self._seats.append(seat)
        for stream, filters in ((self.streams.log, participant.filters), (self.streams.usage, participant.usage_filters)):
            for wanted in filters:
                self._routes[stream.name].setdefault(wanted.split(".", 1)[0], []).append((wanted, seat))
            for sequence in stream.snapshot(filters):
                event = stream.event(sequence)
                if event is not None:
                    seat.inbox.append(event)
        self._wake(seat, self.now)

    def remove(self, participant: Participant) -> None:
        """Take a participant away: it is not woken any more and gets nothing."""
        for seat in [seat for seat in self._seats if seat.participant is participant]:
            self._seats.remove(seat)
            seat.planned = None
            for routes in self._routes.values():
                for head, entries in routes.items():
                    routes[head] = [entry for entry in entries if entry[1] is not seat]

    def wake(self, participant: Participant, when: datetime) -> None:
        """Wake a participant at the latest at a moment: it was told something outside the log."""
        for seat in self._seats:
            if seat.participant is participant:
                self._wake(seat, max(when, self.now))

    def _wake(self, seat: _Seat, when: datetime) -> None:
        if seat.planned is not None and seat.planned <= when:
            return
        seat.planned = when
        self._order += 1
        heapq.heappush(self._plan, (when, self._order, seat))

    def append(self, writes: Sequence[Write]) -> Stored | Refused:
        """Store a batch on LOG and deliver it."""
        outcome = self.streams.log.append(writes)
        if isinstance(outcome, Stored):
            for sequence in range(outcome.first, outcome.last + 1):
                # A tombstone in the same batch can already have rolled up an earlier message of it.
                event = self.streams.log.event(sequence)
                if event is not None:
                    self._deliver(self.streams.log, event)
        return outcome

    def publish(self, event: Event) -> Event:
        """Store one fact on USAGE or EXECUTION and deliver it; returns it as stored."""
        stream = self.streams.usage if event.stream == USAGE else self.streams.execution
        stream.append([Write(event=event)])
        stored = stream.event(stream.last_sequence)
        assert stored is not None
        self._deliver(stream, stored)
        return stored

    def _deliver(self, stream: MemoryStream, event: Event) -> None:
        self.events += 1
        if self.history is not None and stream.name == LOG:
            self.history.append(event)
        for watch in self.watchers:
            watch(event)
        entries = self._routes.get(stream.name, {}).get(event.subject.split(".", 1)[0], ())
        last: _Seat | None = None
        for wanted, seat in entries:
            if seat is not last and matches(wanted, event.subject):
                if not seat.inbox or seat.inbox[-1] is not event:
                    seat.inbox.append(event)
                if len(seat.inbox) > MAX_INBOX:
                    raise SimulationError(f"{seat.participant.name} has {MAX_INBOX} undelivered messages")
                self._wake(seat, self.now + self._hop)
                last = seat

    def run_until(self, end: datetime) -> None:
        """Run everything that is planned up to and including `end`; the clock then stands at `end`."""
        at_once = 0
        while self._plan and self._plan[0][0] <= end:
            when, _, seat = heapq.heappop(self._plan)
            if seat.planned != when:
                continue
            at_once = at_once + 1 if when <= self.now else 0
            if at_once > MAX_STEPS_AT_ONCE:
                raise SimulationError(f"{MAX_STEPS_AT_ONCE} steps at {self.now}: time does not move on")
            self.now = max(self.now, when)
            seat.planned = None
            inbox, seat.inbox = seat.inbox, deque()
            self.steps += 1
            again = seat.participant.step(self.now, tuple(inbox), self)
            if again is not None:
                self._wake(seat, max(again, self.now))
        self.now = max(self.now, end)


class ServiceParticipant:
    """A deciding service: the same Cycle that its process runs."""

    def __init__(self, definition: Definition, config: msgspec.Struct, identity: Identity, *, tick: timedelta = TICK) -> None:
        self.name = f"{identity.service}/{identity.replica}"
        self.definition = definition
        self.identity = identity
        self.filters = (*definition.filters, identity.commit_subject, identity.marker_subject)
        self.usage_filters = definition.usage_filters
        self.cycle = Cycle(definition.make_core(config), identity, definition.config_text(config))
        self._tick = tick
        self._started = False

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """One turn of the shell's cycle: fold, propose, store, apply."""
        cycle = self.cycle
        if not self._started:
            self._started = True
            for event in inbox:
                cycle.fold(event, now)
            world.append([Write(event=cycle.start_marker(now, self.filters))])
            return now + self._tick
        for event in inbox:
            cycle.fold(event, now)
        batch = cycle.propose(now)
        if batch is None:
            return now + self._tick
        outcome = world.append(batch.writes())
        if isinstance(outcome, Stored):
            cycle.stored(batch, outcome)
            return now + HOP
        cycle.refused(now)
        return now + self._tick
