"""`replay --verify`: rebuild the state that each commit was decided on, call `decide` again, compare.

In: the events of LOG in order, as HISTORY holds them. For every commit record of a recomputed service the state is: foreign
messages up to its `folded` plus own messages up to the end of `prior`'s batch. As both only grow, one core per service and
configuration is carried along, and a message is held no longer than until it is folded or overtaken. Compared are subject,
type, data, time, causes and id of every event of the batch.

A commit of another `core` version, or whose configuration's text is not among the start markers, is "not comparable" and
counted. So is one that differs where messages before it are missing (gaps in HISTORY, or a range that
begins while the service runs), or where its service lagged behind removals (`Commit.behind`). An equal
result still counts as verified: most missing messages were soon replaced.

Where `decide` raises, a message that the service had quarantined may be the reason: it is searched for as the service does and
left out, and the commit is compared. If no message is at fault, the commit differs, in the field `raised`.

Over 300 lines: reading a log and comparing a commit with it are one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from cotenant.engine.cycle import config_digest
from cotenant.engine.definition import ServiceDefinition
from cotenant.engine.last_messages import LastMessages
from cotenant.engine.replayed_service import ReplayedService, raised_in
from cotenant.events.commits import Commit, ServiceStarted, decider_of, record_of
from cotenant.events.envelope import Event, encode_payload
from cotenant.log.traces import Traces
from cotenant.model.trace_context import continued, traceparent_of

INCOMPLETE = "the state before it is no longer complete"
BEHIND = "decided by a reader so far behind that messages were removed before their delivery"
UNKNOWN = "the configuration's text is not in the range"
RAISED = "raised"
"""The field of a difference where the core raises instead of deciding, and no message is at fault."""
HELD_TRACES = 200_000
"""Twice as many messages are remembered at most; an older cause's trace is not compared."""


class Difference(msgspec.Struct, frozen=True):
    """The first event of a commit that came out differently. Texts are JSON; empty where one side has no such event.
    `index` counts from 1. It is 0 where the core raises (`field` is RAISED): `recomputed` says what, and where."""

    service: str
    commit: str
    index: int
    field: str
    recorded: str
    recomputed: str


class Report(msgspec.Struct, kw_only=True):
    """The result of a verification. `not_comparable` counts commits by reason."""

    events: int = 0
    commits: int = 0
    verified: int = 0
    decisions: int = 0
    differing: int = 0
    holes: int = 0
    not_comparable: dict[str, int] = {}
    first_difference: Difference | None = None
    by_service: dict[str, int] = {}

    @property
    def ok(self) -> bool:
        """Whether everything comparable was equal, and something was compared."""
        return self.differing == 0 and self.verified > 0


