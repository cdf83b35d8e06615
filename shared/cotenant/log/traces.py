"""The traceparents of the messages that decisions name as their first cause, cached by the driver of a core.

In: messages as they are folded, stored or published. Out: the traceparent of an event that follows from one of them
(`model.trace_context` has the rule). A cause that is no longer cached has none; its effects then begin a trace of their own.
Cores are independent of this, so the simulator and their state carry nothing.

Bound: the newest messages noted, at least `held` and at most twice as many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cotenant.events.envelope import Event
from cotenant.model.trace_context import LENGTH, continued, traceparent_of

HELD = 25_000
"""An entry takes some 190 bytes."""


def about(event: Event) -> dict[str, str]:
    """Return the `extra` of a log line about an event: the line carries the event's trace."""
    return {"traceparent": event.traceparent or traceparent_of(event.causes, event.id)}


class Traces:
    """The traceparents of the messages that decisions name as their first cause."""

    def __init__(self, prefixes: tuple[str, ...] = ("",), held: int = HELD) -> None:
        """`prefixes`: of the subjects that are noted."""
        self._prefixes = prefixes
        self._held = held
        self._new: dict[int | str, str] = {}
        """By sequence on LOG; by reference (`USAGE:7`) on any other stream."""
        self._old: dict[int | str, str] = {}

    def note(self, events: Iterable[Event]) -> None:
        """Remember the traces of some messages."""
        prefixes, new = self._prefixes, self._new
        for event in events:
            text = event.traceparent
            if len(text) == LENGTH and event.subject.startswith(prefixes):
                new[event.sequence if event.stream == "LOG" else event.ref] = text
        if len(new) >= self._held:
            self._old, self._new = new, {}

    def note_stored(self, events: Sequence[Event], first: int) -> None:
        """Remember the traces of a batch that was just stored on LOG, beginning at a sequence."""
        for sequence, event in enumerate(events, first):
            if event.traceparent and event.subject.startswith(self._prefixes):
                self._new[sequence] = event.traceparent

    def of(self, causes: Sequence[str]) -> str:
        """Return the traceparent of the first cause, empty where it is not known."""
        return self.at(causes[0]) if causes else ""

    def at(self, ref: str) -> str:
        """Return the traceparent of a message that is named as `LOG:7`, empty where it is not known."""
        try:
            key = int(ref[4:]) if ref.startswith("LOG:") else ref
        except ValueError:
            return ""
        return self._new.get(key) or self._old.get(key, "")

    def continued(self, causes: Sequence[str], event_id: str) -> str:
        """Return the traceparent of a new event, empty where its first cause's is not known."""
        parent = self.at(causes[0]) if causes else ""
        return continued(parent, event_id) if parent else ""
