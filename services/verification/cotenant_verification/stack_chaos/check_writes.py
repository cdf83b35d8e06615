"""Acknowledged writes are stored; refused ones are not; preconditions held; the log's order is that of real time.

In: the clients' writes and all versions that the log ever had, in order. Out: violations. Sequences that could not be read
(`missing`) prove nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from cotenant_verification.stack_chaos.records import Action, Outcome, Version, Violation, Write, with_newest_before

LOST = "acknowledged writes are there"
REFUSED = "a refused write has no effect"
ONCE = "a write is stored once"
CONDITION = "a conditional write follows on its version"
REAL_TIME = "what is acknowledged before something else begins comes before it"


def check_writes(writes: Sequence[Write], versions: Sequence[Version], missing: Collection[int] = ()) -> list[Violation]:
    """Compare the writes with the log."""
    return [
        *_acknowledged(writes, versions, missing),
        *_refused(writes, versions),
        *_conditions(writes, versions, missing),
        *_real_time(writes),
    ]


def _acknowledged(writes: Sequence[Write], versions: Sequence[Version], missing: Collection[int]) -> Iterator[Violation]:
    at = {version.sequence: version for version in versions}
    ended = {version.uid for version in versions if version.value is None}
    for write in writes:
        if write.outcome is not Outcome.OK:
            continue
        if write.action is Action.DELETE:
            # An unread tombstone has no known uid.
            if write.uid not in ended and not missing:
                yield Violation(LOST, f"{write}: the log has no end of uid {write.uid}")
            continue
        stored = at.get(write.version)
        if stored is None and write.version in missing:
            continue
        if stored is None or (stored.name, stored.value) != (write.name, write.value):
            has = "nothing of its kind" if stored is None else f"{stored.name}={stored.value}"
            yield Violation(LOST, f"{write}: the log has {has} there")


def _refused(writes: Sequence[Write], versions: Sequence[Version]) -> Iterator[Violation]:
    places: dict[str, list[int]] = {}
    for version in versions:
        if version.value is not None:
            places.setdefault(version.value, []).append(version.sequence)
    for write in writes:
        found = places.get(write.value, []) if write.value else []
        if write.outcome is Outcome.REFUSED and found:
            yield Violation(REFUSED, f"{write}: the log has it at {found[0]}")
        elif len(found) > 1:
            yield Violation(ONCE, f"{write}: the log has it at {', '.join(map(str, found))}")


def _conditions(writes: Sequence[Write], versions: Sequence[Version], missing: Collection[int]) -> Iterator[Violation]:
    before: dict[int, int] = {}
    last: dict[str, int] = {}
    for version in versions:
        before[version.sequence] = last.get(version.name, 0)
        last[version.name] = version.sequence
    for write in writes:
        if write.outcome is not Outcome.OK or not write.expected or write.version not in before:
            continue
        follows = before[write.version]
        unread = any(follows < sequence < write.version for sequence in missing)
        if follows != write.expected and not unread:
            yield Violation(CONDITION, f"{write}: it follows on version {follows}")


def _real_time(writes: Sequence[Write]) -> Iterator[Violation]:
    acknowledged = [write for write in writes if write.outcome is Outcome.OK and write.version]
    for write, newest in with_newest_before(acknowledged):
        if newest is not None and newest.version >= write.version:
            yield Violation(REAL_TIME, f"{write}, after {newest}")
