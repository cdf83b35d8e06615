"""Acknowledged writes are stored; refused ones are not; preconditions held; the log's order is that of real time.

In: the clients' writes and all versions that the log ever had, in order. Out: violations. Sequences that could not be read
(`missing`) prove nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from cotenant_verification.stack_chaos.records import (
    Action,
    BrokenPromise,
    Version,
    WriteOutcome,
    WriteRecord,
    with_newest_before,
)

LOST = "acknowledged writes are there"
REFUSED = "a refused write has no effect"
ONCE = "a write is stored once"
CONDITION = "a conditional write follows on its version"
REAL_TIME = "what is acknowledged before something else begins comes before it"


def check_writes(
    writes: Sequence[WriteRecord], versions: Sequence[Version], missing: Collection[int] = ()
) -> list[BrokenPromise]:
    """Compare the writes with the log."""
    return [
        *_acknowledged(writes, versions, missing),
        *_refused(writes, versions),
        *_conditions(writes, versions, missing),
        *_real_time(writes),
    ]


def _acknowledged(
    writes: Sequence[WriteRecord], versions: Sequence[Version], missing: Collection[int]
) -> Iterator[BrokenPromise]:
    at = {version.sequence: version for version in versions}
    ended = {version.uid for version in versions if version.value is None}
    for write in writes:
        if write.outcome is not WriteOutcome.OK:
            continue
        if write.action is Action.DELETE:
            # An unread tombstone has no known uid.
            if write.uid not in ended and not missing:
                yield BrokenPromise(LOST, f"{write}: the log has no end of uid {write.uid}")
            continue
        stored = at.get(write.version)
        if stored is None and write.version in missing:
            continue
        if stored is None or (stored.name, stored.value) != (write.name, write.value):
            has = "nothing of its kind" if stored is None else f"{stored.name}={stored.value}"
            yield BrokenPromise(LOST, f"{write}: the log has {has} there")


def _refused(writes: Sequence[WriteRecord], versions: Sequence[Version]) -> Iterator[BrokenPromise]:
    places: dict[str, list[int]] = {}
    for version in versions:
        if version.value is not None:
            places.setdefault(version.value, []).append(version.sequence)
    for write in writes:
        found = places.get(write.value, []) if write.value else []
        if write.outcome is WriteOutcome.REFUSED and found:
            yield BrokenPromise(REFUSED, f"{write}: the log has it at {found[0]}")
        elif len(found) > 1:
            yield BrokenPromise(ONCE, f"{write}: the log has it at {', '.join(map(str, found))}")


def _conditions(
    writes: Sequence[WriteRecord], versions: Sequence[Version], missing: Collection[int]
) -> Iterator[BrokenPromise]:
    before: dict[int, int] = {}
    last: dict[str, int] = {}
    for version in versions:
        before[version.sequence] = last.get(version.name, 0)
        last[version.name] = version.sequence
    for write in writes:
        if write.outcome is not WriteOutcome.OK or not write.expected or write.version not in before:
            continue
        follows = before[write.version]
        unread = any(follows < sequence < write.version for sequence in missing)
        if follows != write.expected and not unread:
            yield BrokenPromise(CONDITION, f"{write}: it follows on version {follows}")


def _real_time(writes: Sequence[WriteRecord]) -> Iterator[BrokenPromise]:
    acknowledged = [write for write in writes if write.outcome is WriteOutcome.OK and write.version]
    for write, newest in with_newest_before(acknowledged):
        if newest is not None and newest.version >= write.version:
            yield BrokenPromise(REAL_TIME, f"{write}, after {newest}")
