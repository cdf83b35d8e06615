"""A value and the event of LOG that said it."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from cotenant.events.envelope import Event, Payload
from cotenant.log.contract import LOG, ending

T = TypeVar("T")
P = TypeVar("P", bound=Payload)


class Known(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """See the module."""

    value: T
    sequence: int

    @property
    def ref(self) -> str:
        """How other events name it as their cause."""
        return f"{LOG}:{self.sequence}"


def end(subject: str, known: Known[P]) -> Event:
    """Return the end of what the arbiter itself said on a subject."""
    return ending(subject, known.value, (known.ref,))


def keep(into: dict[str, Known[T]], key: str, value: T | None, event: Event) -> None:
    """Let `into` know of `key` what the event said; nothing where it said nothing, or with it the entity ended."""
    if value is None or event.tombstone:
        into.pop(key, None)
    else:
        into[key] = Known(value, event.sequence)
