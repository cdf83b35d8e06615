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
        self._live: dict[str, int] = {}
        self._ended: dict[str, int] = {}

    def is_new(self, event: Event) -> bool:
        """Tell whether the event is news, and remember it."""
        subject = event.subject
        known = self._live.get(subject)
        if known is None:
            known = self._ended.get(subject, 0)
        if event.sequence <= known:
            return False
        if event.tombstone or subject in self._ended:
            self.note(subject, event.sequence, event.tombstone)
        else:
            self._live[subject] = event.sequence
        return True

    def note(self, subject: str, sequence: int, ends: bool) -> None:
        """Remember the last sequence of a subject; `ends`: with it the subject ends."""
        if ends:
            self._live.pop(subject, None)
            self._ended.pop(subject, None)
            self._ended[subject] = sequence
            if len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]
        else:
            self._ended.pop(subject, None)
            self._live[subject] = sequence
