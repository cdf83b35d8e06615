"""Which deliveries are news: the last sequence folded of every subject.

In: delivered events. Out: whether an event is newer than what its subject already said, so that a repeated or overtaken
delivery changes nothing. The last MAX_ENDED ended subjects are remembered; older ones are far behind what may still be
delivered.
"""

from __future__ import annotations

from cotenant.events.envelope import Event

MAX_ENDED = 65_536


class LastSequences:
    """Bounded by the live subjects and MAX_ENDED ended ones."""

    def __init__(self) -> None:
        self._live: dict[str, int] = {}
        self._ended: dict[str, int] = {}

    def is_new(self, event: Event) -> bool:
        """Tell whether the event is news, and remember it."""
        known = self._live.get(event.subject) or self._ended.get(event.subject, 0)
        if event.sequence <= known:
            return False
        self._live.pop(event.subject, None)
        self._ended.pop(event.subject, None)
        if event.tombstone:
            self._ended[event.subject] = event.sequence
            if len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]
        else:
            self._live[event.subject] = event.sequence
        return True
