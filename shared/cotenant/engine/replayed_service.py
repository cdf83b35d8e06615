"""A partition of a service while a log is replayed: what it has not folded yet, and the core that decides again.

In: messages in order, and up to where a commit's state had folded them. Out: decisions.

Where `decide` raises, the messages folded since the last good decision are searched as the service does (`engine.quarantine`),
each attempt with a fresh core: those at fault are left out until a later message of their subject. If the core raises without
any of the suspected messages as well, no message is at fault.

Bounds: the last message of each subject, those not folded yet, and the quarantine's. A search without a result is not repeated
until the core has decided again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from cotenant.engine.core import Core
from cotenant.engine.definition import ServiceDefinition
from cotenant.engine.last_messages import LastMessages
from cotenant.engine.quarantine import Quarantine
from cotenant.events.commits import Commit
from cotenant.events.envelope import Event
from cotenant.model.subjects import selecting


class ReplayedService:
    """One partition of one service: the messages not yet folded, and the core carried along."""

    def __init__(self, definition: ServiceDefinition, source: str) -> None:
        self.definition = definition
        self.source = source
        self.core: Core | None = None
        self.config = ""
        self.foreign: list[Event] = []
        self.own: list[Event] = []
        self.quarantine = Quarantine()
        """Messages that the service itself could not fold or decide on, and this core cannot either."""
        self.last = LastMessages()
        """Of what was folded: a core of another configuration starts from them, as its process does."""
        self.pending: tuple[Event, Commit, list[Event]] | None = None
        """A commit whose batch has not been read to its end."""
        self._text = ""
        self._unproven = LastMessages()
        """Of what was folded since the last good decision."""
        self._faulty = False
        """The core raised last time, and no message is at fault."""
        self._selects = selecting(definition.filters).fullmatch

    def read(self, event: Event) -> None:
        """Keep a message that the service reads until a commit's state has it."""
        if self._selects(event.subject.encode()):
            (self.own if event.source == self.source else self.foreign).append(event)

    def fresh(self, config_text: str, digest: str) -> None:
        """Start a core for a configuration, and fold what earlier ones had folded. It is another process: nothing is
        quarantined yet."""
        self._text, self.config = config_text, digest
        self.quarantine, self._faulty = Quarantine(), False
        self._unproven = LastMessages()
        events = self.last.in_order()
        for event in events:
            self._unproven.note(event)
        self.core = self._make_core()
        self._fold(events, self.core)

    def fold(self, folded: int, own_end: int) -> None:
        """Fold what the state of a commit contains and the core has not yet."""
        assert self.core is not None
        ready = bisect_right(self.foreign, folded, key=_sequence)
        mine = bisect_right(self.own, own_end, key=_sequence)
        events = sorted((*self.foreign[:ready], *self.own[:mine]), key=_sequence)
        self._fold(events, self.core)
        for event in events:
            self.last.note(event)
            self._unproven.note(event)
        del self.foreign[:ready]
        del self.own[:mine]

    def decide(self, now: datetime) -> Sequence[Event]:
        """Decide, without the messages that make the core raise. Raises what the core raises if no message is at fault."""
        assert self.core is not None
        try:
            decided = self.core.decide(now)
        except Exception as error:
            if self._faulty:
                raise
            try:
                decided = self._decide_without_those_at_fault(now, error)
            except Exception:
                self._faulty = True
                self.quarantine.give_up()
                raise
        self._faulty = False
        self._unproven = LastMessages()
        return decided

    def _decide_without_those_at_fault(self, now: datetime, error: Exception) -> Sequence[Event]:
        quarantine = self.quarantine
        quarantine.decided()
        quarantine.fold(self._unproven.in_order(), _nothing)
        quarantine.failed(error)
        core = self._refolded()
        # It raises if the suspected messages have nothing to do with it.
        while not quarantine.search(core.apply, partial(core.decide, now)):
            core = self._refolded()
        decided = core.decide(now)
        self.core = core
        quarantine.decided()
        return decided

    def _refolded(self) -> Core:
        """Return a fresh core that has folded everything but what is quarantined or suspected."""
        core = self._make_core()
        self._fold(self.last.in_order(), core)
        return core

    def _make_core(self) -> Core:
        return self.definition.make_core(self.definition.config_from(self._text))

    def _fold(self, events: Sequence[Event], core: Core) -> None:
        """Fold; the quarantine need not remember deliveries, as `_unproven` has what they held, and nobody reads findings."""
        self.quarantine.fold(events, core.apply)
        self.quarantine.decided()
        self.quarantine.findings.clear()


def raised_in(error: Exception) -> str:
    """Return where an exception was raised: "module:line in function"."""
    at = error.__traceback__
    if at is None:
        return "nowhere"
    while at.tb_next is not None:
        at = at.tb_next
    frame = at.tb_frame
    return f"{frame.f_globals.get('__name__', '?')}:{at.tb_lineno} in {frame.f_code.co_name}"


def _nothing(_: Event) -> None:
    """The messages were folded before."""


def _sequence(event: Event) -> int:
    return event.sequence