class Verifier:
    """Reads LOG in order, one message at a time, and verifies each commit once its whole batch has been read.

    In: messages; commits with sequence `first`..`last` count (0: no bound), and of those the chosen ones. Out: `report`.
    `complete_from_start` False says that messages before the first are missing: its commits are then not comparable. Holds the
    last message of each subject, and what a service had not folded at its last commit.
    """

    def __init__(
        self,
        definitions: Mapping[str, ServiceDefinition],
        *,
        first: int = 0,
        last: int = 0,
        complete_from_start: bool = True,
        chosen: Callable[[Event], bool] = lambda _: True,
    ) -> None:
        self.report = Report()
        self._chosen = chosen
        self._definitions = definitions
        self._first, self._last = first, last
        self._broken = not complete_from_start
        self._configs: dict[str, str] = {}
        self._lines: dict[str, ReplayedService] = {}
        self._before = LastMessages()
        """The messages that a starting process loads."""
        self._previous = 0
        self._passing = range(0)
        """Messages of the last batch that HISTORY does not take over."""
        self._traces = Traces(held=HELD_TRACES)

    def read(self, event: Event) -> None:
        """Take the next message."""
        report = self.report
        report.events += 1
        if self._previous and event.sequence != self._previous + 1:
            missing = range(self._previous + 1, event.sequence)
            passed = range(max(missing.start, self._passing.start), min(missing.stop, self._passing.stop))
            if holes := len(missing) - len(passed):
                report.holes += holes
                self._broken = True
        self._previous = event.sequence
        self._traces.note((event,))
        data = event.data
        if isinstance(data, ServiceStarted):
            self._configs[config_digest(data.config_text)] = data.config_text
            self._begin(event, data.service)
            return
        self._before.note(event)
        line = self._lines.get(event.source)
        record = record_of(event)
        if record is not None:
            end = event.sequence + record.count + 1
            self._passing = range(end - record.passing, end)
            single = event.commit is not None
            if not single and not record.count:
                return  # A replica takes over: it decides behind this.
            if line is not None:
                self._give_up(line)
                line.pending = (event, record, [event] if single else [])
                self._finish(line)
            elif self._recomputed(decider_of(event)) is not None and self._counts(event):
                self.report.commits += 1
                self._refuse(INCOMPLETE if self._broken else UNKNOWN)
            if not single:
                return
        for each in self._lines.values():
            each.read(event)
        if line is not None and line.pending is not None:
            begins, commit, batch = line.pending
            if event.sequence > begins.sequence + commit.count:
                self._give_up(line)
                return
            batch.append(event)
            self._finish(line)

    def _recomputed(self, service: str) -> ServiceDefinition | None:
        definition = self._definitions.get(service)
        return definition if definition is not None and definition.recomputed else None

    def _begin(self, event: Event, service: str) -> None:
        """A service starts for the first time: it has loaded the last message of each subject."""
        definition = self._recomputed(service)
        if definition is None or event.source in self._lines:
            return
        line = self._lines[event.source] = ReplayedService(definition, event.source)
        for before in self._before.in_order():
            line.read(before)

    def _counts(self, record: Event) -> bool:
        within = self._first <= record.sequence and (not self._last or record.sequence <= self._last)
        return within and self._chosen(record)

    def _refuse(self, reason: str) -> None:
        self.report.not_comparable[reason] = self.report.not_comparable.get(reason, 0) + 1

    def _give_up(self, line: ReplayedService) -> None:
        """Skip a commit with missing messages: what was decided is unknown."""
        pending, line.pending = line.pending, None
        if pending is not None and self._counts(pending[0]):
            self.report.commits += 1
            self._refuse(INCOMPLETE)

    def _finish(self, line: ReplayedService) -> None:
        """Check a commit once its whole batch has been read."""
        assert line.pending is not None
        record, commit, batch = line.pending
        if len(batch) < commit.count:
            return
        line.pending = None
        report = self.report
        wanted = self._counts(record)
        report.commits += wanted
        text = self._configs.get(commit.config)
        reason = ""
        if text is None:
            reason = UNKNOWN
        elif commit.core != line.definition.core_version:
            reason = f"decided by core {commit.core or '?'}, this is {line.definition.core_version}"
        if reason or text is None:
            if wanted:
                self._refuse(reason)
            return
        if line.core is None or line.config != commit.config:
            line.fresh(text, commit.config)
        # All own messages before the record are of the batches before it.
        line.fold(commit.folded, record.sequence - 1)
        if not wanted:
            return
        name = line.definition.name
        difference: Difference | None
        try:
            decided = line.decide(commit.now)
        except Exception as error:  # noqa: BLE001 - whatever a core raises is a difference: the service decided
            recorded, raised = f"{len(batch)} events", f"{type(error).__name__}: {error} ({raised_in(error)})"
            difference = Difference(name, record.ref, 0, RAISED, recorded, raised)
        else:
            difference = compare(name, record, commit, batch, decided, self._traces)
        if difference is not None and (self._broken or commit.behind):
            self._refuse(INCOMPLETE if self._broken else BEHIND)
            return
        report.decisions += len(batch)
        report.by_service[name] = report.by_service.get(name, 0) + 1
        if difference is None:
            report.verified += 1
            return
        report.differing += 1
        if report.first_difference is None:
            report.first_difference = difference


def verify(
    events: Iterable[Event],
    definitions: Mapping[str, ServiceDefinition],
    *,
    first: int = 0,
    last: int = 0,
    complete_from_start: bool = True,
) -> Report:
    """Verify the commits of a range of LOG given in order: a `Verifier` over all of it."""
    verifier = Verifier(definitions, first=first, last=last, complete_from_start=complete_from_start)
    for event in events:
        verifier.read(event)
    report = verifier.report
    report.not_comparable = dict(sorted(report.not_comparable.items()))
    report.by_service = dict(sorted(report.by_service.items()))
    return report


def compare(
    service: str,
    record: Event,
    commit: Commit,
    recorded: Sequence[Event],
    decided: Sequence[Event],
    traces: Traces | None = None,
) -> Difference | None:
    """Return the first difference between what a commit stored and what `decide` returns now."""
    cell_prefix = record.id.rsplit("/", 1)[0]
    for index in range(max(len(recorded), len(decided))):
        if index >= len(recorded) or index >= len(decided):
            shown = [
                f"{event.subject} {encode_payload(event.data).decode()}" if event is not None else ""
                for event in (
                    recorded[index] if index < len(recorded) else None,
                    decided[index] if index < len(decided) else None,
                )
            ]
            return Difference(service, record.ref, index + 1, "presence", *shown)
        old, new = recorded[index], decided[index]
        event_id = f"{cell_prefix}/{index + 1}"
        pairs = (
            ("subject", old.subject, new.subject),
            ("type", old.data.TYPE, new.data.TYPE),
            ("data", encode_payload(old.data).decode(), encode_payload(new.data).decode()),
            ("causes", " ".join(old.causes), " ".join(new.causes)),
            ("tombstone", str(old.tombstone), str(new.tombstone)),
            ("time", str(old.time), str(commit.now)),
            ("id", old.id, event_id),
            ("traceparent", old.traceparent, _traceparent(old, new, event_id, traces)),
        )
        for field, before, after in pairs:
            if before != after:
                return Difference(service, record.ref, index + 1, field, before, after)
    return None


def _traceparent(old: Event, new: Event, event_id: str, traces: Traces | None) -> str:
    """Return the traceparent that a recomputed event has; of several possible ones, the recorded one."""
    if not old.traceparent:
        return ""
    of_its_own = traceparent_of(new.causes, event_id)
    cause = traces.of(new.causes) if traces is not None else ""
    if cause:
        follows = continued(cause, event_id)
        return follows if old.traceparent == follows else of_its_own
    # The cause's message is not in the range, so neither is its trace: only the own part can be compared.
    return continued(old.traceparent, event_id) or of_its_own
