"""A deciding service in the simulation: the same Cycle and the same `store_batch` that its process runs, with its restarts.

An incarnation is a fresh core, a new consumer and a start marker whose delivery ends the load. It ends as a process does: it
is killed (before or after a batch is stored, or between two), the outcome of its write is unknown (no answer after all tries),
its consumer was reset, or it is too far behind. A paused process resumes where it stopped, with the batch that it held.

The outcome of a batch is known one step after it was stored; for every second batch, after the deliveries of that step.
Meanwhile the next one is decided (pipelined), however small the first was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from cotenant.engine.commit import Batch, Identity
from cotenant.engine.cycle import Cycle
from cotenant.engine.definition import ServiceDefinition
from cotenant.events.envelope import Event
from cotenant.log.contract import MAX_BEHIND, NoAnswer, Refused, Stored, Write
from cotenant.model.times import EPOCH
from cotenant.simulation.world import HOP, TICK, World


class Death(StrEnum):
    """Where in its cycle a process is killed."""

    BETWEEN = "between"
    """Between two batches."""
    BEFORE = "before"
    """A batch was decided and not sent."""
    AFTER = "after"
    """A batch was stored and not applied."""


_BETWEEN, _BEFORE, _AFTER = Death


class ServiceParticipant:
    """A deciding service; `incarnations` counts its loads. `listeners` are called after a step that decided nothing."""

    def __init__(
        self, definition: ServiceDefinition, config: msgspec.Struct, identity: Identity, *, tick: timedelta = TICK
    ) -> None:
        self.name = f"{identity.service}/{identity.replica}"
        self.definition = definition
        self.config = config
        self.identity = identity
        self.filters = (*definition.filters, identity.commit_subject, identity.marker_subject)
        self.usage_filters = definition.usage_filters
        self.incarnations = 0
        self.listeners: list[Callable[[ServiceParticipant, World], None]] = []
        self.before_deciding: list[Callable[[ServiceParticipant, World], None]] = []
        """Called before each proposal, on the state to be decided on."""
        self._tick = tick
        self._started = False
        self._death: Death | None = None
        self._down = timedelta(0)
        self._down_until = EPOCH
        self._paused_until = EPOCH
        self._pause: timedelta | None = None
        self._held: Batch | None = None
        self._storing: tuple[Batch, Stored | Refused | NoAnswer] | None = None
        self._unread: list[Event] = []
        self.cycle = self._fresh()

    def _fresh(self) -> Cycle:
        core = self.definition.make_core(self.config)
        definition = self.definition
        text = definition.config_text(self.config)
        return Cycle(core, self.identity, text, ahead_from=1, pace=definition.pace, urgent=definition.urgent)

    # -- faults ----------------------------------------------------------------------------------------------------

    def kill(self, death: Death, down: timedelta) -> None:
        """Kill the process at the stated place of its next cycle; it restarts `down` later."""
        self._death, self._down = death, down

    def pause(self, span: timedelta) -> None:
        """Stop the process at its next decision, before the batch is sent; it resumes with that batch after the span."""
        self._pause = span

    @property
    def alive(self) -> bool:
        """Whether there is a process at all."""
        return self._down_until == EPOCH

    @property
    def deciding(self) -> bool:
        """Whether there is a process and it runs."""
        return self.alive and not self.paused and self._started

    @property
    def paused(self) -> bool:
        """Whether the process is stopped."""
        return self._paused_until != EPOCH

    # -- the cycle -------------------------------------------------------------------------------------------------

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """One step of the shell's cycle: fold, propose, store, apply."""
        if self._down_until != EPOCH:
            if now < self._down_until:
                return self._down_until
            return self._restart(now, world)
        if self._paused_until != EPOCH:
            self._unread.extend(inbox)
            if now < self._paused_until:
                return self._paused_until
            return self._resume(now, world)
        if self._death is _BETWEEN:
            return self._die(now, world)
        if not self._started:
            return self._start(now, inbox, world)
        if self._storing is not None:
            again = self._take_outcome(*self._storing, inbox, now, world)
            if again is not None:
                return again
        else:
            self.cycle.fold(inbox, now)
        for check in self.before_deciding:
            check(self, world)
        batch = self.cycle.propose(now)
        if batch is None:
            self._notify(world)
            due, tick = self.cycle.due(now), now + self._tick
            return tick if due is None else min(tick, due)
        if self._death is _BEFORE:
            return self._die(now, world)
        if self._pause is not None:
            self._held, self._paused_until, self._pause = batch, now + self._pause, None
            return self._paused_until
        return self._store(batch, now, world)

    def _start(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime:
        self.incarnations += 1
        outcome = world.store([Write(event=self.cycle.start_marker(now, self.filters, self.incarnations))])
        if not isinstance(outcome, Stored):
            # As in the shell: without its start marker the process ends, and restarts a second later.
            world.leave()
            self._down_until = now + TICK
            return self._down_until
        self._started = True
        self.cycle.fold(inbox, now)
        return now + self._tick

    def _store(self, batch: Batch, now: datetime, world: World) -> datetime:
        outcome = world.store(batch.writes())
        if self._death is _AFTER:
            return self._die(now, world)
        self.cycle.decide_next(batch, now)
        self._storing = batch, outcome
        return now + HOP

    def _take_outcome(
        self, batch: Batch, outcome: Stored | Refused | NoAnswer, inbox: Sequence[Event], now: datetime, world: World
    ) -> datetime | None:
        """Take the outcome of a batch; None: continue in this step."""
        self._storing = None
        if batch.place.prior % 2:
            self.cycle.fold(inbox, now)
            inbox = ()
            self.cycle.decide_next(batch, now)
        if isinstance(outcome, Stored):
            self.cycle.stored(batch, outcome)
            self.cycle.fold(inbox, now)
            return None
        if isinstance(outcome, Refused) and outcome.wrong_sequence:
            self.cycle.refused(now)
            self.cycle.fold(inbox, now)
            return now + self._tick
        # As in the shell: the outcome of the batch is unknown, so the state is loaded from the log again.
        return self._reload(now, world)

    def _reload(self, now: datetime, world: World) -> datetime:
        self.cycle = self._fresh()
        self._started = False
        world.load()
        return now + self._tick

    def _die(self, now: datetime, world: World) -> datetime:
        world.leave()
        self._death = None
        self._down_until = now + self._down
        return self._down_until

    def _restart(self, now: datetime, world: World) -> datetime:
        self._down_until = EPOCH
        self._pause, self._held, self._storing, self._unread = None, None, None, []
        return self._reload(now, world)

    def _resume(self, now: datetime, world: World) -> datetime:
        self._paused_until = EPOCH
        batch, self._held = self._held, None
        unread, self._unread = self._unread, []
        if len(unread) > MAX_BEHIND:
            return self._reload(now, world)
        if batch is not None:
            again = self._store(batch, now, world)
            if not self.alive:
                return again
        self.cycle.fold(unread, now)
        return now + HOP

    def _notify(self, world: World) -> None:
        for listen in self.listeners:
            listen(self, world)
