"""The clock, the streams, and everybody who lives in the simulation.

Time moves from one planned step to the next. A message that is stored is delivered to every participant whose filters
select it, and wakes it `hop` later, unless it wrote the message and needs no wake for it; beside that a participant is woken
when it asked to be. What happens at the same moment happens in the order in which it was planned, so one seed gives one
history. A participant's `Link` says how late deliveries come and which writes are lost; who acts is known, so that faults hit
its writes and nobody else's.

Bound: at most MAX_STEPS_AT_ONCE steps without time moving on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec

from cotenant.events.envelope import Event
from cotenant.log import EXECUTION, LOG, USAGE, NoAnswer, Refused, Stored, Write, find_out
from cotenant.memory_log import MemoryStream
from cotenant.simulation.links import NEVER, Link, LinkedLog
from cotenant.simulation.routes import Routes
from cotenant.simulation.seats import Participant, Seat, SimulationError

START = datetime(2026, 1, 1, tzinfo=UTC)
HOP = timedelta(milliseconds=1)
TICK = timedelta(seconds=1)
MAX_STEPS_AT_ONCE = 1_000_000


class Streams(msgspec.Struct, frozen=True):
    """The streams of the simulated log."""

    log: MemoryStream
    usage: MemoryStream
    execution: MemoryStream


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
        """Messages stored on all streams."""
        self.deliveries = 0
        """Messages that participants were given: an event counts once for each that reads it."""
        self.steps = 0
        self.stalled_until = NEVER
        """Until then the log has no leader: nobody's write arrives."""
        self.history: list[Event] | None = [] if keep_history else None
        self.watchers: list[Callable[[Event], None]] = []
        self._hop = hop
        self._soon = start + hop
        """When what is stored now is seen."""
        self._log = LinkedLog(self.streams.log, self.append)
        self._seats: list[Seat] = []
        self._seated = 0
        self._by_name: dict[str, Seat] = {}
        self._acting: Seat | None = None
        self._log_routes: Routes[Seat] = Routes()
        self._usage_routes: Routes[Seat] = Routes()
        self._moments: list[datetime] = []
        """When somebody is to be woken, in order."""
        self._due: list[list[Seat]] = []
        """Who is to be woken at each of these moments, in the order in which that was planned."""

    def _clock(self) -> datetime:
        return self.now

    # -- who is there ----------------------------------------------------------------------------------------------

    def add(self, participant: Participant) -> None:
        """Seat a participant: it is given the last message of each of its subjects, then everything that follows."""
        seat = Seat(participant, self._seated)
        self._seated += 1
        self._seats.append(seat)
        self._by_name[participant.name] = seat
        for routes, filters in ((self._log_routes, participant.filters), (self._usage_routes, participant.usage_filters)):
            for wanted in filters:
                routes.add(wanted, seat.number, seat)
        seat.load(self.streams.log, self.streams.usage)
        self._wake(seat, self.now)

    def remove(self, participant: Participant) -> None:
        """Take a participant away: it is not woken any more and gets nothing."""
        for seat in [seat for seat in self._seats if seat.participant is participant]:
            self._seats.remove(seat)
            del self._by_name[participant.name]
            seat.planned = None
            self._log_routes.remove(seat.number)
            self._usage_routes.remove(seat.number)

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
        return len(self._by_name[name])

    def interrupted(self, name: str) -> bool:
        """Whether a participant's reader has a gap that it has not read yet."""
        return self._by_name[name].interrupted

    def leave(self) -> None:
        """The participant that acts loses its consumer: nothing is kept for it until it loads again."""
        self._actor().leave()

    def load(self) -> None:
        """Give the participant that acts a new consumer: the last message of each of its subjects, then what follows."""
        seat = self._actor()
        seat.load(self.streams.log, self.streams.usage)
        self._wake(seat, self._soon)

    def redeliver(self, name: str, count: int) -> None:
        """Deliver `count` messages of LOG that a participant has read once more."""
        seat = self._by_name.get(name)
        if seat is not None and seat.redeliver(self.streams.log, count):
            self._wake(seat, self._soon)

    def interrupt(self, name: str, until: datetime) -> bool:
        """Lose what is delivered of LOG to a participant until a moment; its reader then resumes where the gap began."""
        seat = self._by_name.get(name)
        if seat is None or not seat.interrupt(self.streams.log, until):
            return False
        self._wake(seat, max(until, self.now))
        return True

    def _actor(self) -> Seat:
        if self._acting is None:
            raise SimulationError("only a participant that acts can do that")
        return self._acting

    def _wake(self, seat: Seat, when: datetime) -> None:
        if seat.planned is not None and seat.planned <= when:
            return
        seat.planned = when
        place = bisect_left(self._moments, when)
        if place < len(self._moments) and self._moments[place] == when:
            self._due[place].append(seat)
        else:
            self._moments.insert(place, when)
            self._due.insert(place, [seat])

    # -- storing ---------------------------------------------------------------------------------------------------

    def append(self, writes: Sequence[Write], *, wakes_writer: bool = True) -> Stored | Refused | NoAnswer:
        """Store a batch on LOG and deliver it: one try over the link of whoever acts. A writer that folds what it is told to be
        stored need not be woken by it: it is given that with its next step."""
        seat = self._acting
        instead: Refused | NoAnswer | None = None
        if seat is not None and (seat.link.troubled or self.now < self.stalled_until):
            arrives, instead = seat.link.outcome(self.now, self.now < self.stalled_until)
            if not arrives:
                assert instead is not None
                return instead
        log = self.streams.log
        outcome = log.append(writes)
        if isinstance(outcome, Stored):
            told = seat if instead is None and not wakes_writer else None
            for sequence, write in enumerate(writes, outcome.first):
                event = log.event(sequence)
                if event is not None:
                    self._deliver(event, self._log_routes, told)
                else:
                    # A tombstone in the same batch has rolled it up already: nobody reads it, it was stored all the same.
                    self._deliver(msgspec.structs.replace(write.event, stream=LOG, sequence=sequence), None)
        return outcome if instead is None else instead

    def store(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        """Store a batch as the shell's `store_batch` does: a write that nobody answered is found out about."""
        answer = self.append(writes)
        if not isinstance(answer, NoAnswer):
            return answer
        waiting = find_out(self._log, writes)
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
        kept = self._keep(event)
        if seat is not None and seat.link.troubled:
            for again in seat.link.sent_again(event, self.now):
                self._keep(again)
        return kept

    def _keep(self, event: Event) -> Event:
        stream = self.streams.usage if event.stream == USAGE else self.streams.execution
        outcome = stream.append([Write(event=event, message_id=event.id)])
        assert isinstance(outcome, Stored)
        stored = stream.event(outcome.first)
        if outcome.duplicate:
            if stored is not None and stored.data != event.data:
                raise SimulationError(f"{event.subject}: {stored.ref} has the id {event.id} too, and says something else")
            return msgspec.structs.replace(event, sequence=outcome.first)
        assert stored is not None
        self._deliver(stored, self._usage_routes if event.stream == USAGE else None)
        return stored

    # -- delivering ------------------------------------------------------------------------------------------------

    def _deliver(self, event: Event, routes: Routes[Seat] | None, told: Seat | None = None) -> None:
        """Take down a stored event, give it to its readers, and wake them but for one that was told of it already."""
        self.events += 1
        if self.history is not None and event.stream == LOG:
            self.history.append(event)
        for watch in self.watchers:
            watch(event)
        if routes is None:
            return
        now, soon = self.now, self._soon
        for seat in routes.readers(event.subject):
            when = seat.deliver(event, now, soon)
            if when is not None and seat is not told and (seat.planned is None or when < seat.planned):
                self._wake(seat, when)

    def run_until(self, end: datetime) -> None:
        """Run everything that is planned up to and including `end`; the clock then stands at `end`."""
        while self._moments and self._moments[0] <= end:
            when = self._moments[0]
            self._move_to(when)
            before = self.steps
            for seat in self._due[0]:  # what is planned meanwhile for the same moment comes behind
                if seat.planned == when:
                    self._step(seat)
                    if self.steps - before > MAX_STEPS_AT_ONCE:
                        raise SimulationError(f"{MAX_STEPS_AT_ONCE} steps at {when}: time does not move on")
            del self._moments[0], self._due[0]
        self._move_to(end)

    def _move_to(self, when: datetime) -> None:
        if when > self.now:
            self.now = when
            self._soon = when + self._hop

    def _step(self, seat: Seat) -> None:
        """Give a participant what there is for it, and let it act."""
        seat.planned = None
        self.steps += 1
        inbox, more = seat.take(self.now, self.streams.log)
        self.deliveries += len(inbox)
        if more is not None:
            self._wake(seat, more)
        self._acting = seat
        try:
            again = seat.participant.step(self.now, inbox, self)
        finally:
            self._acting = None
        if again is not None:
            self._wake(seat, again if again > self.now else self.now)
