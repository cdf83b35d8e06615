"""The clock, the streams and the participants of the simulation.

Time moves from one planned step to the next. A message that is stored is delivered to every participant whose filters
select it, and wakes it `hop` later, unless it wrote the message and needs no wake for it; beside that a participant is woken
when it asked to be. What happens at the same moment happens in the order in which it was planned, so one seed gives one
history. A participant's `NetworkLink` says how late deliveries come and which writes are lost; the acting participant is known,
so that faults affect only its writes.

Bound: at most MAX_STEPS_AT_ONCE steps without the time advancing.

Over 300 lines: the schedule of wake-ups is not a separate class, because storing, delivering and waking are one inner loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Protocol

import msgspec

from cotenant.events.envelope import Event
from cotenant.log.contract import LOG, USAGE, NoAnswer, Refused, Stored, Write
from cotenant.log.storing import find_out
from cotenant.model.times import EPOCH
from cotenant.simulation.links import LinkedLog, NetworkLink
from cotenant.simulation.routes import Routes
from cotenant.simulation.streams import new_streams
from cotenant.simulation.subscriptions import MAX_INBOX, SimulationError, Subscriber, Subscription

START = datetime(2026, 1, 1, tzinfo=UTC)
HOP = timedelta(milliseconds=1)
TICK = timedelta(seconds=1)
MAX_STEPS_AT_ONCE = 1_000_000


class Participant(Subscriber, Protocol):
    """Anything that runs in the simulation: a service, a node, a workload, a fault."""

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """Fold the inbox, act, and return when to be woken at the latest (None: at the next delivery)."""


_Subscription = Subscription[Participant]


class World:
    """The clock, the streams and all participants. Raises ValueError for a `hop` that takes no time."""

    def __init__(self, *, seed: int = 0, start: datetime = START, hop: timedelta = HOP, keep_history: bool = False) -> None:
        if hop <= timedelta(0):
            raise ValueError(f"a message takes time to be delivered: hop is {hop}")
        self.now = start
        self.random = Random(seed)
        self.streams = new_streams(self._clock)
        self.events = 0
        """Messages stored on all streams."""
        self.deliveries = 0
        """Messages delivered to participants: an event counts once for each that reads it."""
        self.steps = 0
        self.stalled_until = EPOCH
        """Until then the log has no leader: no write arrives."""
        self.history: list[Event] | None = [] if keep_history else None
        self.watchers: list[Callable[[Event], None]] = []
        self._hop = hop
        self._soon = start + hop
        """When what is stored now is seen."""
        self._due_soon: list[_Subscription] = []
        """The participant woken then; empty if none."""
        self._log = LinkedLog(self.streams.log, self.append)
        self._subscriptions: list[_Subscription] = []
        self._subscribed = 0
        self._by_name: dict[str, _Subscription] = {}
        self._acting: _Subscription | None = None
        self._log_routes: Routes[_Subscription] = Routes()
        self._usage_routes: Routes[_Subscription] = Routes()
        self._moments: list[datetime] = []
        """The moments of planned wakes, in order."""
        self._due: list[list[_Subscription]] = []
        """Who is woken at each of these moments, in the order in which that was planned."""

    def _clock(self) -> datetime:
        return self.now

    # -- who is there ----------------------------------------------------------------------------------------------

    def add(self, participant: Participant) -> None:
        """Subscribe a participant: it is given the last message of each of its subjects, then everything that follows."""
        subscription = _Subscription(participant, self._subscribed)
        self._subscribed += 1
        self._subscriptions.append(subscription)
        self._by_name[participant.name] = subscription
        for routes, filters in ((self._log_routes, participant.filters), (self._usage_routes, participant.usage_filters)):
            for wanted in filters:
                routes.add(wanted, subscription.number, subscription)
        subscription.load(self.streams.log, self.streams.usage)
        self._wake(subscription, self.now)

    def remove(self, participant: Participant) -> None:
        """Remove a participant: it is not woken any more and receives nothing."""
        for subscription in [subscription for subscription in self._subscriptions if subscription.participant is participant]:
            self._subscriptions.remove(subscription)
            del self._by_name[participant.name]
            subscription.planned = None
            self._log_routes.remove(subscription.number)
            self._usage_routes.remove(subscription.number)

    def wake(self, participant: Participant, when: datetime) -> None:
        """Wake a participant no later than `when`, for something that did not come over the log."""
        subscription = self._by_name.get(participant.name)
        if subscription is not None and subscription.participant is participant:
            self._wake(subscription, max(when, self.now))

    def link(self, name: str) -> NetworkLink | None:
        """A participant's link to the log, None for an unknown name."""
        subscription = self._by_name.get(name)
        return subscription.link if subscription is not None else None

    def trouble(self, name: str) -> NetworkLink | None:
        """A participant's link to the log, for faults; None for an unknown name."""
        subscription = self._by_name.get(name)
        return subscription.trouble() if subscription is not None else None

    def waiting_for(self, name: str) -> int:
        """How many messages are in flight to a participant."""
        return len(self._by_name[name])

    def interrupted(self, name: str) -> bool:
        """Whether a participant's reader has a gap that it has not read yet."""
        return self._by_name[name].interrupted

    def leave(self) -> None:
        """The participant that acts loses its consumer: nothing is kept for it until it loads again."""
        self._actor().leave()

    def load(self) -> None:
        """Give the participant that acts a new consumer: the last message of each of its subjects, then what follows."""
        subscription = self._actor()
        subscription.load(self.streams.log, self.streams.usage)
        self._wake(subscription, self._soon)

    def redeliver(self, name: str, count: int) -> None:
        """Deliver `count` messages of LOG that a participant has read once more."""
        subscription = self._by_name.get(name)
        if subscription is not None and subscription.redeliver(self.streams.log, count):
            self._wake(subscription, self._soon)

    def interrupt(self, name: str, until: datetime) -> bool:
        """Lose what is delivered of LOG to a participant until a moment; its reader then resumes where the gap began."""
        subscription = self._by_name.get(name)
        if subscription is None or not subscription.interrupt(self.streams.log, until):
            return False
        self._wake(subscription, max(until, self.now))
        return True

    def _actor(self) -> _Subscription:
        if self._acting is None:
            raise SimulationError("only a participant that acts can do that")
        return self._acting

    def _wake(self, subscription: _Subscription, when: datetime) -> None:
        if subscription.planned is None or when < subscription.planned:
            self._plan(subscription, when)

    def _plan(self, subscription: _Subscription, when: datetime) -> None:
        """Wake a participant at a moment; `planned` is the same object as in `_moments`."""
        is_soon = when is self._soon
        if is_soon and self._due_soon:
            subscription.planned = when
            self._due_soon.append(subscription)
            return
        moments = self._moments
        place = bisect_left(moments, when)
        if place < len(moments) and (there := moments[place]) == when:
            when = there
            due = self._due[place]
            due.append(subscription)
        else:
            due = [subscription]
            moments.insert(place, when)
            self._due.insert(place, due)
        subscription.planned = when
        if is_soon:
            self._soon, self._due_soon = when, due

    # -- storing ---------------------------------------------------------------------------------------------------

    def append(self, writes: Sequence[Write], *, wakes_writer: bool = True) -> Stored | Refused | NoAnswer:
        """Store a batch on LOG and deliver it: one try over the acting participant's link. A writer that folds stored events
        from the acknowledgement need not be woken by them: it receives them with its next step."""
        subscription = self._acting
        instead: Refused | NoAnswer | None = None
        if subscription is not None and (subscription.link.troubled or self.now < self.stalled_until):
            arrives, instead = subscription.link.outcome(self.now, self.now < self.stalled_until)
            if not arrives:
                assert instead is not None
                return instead
        log = self.streams.log
        outcome = log.append(writes)
        if isinstance(outcome, Stored) and not outcome.duplicate:
            notified = subscription if instead is None and not wakes_writer else None
            routes = self._log_routes
            for index, event in enumerate(log.events(outcome)):
                if event is not None:
                    self._deliver(event, routes, notified)
                else:
                    # A tombstone in the same batch has rolled it up already: it was stored, but no reader receives it.
                    rolled_up = msgspec.structs.replace(writes[index].event, stream=LOG, sequence=outcome.first + index)
                    self._deliver(rolled_up, None)
        return outcome if instead is None else instead

    def store(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        """Store a batch as the shell's `store_batch` does: the outcome of an unanswered write is looked up."""
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
        subscription = self._acting
        if subscription is not None and subscription.link.troubled and subscription.link.loses(self.now):
            return None
        kept = self._keep(event)
        if subscription is not None and subscription.link.troubled:
            for again in subscription.link.sent_again(event, self.now):
                self._keep(again)
        return kept

    def _keep(self, event: Event) -> Event:
        stream = self.streams.usage if event.stream == USAGE else self.streams.execution
        outcome = stream.append([Write(event=event, message_id=event.id)])
        assert isinstance(outcome, Stored)
        stored = stream.event(outcome.first)
        if outcome.duplicate:
            if stored is not None and stored.data != event.data:
                raise SimulationError(f"{event.subject}: {stored.ref} has the id {event.id} too, with other content")
            return msgspec.structs.replace(event, sequence=outcome.first)
        assert stored is not None
        self._deliver(stored, self._usage_routes if event.stream == USAGE else None)
        return stored

    # -- delivering ------------------------------------------------------------------------------------------------

    def _deliver(self, event: Event, routes: Routes[_Subscription] | None, notified: _Subscription | None = None) -> None:
        """Record a stored event, deliver it to its readers, and wake them except the one that was notified already."""
        self.events += 1
        if self.history is not None and event.stream == LOG:
            self.history.append(event)
        for watch in self.watchers:
            watch(event)
        if routes is None:
            return
        soon = self._soon
        for subscription in routes.readers(event.subject):
            if subscription.undisturbed:
                subscription.inbox.append(event)
                when = soon
            elif (late := subscription.deliver(event, self.now, soon)) is not None:
                when = late
            else:
                continue
            planned = subscription.planned
            if planned is when or subscription is notified:
                continue
            if planned is None or when < planned:
                self._plan(subscription, when)
                soon = self._soon

    def run_until(self, end: datetime) -> None:
        """Run everything that is planned up to and including `end`; the clock then stands at `end`."""
        moments, due = self._moments, self._due
        while moments and moments[0] <= end:
            when = moments[0]
            self._move_to(when)
            most = self.steps + MAX_STEPS_AT_ONCE
            for subscription in due[0]:  # what is planned meanwhile for the same moment comes behind
                if subscription.planned is when:
                    self._step(subscription)
                    if self.steps > most:
                        raise SimulationError(f"{MAX_STEPS_AT_ONCE} steps at {when}: time does not move on")
            del moments[0], due[0]
        self._move_to(end)

    def _move_to(self, when: datetime) -> None:
        if when > self.now:
            self.now, self._soon, self._due_soon = when, when + self._hop, []

    def _step(self, subscription: _Subscription) -> None:
        """Deliver what is due to a participant and run its step."""
        subscription.planned = None
        self.steps += 1
        now = self.now
        inbox: Sequence[Event] = subscription.inbox
        if not subscription.undisturbed:
            inbox, more = subscription.take(now, self.streams.log)
            if more is not None:
                self._wake(subscription, more)
        elif inbox:
            subscription.inbox = []
        else:
            inbox = ()
        if inbox:
            delivered = len(inbox)
            if delivered > MAX_INBOX:
                raise subscription.crowded()
            self.deliveries += delivered
        self._acting = subscription
        try:
            again = subscription.participant.step(now, inbox, self)
        finally:
            self._acting = None
        if again is not None:
            when = again if again > now else now
            if subscription.planned is None or when < subscription.planned:
                self._plan(subscription, when)
