"""Which deliveries are new: the last sequence folded of every subject.

In: delivered events. Out: whether an event is newer than the last one of its subject, so that a repeated or overtaken
delivery changes nothing: cores that fold only what is new are idempotent and commute across subjects.

A subject that ended is forgotten once a message REMEMBERED_POSITIONS behind its tombstone was folded. That is safe because
a tombstone removes every earlier message of its subject from LOG, so only a delivery in flight can still bring one: a
load delivers each subject once, in any order; later messages come in the order of LOG; a reader resumes behind
its last message. What remains are repeats and overtaken deliveries, which the simulator injects: at most
its last 1,000 messages again, and late ones on a slow link. The tombstone itself, should it be repeated after it was
forgotten, ends what has ended.
"""

from __future__ import annotations

from cotenant.events.envelope import Event

REMEMBERED_POSITIONS = 16_384


class LastSequences:
    """Mutable; bounded by the live subjects and those that ended within the last REMEMBERED_POSITIONS of LOG."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._ended: dict[str, None] = {}
        """The subjects that have ended, in the order in which that was folded."""
        self._newest = 0

    def __len__(self) -> int:
        return len(self._last)

    def of(self, subject: str) -> int:
        """Return the last sequence of a subject, 0 where none is known."""
        return self._last.get(subject, 0)

    def is_new(self, event: Event) -> bool:
        """Return whether the event is new, and record it."""
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
        if not ends:
            return
        if sequence > self._newest:
            self._newest = sequence
        old = self._newest - REMEMBERED_POSITIONS
        if sequence <= old:  # a load brings old tombstones in any order
            del self._last[subject]
            return
        self._ended[subject] = None
        while self._ended:
            oldest = next(iter(self._ended))
            if self._last[oldest] > old:
                return
            del self._ended[oldest], self._last[oldest]
