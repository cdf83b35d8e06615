"""Which deliveries are news: the last sequence folded of every subject.

In: delivered events. Out: whether an event is newer than what its subject already said, so that a repeated or overtaken
delivery changes nothing: cores that fold only what is new are idempotent and commute across subjects. A subject that ended is
forgotten once MAX_ENDED younger ones have ended: its last message is by then far behind what a consumer may still be given.
"""

from __future__ import annotations

from cotenant.events.envelope import Event

MAX_ENDED = 65_536


class LastSequences:
    """Mutable; bounded by the live subjects and MAX_ENDED ended ones."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._ended: dict[str, None] = {}
        """The subjects that have ended, in that order."""

    def is_new(self, event: Event) -> bool:
        """Tell whether the event is news, and remember it."""
        subject, sequence = event.subject, event.sequence
        if sequence <= self._last.get(subject, 0):
            return False
        if event.tombstone or subject in self._ended:
            self.note(subject, sequence, event.tombstone)
        else:
            self._last[subject] = sequence
        return True

    def note(self, subject: str, sequence: int, ends: bool) -> None:
        """Remember the last sequence of a subject; `ends`: with it the subject ends."""
        self._last[subject] = sequence
        self._ended.pop(subject, None)
        if ends:
            self._ended[subject] = None
            if len(self._ended) > MAX_ENDED:
                oldest = next(iter(self._ended))
                del self._ended[oldest], self._last[oldest]
