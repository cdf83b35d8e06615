"""Which deliveries are news: the last sequence folded of every subject, by stream.

A subject that ended is forgotten once MAX_ENDED younger ones have ended: its last message is by then far behind what a
consumer may still be given.
"""

from cotenant.events.envelope import Event

MAX_ENDED = 16_384

_Subject = tuple[str, str]


class LastSequences:
    """Mutable; bounded by the live subjects and MAX_ENDED ended ones."""

    def __init__(self) -> None:
        self._live: dict[_Subject, int] = {}
        self._ended: dict[_Subject, int] = {}

    def is_new(self, event: Event) -> bool:
        """Tell whether the event is news, and remember it."""
        key = (event.stream, event.subject)
        known = self._live.get(key) or self._ended.get(key, 0)
        if event.sequence <= known:
            return False
        if event.tombstone:
            self._live.pop(key, None)
            self._ended.pop(key, None)
            self._ended[key] = event.sequence
            if len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]
        else:
            self._ended.pop(key, None)
            self._live[key] = event.sequence
        return True
