"""A decision becomes a batch: ids, times, and the sequences of causes that were not known when it was decided.

In: what a core decided, who it is, the sequence of the own previous commit record. Out: `Batch`, the commit record and the
events in order, ready to be stored. Event id = `<cell>/<service>/<partition>/<prior>/<index>`. A cause `LOG:-<n>` is the n-th
event behind the previous commit record: it was being stored when the decision was made. A batch that is refused leaves a fact
on EXECUTION: `refusal_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import takewhile

import msgspec

from cotenant.events.commits import Commit, CommitRefused
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


class Batch(msgspec.Struct, frozen=True):
    """A proposal: the commit record and what was decided, ready to be stored."""

    prior: int
    events: tuple[Event, ...]

    def writes(self) -> list[Write]:
        """Return the messages, with the one expectation that fences them."""
        first, *rest = self.events
        return [Write(event=first, expected=self.prior), *(Write(event=event) for event in rest)]

    def as_stored(self, first: int) -> Iterator[Event]:
        """Yield what was decided with its sequences; `first` is the commit record's."""
        for sequence, event in enumerate(self.events[1:], first + 1):
            yield msgspec.structs.replace(event, sequence=sequence)

    @property
    def record(self) -> Commit:
        """The commit record."""
        data = self.events[0].data
        assert isinstance(data, Commit)
        return data

    def is_begun_by(self, event: Event) -> bool:
        """Return whether a delivered message is this batch's own commit record, and not that of another replica, which gives it
        the same id."""
        return event.id == self.events[0].id and event.data == self.events[0].data


def _passes(event: Event) -> bool:
    return event.subject.startswith(f"{PREDICTIONS}.")


def commit_batch(decision: Decision, identity: Identity, config: str, prior: int, traces: Traces | None = None) -> Batch:
    """Return the batch that follows the commit record `prior`. `traces`: of what was folded; None: without traces."""
    now, source = decision.now, identity.source
    stem = f"{identity.cell}/{identity.service}/{identity.partition}/{prior}/"
    record = Commit(
        prior=prior,
        folded=decision.folded,
        now=now,
        count=len(decision.events),
        config=config,
        core=identity.core,
        replica=identity.replica,
        took_us=decision.took_us,
        behind=decision.behind,
        passing=sum(1 for _ in takewhile(_passes, reversed(decision.events))),
    )
    record_id = f"{stem}0"
    trace = traces.continued((), record_id) if traces is not None else ""
    events = [
        Event(subject=identity.commit_subject, data=record, time=now, id=record_id, source=source, traceparent=trace)
    ]
    for index, event in enumerate(decision.events, 1):
        causes = event.causes
        if UNKNOWN in " ".join(causes):
            causes = tuple(_resolved(cause, prior) for cause in causes)
        event_id = f"{stem}{index}"
        trace = traces.continued(causes, event_id) if traces is not None else ""
        events.append(
            msgspec.structs.replace(
                event, causes=causes, time=now, id=event_id, source=source, traceparent=trace, sequence=0
            )
        )
    return Batch(prior, tuple(events))


def _resolved(cause: str, prior: int) -> str:
    return f"LOG:{prior + int(cause.removeprefix(UNKNOWN))}" if cause.startswith(UNKNOWN) else cause


def refusal_of(batch: Batch, identity: Identity, reason: str, now: datetime) -> Event:
    """Return the event about a batch that was refused because another replica committed first."""
    return Event(
        subject=execution_subject("_", "commits"),
        data=CommitRefused(
            service=identity.service,
            partition=identity.partition,
            replica=identity.replica,
            expected=batch.prior,
            events=len(batch.events) - 1,
            reason=reason,
        ),
        causes=(f"LOG:{batch.prior}",) if batch.prior else (),
        time=now,
        id=f"{identity.cell}/{identity.service}/{identity.replica}/refused/{batch.prior}",
        source=identity.source,
        stream=EXECUTION,
    )
