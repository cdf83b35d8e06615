"""A value and its event on LOG."""

from __future__ import annotations

from typing import Generic, TypeVar

from cotenant.events.envelope import Event, Payload
from cotenant.log.contract import LOG, ending
from cotenant.model.values import Value

T = TypeVar("T")
P = TypeVar("P", bound=Payload)


class Known(Value, Generic[T], frozen=True):
    """See the module."""

    value: T
    sequence: int

    @property
    def ref(self) -> str:
        """Its reference in the causes of other events."""
        return f"{LOG}:{self.sequence}"


def end(subject: str, known: Known[P]) -> Event:
    """Return the tombstone of the arbiter's own event on a subject."""
    return ending(subject, known.value, (known.ref,))


def keep(into: dict[str, Known[T]], key: str, value: T | None, event: Event) -> None:
    """Store the event's value under `key`; remove it if the value is None or the event is a tombstone."""
    if value is None or event.tombstone:
        into.pop(key, None)
    else:
        into[key] = Known(value, event.sequence)
