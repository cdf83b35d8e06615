"""A watch delivers every change between its start and its end, once, in order.

In: watches and all versions that the log ever had, in order. Out: violations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from cotenant_verification.stack_chaos.records import Change, Version, Violation, Watch

WHOLE = "a watch has no gap and repeats nothing"


def check_watches(watches: Sequence[Watch], versions: Sequence[Version], missing: Collection[int] = ()) -> list[Violation]:
    """Hold the watches against the log."""
    changes = list(_changes(versions))
    return [violation for watch in watches for violation in _check(watch, changes, missing)]


def _changes(versions: Sequence[Version]) -> Iterator[Change]:
    values: dict[str, str] = {}
    for version in versions:
        if version.value is None:
            if version.name in values:
                yield Change("DELETED", version.name, version.sequence, values.pop(version.name))
            continue
        word = "MODIFIED" if version.name in values else "ADDED"
        values[version.name] = version.value
        yield Change(word, version.name, version.sequence, version.value)


def _check(watch: Watch, changes: Sequence[Change], missing: Collection[int]) -> Iterator[Violation]:
    if any(watch.start < sequence <= watch.through for sequence in missing):
        return
    expected = [change for change in changes if watch.start < change.version <= watch.through]
    if watch.changes == expected:
        return
    for place, change in enumerate(watch.changes):
        should = expected[place] if place < len(expected) else None
        if change != should:
            yield Violation(WHOLE, f"{watch}: event {place + 1} is {_words(change)}; the log has {_words(should)}")
            return
    yield Violation(WHOLE, f"{watch}: it ends before {_words(expected[len(watch.changes)])}")


def _words(change: Change | None) -> str:
    return "nothing more" if change is None else f"{change.type} {change.name}={change.value} at {change.version}"
