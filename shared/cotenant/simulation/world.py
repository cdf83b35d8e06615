"""The clock, the streams, and everybody who lives in the simulation.

Time moves from one planned step to the next. A message that is stored is delivered to every participant whose filters
select it, and wakes it `hop` later; beside that a participant is woken when it asked to be. What happens at the same moment
happens in the order in which it was planned, so one seed gives one history. A participant's `Link` says how late deliveries
come and which writes are lost; who acts is known, so that faults hit its writes and nobody else's.

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

from cotenant.events.envelope import Event
from cotenant.log import EXECUTION, LOG, USAGE, NoAnswer, Refused, Stored, Write, store_batch
from cotenant.memory_log import MemoryStream
from cotenant.simulation.links import NEVER, Link, LinkedLog
from cotenant.subjects import matches

START = datetime(2026, 1, 1, tzinfo=UTC)
HOP = timedelta(milliseconds=1)
TICK = timedelta(seconds=1)
MAX_INBOX = 1_000_000
MAX_STEPS_AT_ONCE = 1_000_000
MAX_REDELIVERED = 1_000
ROUTES_KEPT = 200_000


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
        self.late: list[tuple[datetime, int, Event]] = []
        self.planned: datetime | None = None
        self.link = Link()
        self.log_through = NEVER
        """LOG is delivered in order: no message is seen before one that came earlier."""
        self.away = False
        self.gap_until: datetime | None = None
        """Until then nothing of LOG is delivered; then its consumer resumes behind `gap_after`."""
        self.gap_after = 0

    def forget(self) -> None:
        """Nothing is under way any more."""
        self.inbox.clear()
        self.late.clear()
        self.gap_until = None


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
        self.stalled_until = NEVER
        """Until then the log has no leader: nobody's write arrives."""
        self.history: list[Event] | None = [] if keep_history else None
        self.watchers: list[Callable[[Event], None]] = []
        self._hop = hop
        self._seats: list[_Seat] = []
        self._by_name: dict[str, _Seat] = {}
        self._acting: _Seat | None = None
        self._routes: dict[str, dict[str, list[tuple[str, _Seat]]]] = {LOG: {}, USAGE: {}}
        self._routed: dict[str, dict[str, tuple[_Seat, ...]]] = {LOG: {}, USAGE: {}}
        self._plan: list[tuple[datetime, int, _Seat]] = []
        self._order = 0

    def _clock(self) -> datetime:
        return self.now

    # -- who is there ----------------------------------------------------------------------------------------------

    def add(self, participant: Participant) -> None:
        """Seat a participant: it is given the last message of each of its subjects, then everything that follows."""
        seat = _Seat(participant)
        self._seats.append(seat)
        self._by_name[participant.name] = seat
        for stream, filters in ((LOG, participant.filters), (USAGE, participant.usage_filters)):
            for wanted in filters:
                self._routes[stream].setdefault(_first_two(wanted), []).append((wanted, seat))
            self._routed[stream].clear()
        self._fill(seat)
        self._wake(seat, self.now)

    def remove(self, participant: Participant) -> None:
        """Take a participant away: it is not woken any more and gets nothing."""
        for seat in [seat for seat in self._seats if seat.participant is participant]:
            self._seats.remove(seat)
            del self._by_name[participant.name]
            seat.planned = None
            for stream, routes in self._routes.items():
                for head, entries in routes.items():
                    routes[head] = [entry for entry in entries if entry[1] is not seat]
                self._routed[stream].clear()

    def wake(self, participant: Participant, when: datetime) -> None:
        """Wake a participant at the latest at a moment: it was told something outside the log."""
        seat = self._by_name.get(participant.name)
        if seat is not None and seat.participant is participant:
            self._wake(seat, max(when, self.now))

    def link(self, name: str) -> Link | None:
        """A participant's way to the log, None where nobody has that name."""
        seat = self._by_name.get(name)
        return seat.link if seat is not None else None

    def waiting_for(self, name: str) -> int:
        """How many messages are on their way to a participant."""
        seat = self._by_name[name]
        return len(seat.inbox) + len(seat.late)

    def leave(self) -> None:
        """The participant that acts loses its consumer: nothing is kept for it until it loads again."""
        seat = self._actor()
        seat.forget()
        seat.away = True

    def load(self) -> None:
        """Give the participant that acts a new consumer: the last message of each of its subjects, then what follows."""
        seat = self._actor()
        seat.away = False
        seat.forget()
        seat.log_through = NEVER
        self._fill(seat)
        self._wake(seat, self.now + self._hop)

    def redeliver(self, name: str, count: int) -> None:
        """Deliver `count` messages of LOG that a participant has read once more: not the newest, so that they are overtaken."""
        seat = self._by_name.get(name)
        if seat is None or seat.away or seat.gap_until is not None:
            return
        log = self.streams.log
        found = log.after(max(log.last_sequence - MAX_REDELIVERED, 0), seat.participant.filters, MAX_REDELIVERED)
        for sequence in found[-2 * count : -count]:
            event = log.event(sequence)
            if event is not None:
                seat.inbox.append(event)
        self._wake(seat, self.now + self._hop)

    def interrupt(self, name: str, until: datetime) -> bool:
        """Lose what is delivered of LOG to a participant until a moment. Then its reader finds the gap, and resumes behind the
        last message that it was given: it reads what the stream still holds, so it can miss history, never the last state.
        """
        seat = self._by_name.get(name)
        if seat is None or seat.away or seat.gap_until is not None:
            return False
        under_way = [event.sequence for event in seat.inbox if event.stream == LOG]
        under_way += [entry[2].sequence for entry in seat.late if entry[2].stream == LOG]
        seat.gap_after = min(under_way, default=self.streams.log.last_sequence + 1) - 1
        seat.inbox = deque(event for event in seat.inbox if event.stream != LOG)
        seat.late = [entry for entry in seat.late if entry[2].stream != LOG]
        heapq.heapify(seat.late)
        seat.gap_until = until
        self._wake(seat, until)
        return True

    def _resume(self, seat: _Seat) -> None:
        log = self.streams.log
        log.expire()
        for sequence in log.after(seat.gap_after, seat.participant.filters, MAX_INBOX):
            event = log.event(sequence)
            if event is not None:
                seat.inbox.append(event)
        seat.gap_until = None

    def _actor(self) -> _Seat:
        if self._acting is None:
            raise SimulationError("only a participant that acts can do that")
        return self._acting

    def _fill(self, seat: _Seat) -> None:
        participant = seat.participant
        for stream, filters in ((self.streams.log, participant.filters), (self.streams.usage, participant.usage_filters)):
            for sequence in stream.snapshot(filters) if filters else ():
                event = stream.event(sequence)
                if event is not None:
                    seat.inbox.append(event)

    def _wake(self, seat: _Seat, when: datetime) -> None:
        if seat.planned is not None and seat.planned <= when:
            return
        seat.planned = when
        self._order += 1
        heapq.heappush(self._plan, (when, self._order, seat))

    # -- storing ---------------------------------------------------------------------------------------------------

    def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        """Store a batch on LOG and deliver it: one try over the link of whoever acts."""
        seat = self._acting
        instead: Refused | NoAnswer | None = None
        if seat is not None and (seat.link.troubled or self.now < self.stalled_until):
            arrives, instead = seat.link.outcome(self.now, self.now < self.stalled_until)
            if not arrives:
                assert instead is not None
                return instead
        outcome = self.streams.log.append(writes)
        if isinstance(outcome, Stored):
            for write, sequence in zip(writes, range(outcome.first, outcome.last + 1), strict=True):
                event = self.streams.log.event(sequence)
                if event is not None:
                    self._deliver(self.streams.log, event)
                else:
                    # A tombstone in the same batch has rolled it up already: nobody reads it, it was stored all the same.
                    self._record(LOG, msgspec.structs.replace(write.event, stream=LOG, sequence=sequence))
        return outcome if instead is None else instead

    def store(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        """Store a batch as the shell does: `store_batch` finds out what became of a write that nobody answered."""
        waiting = store_batch(LinkedLog(self.streams.log, self.append), writes)
        try:
            waiting.send(None)
        except StopIteration as finished:
            outcome: Stored | Refused | NoAnswer = finished.value
            return outcome
        raise SimulationError("a write waits for something outside the simulation")

    def publish(self, event: Event) -> Event | None:
        """Store one fact on USAGE or EXECUTION and deliver it; returns it as stored, None where it was lost."""
        seat = self._acting
        if seat is not None and seat.link.troubled and seat.link.loses(self.now):
            return None
        stream = self.streams.usage if event.stream == USAGE else self.streams.execution
        if seat is not None and seat.link.repeats > 0:
            # No message ids are sent, so the server's window of deduplication takes none of them for the same.
            seat.link.repeats -= 1
            self._keep(stream, event)
        return self._keep(stream, event)

    def _keep(self, stream: MemoryStream, event: Event) -> Event:
        stream.append([Write(event=event)])
        stored = stream.event(stream.last_sequence)
        assert stored is not None
        self._deliver(stream, stored)
        return stored

    # -- delivering ------------------------------------------------------------------------------------------------

    def _record(self, stream: str, event: Event) -> None:
        self.events += 1
        if self.history is not None and stream == LOG:
            self.history.append(event)
        for watch in self.watchers:
            watch(event)

    def _deliver(self, stream: MemoryStream, event: Event) -> None:
        self._record(stream.name, event)
        if stream.name not in self._routes:
            return
        for seat in self._readers(stream.name, event.subject):
            if seat.away or (seat.gap_until is not None and stream.name == LOG):
                continue
            if seat.link.troubled:
                self._deliver_late(seat, event)
                continue
            seat.inbox.append(event)
            if len(seat.inbox) > MAX_INBOX:
                raise SimulationError(f"{seat.participant.name} has {MAX_INBOX} undelivered messages")
            self._wake(seat, self.now + self._hop)

    def _readers(self, stream: str, subject: str) -> tuple[_Seat, ...]:
        routed = self._routed[stream]
        found = routed.get(subject)
        if found is None:
            routes = self._routes[stream]
            first, _, _ = subject.partition(".")
            heads = dict.fromkeys((_first_two(subject), f"{first}.*", "*"))
            seats = {
                id(seat): seat for head in heads for wanted, seat in routes.get(head, ()) if matches(wanted, subject)
            }
            if len(routed) >= ROUTES_KEPT:
                routed.clear()
            # In the order of their seats, so that the history does not depend on filters.
            found = routed[subject] = tuple(seat for seat in self._seats if id(seat) in seats) if seats else ()
        return found

    def _deliver_late(self, seat: _Seat, event: Event) -> None:
        when = self.now + self._hop + seat.link.lateness(event, self.now)
        if event.stream == LOG:
            when = seat.log_through = max(when, seat.log_through)
        self._order += 1
        heapq.heappush(seat.late, (when, self._order, event))
        if len(seat.late) > MAX_INBOX:
            raise SimulationError(f"{seat.participant.name} has {MAX_INBOX} undelivered messages")
        self._wake(seat, max(when, seat.link.severed_until))

    def _arrived(self, seat: _Seat) -> Sequence[Event]:
        """What the participant sees now."""
        if seat.gap_until is not None:
            if self.now < seat.gap_until:
                self._wake(seat, seat.gap_until)
            else:
                self._resume(seat)
        if not seat.link.troubled:
            inbox, seat.inbox = seat.inbox, deque()
            return tuple(inbox)
        if seat.link.severed(self.now):
            self._wake(seat, seat.link.severed_until)
            return ()
        inbox, seat.inbox = seat.inbox, deque()
        while seat.late and seat.late[0][0] <= self.now:
            inbox.append(heapq.heappop(seat.late)[2])
        if seat.late:
            self._wake(seat, seat.late[0][0])
        return tuple(inbox)

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
            self.steps += 1
            inbox = self._arrived(seat)
            self._acting = seat
            try:
                again = seat.participant.step(self.now, inbox, self)
            finally:
                self._acting = None
            if again is not None:
                self._wake(seat, max(again, self.now))
        self.now = max(self.now, end)


def _first_two(subject: str) -> str:
    """What a filter or a subject is filed under: its first two tokens, fewer where the filter leaves them open."""
    first, _, rest = subject.partition(".")
    if first in ("*", ">") or not rest:
        return "*" if first in ("*", ">") else first
    second = rest.partition(".")[0]
    return f"{first}.*" if second in ("*", ">") else f"{first}.{second}"
