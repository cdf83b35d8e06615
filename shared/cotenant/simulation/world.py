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
from cotenant.log.contract import EXECUTION, LOG, USAGE, NoAnswer, Refused, Stored, Write, find_out
from cotenant.log.memory import MemoryStream
from cotenant.simulation.links import NEVER, Link, LinkedLog
from cotenant.simulation.routes import Routes
from cotenant.simulation.seats import MAX_INBOX, Participant, Seat, SimulationError

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
    """The clock, the streams and everybody in it. Raises ValueError for a `hop` that takes no time."""

    def __init__(self, *, seed: int = 0, start: datetime = START, hop: timedelta = HOP, keep_history: bool = False) -> None:
        if hop <= timedelta(0):
            raise ValueError(f"a message takes time to be delivered: hop is {hop}")
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
        self._due_soon: list[Seat] = []
        """Who is to be woken then; empty as long as nobody is."""
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

    def trouble(self, name: str) -> Link | None:
        """A participant's way to the log, to be given faults; None where nobody has that name."""
        seat = self._by_name.get(name)
        return seat.trouble() if seat is not None else None

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
        if seat.planned is None or when < seat.planned:
            self._plan(seat, when)

    def _plan(self, seat: Seat, when: datetime) -> None:
        """Wake a participant at a moment; `planned` is the very object that stands in `_moments`."""
        if when is self._soon and self._due_soon:
            seat.planned = when
            self._due_soon.append(seat)
            return
        moments = self._moments
        place = bisect_left(moments, when)
        if place < len(moments) and moments[place] == when:
            due = self._due[place]
            due.append(seat)
        else:
            due = [seat]
            moments.insert(place, when)
            self._due.insert(place, due)
        seat.planned = moments[place]
        if when is self._soon:
            self._soon, self._due_soon = moments[place], due

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
            if seat.undisturbed:
                seat.inbox.append(event)
                when = soon
            elif (late := seat.deliver(event, now, soon)) is not None:
                when = late
            else:
                continue
            if (seat.planned is None or when < seat.planned) and seat is not told:
                self._plan(seat, when)

    def run_until(self, end: datetime) -> None:
        """Run everything that is planned up to and including `end`; the clock then stands at `end`."""
        moments, due = self._moments, self._due
        while moments and moments[0] <= end:
            when = moments[0]
            self._move_to(when)
            most = self.steps + MAX_STEPS_AT_ONCE
            for seat in due[0]:  # what is planned meanwhile for the same moment comes behind
                if seat.planned is when:
                    self._step(seat)
                    if self.steps > most:
                        raise SimulationError(f"{MAX_STEPS_AT_ONCE} steps at {when}: time does not move on")
            del moments[0], due[0]
        self._move_to(end)

    def _move_to(self, when: datetime) -> None:
        if when > self.now:
            self.now = when
            self._soon, self._due_soon = when + self._hop, []

    def _step(self, seat: Seat) -> None:
        """Give a participant what there is for it, and let it act."""
        seat.planned = None
        self.steps += 1
        inbox, more = seat.take(self.now, self.streams.log)
        delivered = len(inbox)
        if delivered > MAX_INBOX:
            raise seat.crowded()
        self.deliveries += delivered
        if more is not None:
            self._wake(seat, more)
        now, self._acting = self.now, seat
        try:
            again = seat.participant.step(now, inbox, self)
        finally:
            self._acting = None
        if again is not None:
            self._wake(seat, again if again > now else now)
