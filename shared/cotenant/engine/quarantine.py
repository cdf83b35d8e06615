"""Messages that a core cannot fold or decide on: quarantined by subject, so that the service continues without them.

A message that can be decoded may still hold figures that no rule covers. Where `apply` raises, that message is
quarantined. Where `decide` raises, the messages folded since the last good decision are suspected: the next incarnation folds
them last, part by part with a decision after each. A part that fails is cut into PARTS smaller ones for the incarnation after
that, until it is a single message, which is quarantined. Where `decide` raises without the suspected messages too, they are
not at fault: everything that was folded is suspected instead, and if that is nothing, the exception is raised.

A later message of a subject ends its quarantine. In: events, exceptions. Out: what to fold, and `Finding`s to be published as
dead letters. Pure; kept in memory until the process ends: after a restart the same messages are found again.

Bounds: MAX_HELD subjects (beyond it the core's exception is raised); REMEMBERED_PULLS deliveries without a decision, of which
only subjects and sequences are kept: a load is one long delivery without a decision, and its events are most of what it reads.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from operator import length_hint

import msgspec

from cotenant.events.envelope import Event

MAX_HELD = 1000
PARTS = 16
REMEMBERED_PULLS = 4096


_MARKERS = "services."
"""Where start markers are (`model.subjects.marker_subject`)."""

Key = tuple[str, int]
"""Subject and sequence of a message."""


class Finding(msgspec.Struct, frozen=True):
    """A quarantined message, and the reason."""

    event: Event
    reason: str


class Quarantine:
    """The quarantined messages of one service."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        """Sequence of the quarantined message, by subject."""
        self.findings: list[Finding] = []
        """Findings that are not published yet."""
        self._recent: list[tuple[list[str], array[int]]] = []
        """Subjects and sequences of each delivery since the last good decision."""
        self._parts: list[frozenset[Key]] = []
        """Suspected messages, in the order in which they are tried."""
        self._kept_back: dict[str, Event] = {}
        """Suspected messages of this incarnation, none of them folded before the search begins."""

    # -- folding -------------------------------------------------------------------------------------------------

    def fold(self, events: Sequence[Event], apply: Callable[[Event], None]) -> None:
        """Fold messages that are not quarantined or suspected; quarantine one that raises."""

        def apply_each(remaining: Iterator[Event]) -> None:
            for event in remaining:
                apply(event)

        self.fold_with(events, apply_each)

    def fold_with(self, events: Sequence[Event], apply_each: Callable[[Iterator[Event]], None]) -> None:
        """As `fold`, with a function that folds each message of an iterator; the one that it took last is at fault if it
        raises."""
        if len(self._recent) < REMEMBERED_PULLS:
            self._recent.append(([event.subject for event in events], array("q", [event.sequence for event in events])))
        selected = list(events) if not (self.held or self._parts) else self._without(events)
        remaining = iter(selected)
        while True:
            try:
                apply_each(remaining)
            except Exception as error:  # noqa: BLE001 - whatever a message makes a rule raise, the service goes on without it
                self.set_aside(selected[len(selected) - length_hint(remaining) - 1], error)
                continue
            return

    def _without(self, events: Sequence[Event]) -> list[Event]:
        """Leave out quarantined or suspected messages; a younger message of their subject ends that."""
        selected = []
        for event in events:
            held = self.held.get(event.subject)
            if held is not None:
                if event.sequence <= held:
                    continue
                del self.held[event.subject]
            if event.subject in self._kept_back:
                if event.sequence > self._kept_back[event.subject].sequence:
                    self._kept_back[event.subject] = event
                continue
            if any((event.subject, event.sequence) in part for part in self._parts):
                self._kept_back[event.subject] = event
                continue
            selected.append(event)
        return selected

    def set_aside(self, event: Event, error: Exception) -> None:
        """Quarantine a message. Raises the error itself if too many are quarantined: then the messages are not at fault."""
        if len(self.held) >= MAX_HELD:
            raise error
        self.held[event.subject] = event.sequence
        self.findings.append(Finding(event, f"{type(error).__name__}: {error}"))

    # -- deciding ------------------------------------------------------------------------------------------------

    def decided(self) -> None:
        """Record a decision: what was folded before it is not suspected."""
        self._recent.clear()

    def failed(self, error: Exception) -> None:
        """Record that `decide` raised: the next incarnation searches the messages folded since the last good decision, those
        that were withheld included. Raises the error itself if none was folded: then no message is at fault."""
        suspected = {
            key
            for subjects, sequences in self._recent
            for key in zip(subjects, sequences, strict=True)
            # Nothing is decided on start markers, and the next incarnation's ends its load.
            if not key[0].startswith(_MARKERS)
        }
        if all(subject in self._kept_back for subject, _ in suspected):
            raise error
        self._begin([frozenset(suspected)])

    def _begin(self, parts: list[frozenset[Key]]) -> None:
        self._parts = parts
        self._recent.clear()
        self._kept_back.clear()

    def give_up(self) -> None:
        """End a search: no message is at fault, so nothing is withheld or suspected any more."""
        self._begin([])

    @property
    def searching(self) -> bool:
        """Whether suspected messages are still withheld."""
        return bool(self._kept_back)

    def search(self, apply: Callable[[Event], None], decide: Callable[[], object]) -> bool:
        """Fold the suspected messages part by part, with a decision after each, once everything else is folded.

        True: all are folded, or were quarantined before they entered the state. False: the state holds a message that cannot be
        decided on; the next incarnation narrows the search, or widens it if that message was not suspected. Raises what
        `decide` raises where nothing is folded.
        """
        parts = self._parts
        try:
            decide()
        except Exception as error:  # noqa: BLE001 - see the module
            self.failed(error)
            return False
        for index, part in enumerate(parts):
            waiting = [event for event in self._kept_back.values() if (event.subject, event.sequence) in part]
            self.fold_part(sorted(waiting, key=_sequence), apply)
            try:
                decide()
            except Exception as error:  # noqa: BLE001 - see the module
                if len(waiting) == 1:
                    self.set_aside(waiting[0], error)
                self._begin([*(_cut(waiting) if len(waiting) > 1 else ()), *parts[index + 1 :]])
                return False
        known = frozenset[Key]().union(*parts)
        younger = [event for event in self._kept_back.values() if (event.subject, event.sequence) not in known]
        self._begin([])
        self.fold(sorted(younger, key=_sequence), apply)
        return True

    def fold_part(self, events: Sequence[Event], apply: Callable[[Event], None]) -> None:
        """Fold suspected messages."""
        for event in events:
            try:
                apply(event)
            except Exception as error:  # noqa: BLE001 - see the module
                self.set_aside(event, error)


def _cut(events: Sequence[Event]) -> list[frozenset[Key]]:
    ordered = sorted(events, key=_sequence)
    size = -(-len(ordered) // PARTS)
    parts = (ordered[first : first + size] for first in range(0, len(ordered), size))
    return [frozenset((event.subject, event.sequence) for event in part) for part in parts]


def _sequence(event: Event) -> int:
    return event.sequence
