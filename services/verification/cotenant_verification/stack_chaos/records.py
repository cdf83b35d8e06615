"""A run's records: the clients' operations, listings and watches, and the log's final content.

Times are seconds since the run began, on one clock. Versions are resourceVersions, which are sequences of LOG: the log's own
order is the linearization order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TypeVar

import msgspec


class WriteOutcome(StrEnum):
    """ok: answered well; refused: answered that it was not done; unknown: no answer, or one that says that the outcome is
    unknown."""

    OK = "ok"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Action(StrEnum):
    """A client's request about one object."""

    CREATE = "create"
    REPLACE = "replace"
    PATCH = "patch"
    DELETE = "delete"


class WriteRecord(msgspec.Struct, kw_only=True):
    """One write of one object. `value` is unique in a run."""

    client: str
    gateway: str
    action: Action
    name: str
    value: str = ""
    expected: int = 0
    """The version that it was conditional on; 0: none."""
    started: float
    ended: float = 0.0
    outcome: WriteOutcome = WriteOutcome.UNKNOWN
    version: int = 0
    """As acknowledged; 0 for a deletion, whose answer has none."""
    uid: str = ""
    """Of the object that a deletion ended, as acknowledged."""
    answer: str = ""
    """The answer's status and message, or the error, of a write that was not acknowledged."""

    def __str__(self) -> str:
        of = f" on version {self.expected}" if self.expected else ""
        as_version = f" as version {self.version}" if self.version else ""
        return (
            f"{self.client} {self.action} {self.name}={self.value or '-'}{of} at {self.gateway}, "
            f"{self.started:.2f}-{self.ended:.2f} s, {self.outcome}{as_version}{': ' + self.answer if self.answer else ''}"
        )


class ObservedObject(msgspec.Struct, frozen=True):
    """One object as it was shown."""

    version: int
    value: str


class Listing(msgspec.Struct, kw_only=True):
    """The objects that a gateway showed, all or (`name`) one of them, and the version that it reported."""

    client: str
    gateway: str
    name: str = ""
    at_least: int = 0
    """The version that was asked for."""
    started: float
    ended: float
    version: int
    objects: dict[str, ObservedObject]

    def __str__(self) -> str:
        return f"{self.client} listed {self.name or 'all'} at {self.gateway}, {self.started:.2f}-{self.ended:.2f} s"


class WatchedChange(msgspec.Struct, frozen=True):
    """One event of a watch."""

    type: str
    name: str
    version: int
    value: str


class WatchRecord(msgspec.Struct, kw_only=True):
    """One watch: everything behind `start` up to `through`."""

    gateway: str
    started: float
    start: int
    through: int
    changes: list[WatchedChange]
    expired: bool = False
    """It ended with 410: undelivered changes must be listed."""

    def __str__(self) -> str:
        return f"watch at {self.gateway} since {self.started:.2f} s from version {self.start} through {self.through}"


class Version(msgspec.Struct, frozen=True):
    """One version of an object, as the log has it. `value` None: it ended."""

    sequence: int
    name: str
    value: str | None
    uid: str


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault: kind, target, begin and duration in seconds."""

    at: float
    seconds: float
    kind: str
    target: str

    def __str__(self) -> str:
        return f"{self.at:7.1f} s  {self.kind} {self.target}, {self.seconds:.0f} s"


class History(msgspec.Struct):
    """The clients' observations."""

    writes: list[WriteRecord] = []
    listings: list[Listing] = []
    watches: list[WatchRecord] = []


class BrokenPromise(msgspec.Struct, frozen=True):
    """A promise that was broken: which, and by what."""

    promise: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"


Operation = TypeVar("Operation", WriteRecord, Listing)


def with_newest_before(operations: Sequence[Operation]) -> Iterator[tuple[Operation, Operation | None]]:
    """Yield each operation, in the order of their starts, with the one of the highest version that had ended by then."""
    by_end = sorted(operations, key=lambda operation: operation.ended)
    newest: Operation | None = None
    index = 0
    for operation in sorted(operations, key=lambda operation: operation.started):
        while index < len(by_end) and by_end[index].ended < operation.started:
            if newest is None or by_end[index].version > newest.version:
                newest = by_end[index]
            index += 1
        yield operation, newest
