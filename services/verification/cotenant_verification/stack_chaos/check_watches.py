"""A watch delivers every change between its start and its end, once, in order.

In: watches and all versions that the log ever had, in order. Out: violations. A watch that ends with 410 may lack versions of
objects that have ended since: a tombstone removes them from the log, and a gateway that had not read them returns 410 when it
reads the tombstone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from cotenant_verification.stack_chaos.records import BrokenPromise, Version, WatchedChange, WatchRecord

WHOLE = "a watch has no gap and repeats nothing"


def check_watches(
    watches: Sequence[WatchRecord], versions: Sequence[Version], missing: Collection[int] = ()
) -> list[BrokenPromise]:
    """Compare the watches with the log."""
    changes = list(_changes(versions))
    return [violation for watch in watches for violation in _check(watch, changes, missing)]


def _changes(versions: Sequence[Version]) -> Iterator[WatchedChange]:
    values: dict[str, str] = {}
    for version in versions:
        if version.value is None:
            if version.name in values:
                yield WatchedChange("DELETED", version.name, version.sequence, values.pop(version.name))
            continue
        word = "MODIFIED" if version.name in values else "ADDED"
        values[version.name] = version.value
        yield WatchedChange(word, version.name, version.sequence, version.value)


def _check(watch: WatchRecord, changes: Sequence[WatchedChange], missing: Collection[int]) -> Iterator[BrokenPromise]:
    if any(watch.start < sequence <= watch.through for sequence in missing):
        return
    expected = [change for change in changes if watch.start < change.version <= watch.through]
    place = 0
    for should in expected:
        change = watch.changes[place] if place < len(watch.changes) else None
        if change == should:
            place += 1
        elif watch.expired and _ends_after(should, changes):
            continue
        else:
            received = "it ends before" if change is None else f"event {place + 1} is {_words(change)}; the log has"
            yield BrokenPromise(WHOLE, f"{watch}: {received} {_words(should)}")
            return
    if place < len(watch.changes):
        yield BrokenPromise(WHOLE, f"{watch}: event {place + 1} is {_words(watch.changes[place])}; the log has nothing more")


def _ends_after(change: WatchedChange, changes: Sequence[WatchedChange]) -> bool:
    return any(
        later.name == change.name and later.type == "DELETED" and later.version > change.version for later in changes
    )


def _words(change: WatchedChange) -> str:
    return f"{change.type} {change.name}={change.value} at {change.version}"
