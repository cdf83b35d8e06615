"""The log's final content, and whether it was ever different.

In: the three servers' addresses. Out: all events of LOG in order (as a concurrent reader received them, as HISTORY has them,
and as LOG still has them), the versions of the clients' objects, sequences that could not be read; and violations where two of
these differ: such a log was split, or has lost acknowledged writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.log.contract import HISTORY, LOG, Behind
from cotenant.log.nats.jetstream import API_ERRORS, BusError
from cotenant.log.nats.log import NatsLog, connect, read_all
from cotenant.log.nats.snapshot import StreamSnapshot
from cotenant_console.recorded import history
from cotenant_verification.stack_chaos.clients import NAMESPACE
from cotenant_verification.stack_chaos.records import BrokenPromise, Version

ONE_LOG = "all readers and replicas have the same log"
SUBJECTS = f"objects.core.configmaps.{NAMESPACE}."
CAUGHT_UP_SECONDS = 60.0
ANSWERED_SECONDS = 60.0
AGAIN_SECONDS = 0.2


class _Data(msgspec.Struct):
    value: str = ""


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    data: _Data = msgspec.field(default_factory=_Data)


class Truth(msgspec.Struct):
    """The log of a run."""

    events: list[Event]
    versions: list[Version]
    missing: set[int]
    end: int
    violations: list[BrokenPromise]


class Observer:
    """Reads LOG during the run, so that quickly replaced messages are seen. `logs`: one connection to each server, so that
    not all of its consumers are lost together."""

    def __init__(self, logs: Sequence[NatsLog]) -> None:
        self.events: dict[int, Event] = {}
        self.violations: list[BrokenPromise] = []
        self._logs = logs

    async def run(self) -> None:
        """Read until cancelled."""
        await asyncio.gather(*(self._follow(log) for log in self._logs))

    async def _follow(self, log: NatsLog) -> None:
        after = 0
        while True:
            try:
                reader = await log.follow(LOG, (">",), after=after)
            except (BusError, *API_ERRORS):
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            reader.loaded()
            reader.max_behind = 0
            try:
                while True:
                    for event in await reader.pull(1000, 1.0):
                        self._add(event)
                        after = max(after, event.sequence)
            except Behind:
                continue
            finally:
                await reader.close()

    def _add(self, event: Event) -> None:
        before = self.events.setdefault(event.sequence, event)
        if before.id != event.id:
            self.violations.append(_contradiction(before, event, "one observer read both"))


def _contradiction(one: Event, other: Event, how: str) -> BrokenPromise:
    return BrokenPromise(ONE_LOG, f"{one.ref} is {one.id} on {one.subject} and {other.id} on {other.subject}: {how}")


async def find_truth(observer: Observer, log: NatsLog, urls: Sequence[str]) -> Truth:
    """Read everything, once all is idle. `urls`: each server's own."""
    end = await log.last_sequence(LOG)
    async with asyncio.timeout(CAUGHT_UP_SECONDS):
        while max(observer.events, default=0) < end:  # noqa: ASYNC110 - bounded
            await asyncio.sleep(0.1)
    violations = list(observer.violations)
    found = dict(observer.events)
    await _copied(log, end)
    for events_read, how in ((await history(log), HISTORY), (await read_all(log, LOG, (">",)), LOG)):
        for event in events_read:
            if event.sequence > end:
                continue
            before = found.setdefault(event.sequence, event)
            if before.id != event.id:
                violations.append(_contradiction(before, event, f"the observer read the first, {how} has the second"))
    events = [found[sequence] for sequence in sorted(found) if sequence <= end]
    violations += await _replicas(log, urls, events, end)
    missing = {sequence for sequence in range(1, end + 1) if sequence not in found}
    return Truth(events, versions_of(events), missing, end, violations)


async def _copied(log: NatsLog, end: int) -> None:
    """Wait until HISTORY has all messages; the concurrent reader may have those that it lacks."""
    for _ in range(100):
        copied = await log.last_sequence(HISTORY)
        event = await log.get(HISTORY, copied)
        if event is not None and event.sequence >= end:
            return
        await asyncio.sleep(0.1)


async def _replicas(observing: NatsLog, urls: Sequence[str], events: Sequence[Event], end: int) -> list[BrokenPromise]:
    """Each server shows the last message of each subject as it is: a direct get is answered by the replica of the server that
    is asked."""
    last: dict[str, Event] = {}
    for event in events:
        last[event.subject] = event
    violations = []
    for url in urls:
        log = await connect(url, "chaos", observing.access)
        shown: dict[str, int] = {}
        try:
            async with asyncio.timeout(ANSWERED_SECONDS):
                snapshot = StreamSnapshot(log.client, LOG, (">",))
                await snapshot.begin()
                while messages := await snapshot.take(1000):
                    shown |= {subject.decode(): sequence for subject, sequence, _, _ in messages}
        finally:
            await log.close()
        for subject, sequence in shown.items():
            expected = last.get(subject)
            if sequence <= end and (expected is None or expected.sequence != sequence):
                should = "nothing" if expected is None else expected.ref
                violations.append(
                    BrokenPromise(ONE_LOG, f"the replica at {url} ends {subject} with LOG:{sequence}, not {should}")
                )
        for subject, event in last.items():
            # A message with a time to live may have expired, and one replaced during the load comes after it.
            if subject in shown or event.tombstone or event.ttl_seconds:
                continue
            head = await observing.head(subject)
            if head is not None and head.sequence == event.sequence:
                violations.append(BrokenPromise(ONE_LOG, f"the replica at {url} lacks {subject}, {event.ref} {event.id}"))
    return violations


def versions_of(events: Sequence[Event]) -> list[Version]:
    """The versions of the clients' objects."""
    found = []
    uids: dict[str, str] = {}
    for event in events:
        if not event.subject.startswith(SUBJECTS):
            continue
        name, data = event.subject.removeprefix(SUBJECTS), event.data
        if isinstance(data, ObjectStored):
            document = msgspec.json.decode(data.object, type=_Object)
            uids[name] = document.metadata.uid
            found.append(Version(event.sequence, name, document.data.value, document.metadata.uid))
        elif isinstance(data, ObjectDeleted):
            found.append(Version(event.sequence, name, None, data.uid or uids.get(name, "")))
    return found
