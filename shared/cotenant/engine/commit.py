"""A decision becomes a batch: ids, times, and the sequences of causes that were not known when it was decided.

In: what a core decided, who it is, the sequences of the own previous commit and of the record that fences. Out: `Batch`, ready
to be stored: the commit record and the events in order, or the only event with its record in it. Such a commit is one message:
a server stages a batch in files of its own, which costs it as much as ten messages.

Event id = `<cell>/<service>/<partition>/<prior>/<index>`. A cause `LOG:-<n>` is the n-th event of the previous
commit: it was being stored when the decision was made. A batch that is refused leaves a fact on EXECUTION: `refusal_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import takewhile

import msgspec

from cotenant.events.commits import Commit, CommitRefused, record_of
from cotenant.events.envelope import Event
from cotenant.log.contract import EXECUTION, Write
from cotenant.log.traces import Traces
from cotenant.model.subjects import PREDICTIONS, commit_subject, execution_subject, marker_subject

UNKNOWN = "LOG:-"
"""Prefix of a cause whose sequence is not known yet."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a decider: all replicas of one partition share everything but `replica`."""

    service: str
    cell: str = "cell"
    partition: str = "0"
    replica: str = "0"
    version: str = "0.1.0"
    core: str = "1"

    @property
    def source(self) -> str:
        """CloudEvents source, by which own messages are recognised."""
        return f"/{self.cell}/{self.service}/{self.partition}"

    @property
    def commit_subject(self) -> str:
        return commit_subject(self.service, self.partition)

    @property
    def marker_subject(self) -> str:
        return marker_subject(self.service, self.replica)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A core's decision and its basis: foreign messages up to `folded`, some of which may be missing where `behind`; `took_us`
    is how long `decide` took."""

    events: Sequence[Event]
    folded: int
    now: datetime
    took_us: int
    behind: bool = False


class CommitPlace(msgspec.Struct, frozen=True):
    """Where a commit follows: on the own previous commit `prior`, fenced by `fence`, the last record that is a message of its
    own. Sequences, 0: none. `follows_single`: the previous commit is one event."""

    prior: int
    fence: int
    follows_single: bool = False


class Batch(msgspec.Struct, frozen=True):
    """A proposal, ready to be stored: the commit record and what was decided, one event with its record, or a record alone."""

    place: CommitPlace
    events: tuple[Event, ...]
    fenced_by: str
    """The subject of the records."""

    def writes(self) -> list[Write]:
        """Return the messages, with the one expectation that fences them. A commit of one message has an id, so that it is
        stored once: it does not change what it expects."""
        first, *rest = self.events
        fence = self.place.fence
        if self.is_single:
            return [Write(event=first, expected=fence, expected_subject=self.fenced_by, message_id=first.id)]
        return [Write(event=first, expected=fence), *(Write(event=event) for event in rest)]

    @property
    def is_single(self) -> bool:
        """Whether the commit is one event, which has the record in it."""
        return self.events[0].commit is not None

    @property
    def takes_over(self) -> bool:
        """Whether it is a record alone."""
        return len(self.events) == 1 and not self.is_single

    @property
    def decided(self) -> tuple[Event, ...]:
        """What was decided."""
        return self.events if self.is_single else self.events[1:]

    def as_stored(self, first: int) -> Iterator[Event]:
        """Yield what was decided with its sequences; `first` is that of the first message."""
        for sequence, event in enumerate(self.decided, first if self.is_single else first + 1):
            yield msgspec.structs.replace(event, sequence=sequence)

    @property
    def record(self) -> Commit:
        """The commit record."""
        record = record_of(self.events[0])
        assert record is not None
        return record

    def is_begun_by(self, event: Event) -> bool:
        """Return whether a delivered message is this batch's own first one, and not that of another replica, which gives it
        the same id."""
        first = self.events[0]
        return event.id == first.id and record_of(event) == self.record and event.data == first.data


def _passes(event: Event) -> bool:
    return event.subject.startswith(f"{PREDICTIONS}.")


def commit_batch(
    decision: Decision,
    identity: Identity,
    config: str,
    place: CommitPlace,
    traces: Traces | None = None,
    *,
    single: bool = False,
) -> Batch:
    """Return the batch that follows the commit `place.prior`; without events it is a record alone. `single`: one event may have
    the record in it. `traces`: of what was folded; None: without traces."""
    now, source, prior = decision.now, identity.source, place.prior
    stem = f"{identity.cell}/{identity.service}/{identity.partition}/{prior}/"
    # HISTORY would lack a record in an event that it does not copy.
    single = single and len(decision.events) == 1 and not _passes(decision.events[0])
    record = Commit(
        prior=prior,
        folded=decision.folded,
        now=now,
        count=0 if single else len(decision.events),
        config=config,
        core=identity.core,
        replica=identity.replica,
        took_us=decision.took_us,
        behind=decision.behind,
        passing=sum(1 for _ in takewhile(_passes, reversed(decision.events))),
    )
    events: list[Event] = []
    if not single:
        record_id = f"{stem}0"
        trace = traces.continued((), record_id) if traces is not None else ""
        events.append(
            Event(subject=identity.commit_subject, data=record, time=now, id=record_id, source=source, traceparent=trace)
        )
    for index, event in enumerate(decision.events, 1):
        causes = event.causes
        if UNKNOWN in " ".join(causes):
            causes = tuple(_resolved(cause, prior - place.follows_single) for cause in causes)
        event_id = f"{stem}{index}"
        trace = traces.continued(causes, event_id) if traces is not None else ""
        events.append(
            msgspec.structs.replace(
                event,
                causes=causes,
                time=now,
                id=event_id,
                source=source,
                traceparent=trace,
                sequence=0,
                commit=record if single else None,
            )
        )
    return Batch(place, tuple(events), identity.commit_subject)


def _resolved(cause: str, before: int) -> str:
    """Return a cause with its sequence; `before` is that of the message before the events."""
    return f"LOG:{before + int(cause.removeprefix(UNKNOWN))}" if cause.startswith(UNKNOWN) else cause


def refusal_of(batch: Batch, identity: Identity, reason: str, now: datetime) -> Event:
    """Return the event about a batch that was refused because another replica committed first."""
    fence = batch.place.fence
    return Event(
        subject=execution_subject("_", "commits"),
        data=CommitRefused(
            service=identity.service,
            partition=identity.partition,
            replica=identity.replica,
            expected=fence,
            events=len(batch.decided),
            reason=reason,
        ),
        causes=(f"LOG:{fence}",) if fence else (),
        time=now,
        id=f"{identity.cell}/{identity.service}/{identity.replica}/refused/{fence}",
        source=identity.source,
        stream=EXECUTION,
    )
