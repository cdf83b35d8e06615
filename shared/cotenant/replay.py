"""`replay --verify`: rebuild the state that each commit was decided on, call `decide` again, compare.

In: the events of LOG in order, as HISTORY holds them. For every commit record of a recomputed service the state is: foreign
messages up to its `folded` plus own messages up to the end of `prior`'s batch. As both only grow, one core per service and
configuration is carried along. Compared are subject, type, data, time, causes and id of every event of the batch.

A commit of another `core` version, or whose configuration's text is not among the start markers, is "not comparable" and
counted. So is a commit whose state rests on messages that are no longer there (holes in HISTORY, or a stretch that begins in
mid-life).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cotenant.core import Core
from cotenant.cycle import config_digest
from cotenant.definition import Definition
from cotenant.events.commits import Commit, ServiceStarted
from cotenant.events.envelope import Event, encode_payload, traceparent_of
from cotenant.subjects import matches, tokens


class Difference(msgspec.Struct, frozen=True):
    """The first event of a commit that came out differently. Texts are JSON; empty where one side has no such event."""

    service: str
    commit: str
    index: int
    field: str
    recorded: str
    recomputed: str


class Report(msgspec.Struct, kw_only=True):
    """What a verification found. `not_comparable` counts commits by reason."""

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
        """Everything comparable came out the same, and something was compared."""
        return self.differing == 0 and self.verified > 0


class _Line:
    """One partition of one service: the messages not yet folded, and the core carried along."""

    def __init__(self, definition: Definition, source: str) -> None:
        self.definition = definition
        self.source = source
        self.core: Core | None = None
        self.config = ""
        self.foreign: list[Event] = []
        self.own: list[Event] = []
        self.history: list[Event] = []
        self.last_end = 0

    def wants(self, event: Event) -> bool:
        return any(matches(pattern, event.subject) for pattern in self.definition.filters)

    def fresh(self, config_text: str, digest: str) -> None:
        """Start a core for a configuration and fold everything that earlier ones had folded."""
        self.core = self.definition.make_core(self.definition.config_from(config_text))
        self.config = digest
        for event in self.history:
            self.core.apply(event)

    def fold(self, folded: int, own_end: int) -> None:
        """Fold what the state of a commit contains and the core has not yet."""
        assert self.core is not None
        ready = [event for event in self.foreign if event.sequence <= folded]
        self.foreign = self.foreign[len(ready) :]
        mine = [event for event in self.own if event.sequence <= own_end]
        self.own = self.own[len(mine) :]
        for event in sorted((*ready, *mine), key=lambda event: event.sequence):
            self.core.apply(event)
            self.history.append(event)


def verify(
    events: Iterable[Event],
    definitions: Mapping[str, Definition],
    *,
    first: int = 0,
    last: int = 0,
    complete_from_start: bool = True,
) -> Report:
    """Verify the commits with sequence `first`..`last` (0: no bound) in a stretch of LOG given in order.

    `complete_from_start` False says that messages before the stretch are missing: its commits are then not comparable.
    """
    report = Report()
    refused: Counter[str] = Counter()
    per_service: Counter[str] = Counter()
    configs: dict[str, str] = {}
    lines: dict[str, _Line] = {}
    pending: dict[str, tuple[Event, Commit, list[Event]]] = {}
    waiting_foreign: list[Event] = []
    previous = 0
    broken = not complete_from_start
    for event in events:
        report.events += 1
        if previous and event.sequence != previous + 1:
            report.holes += event.sequence - previous - 1
            broken = True
        previous = event.sequence
        data = event.data
        if isinstance(data, ServiceStarted):
            configs[config_digest(data.config_text)] = data.config_text
            continue
        waiting_foreign.append(event)
        if isinstance(data, Commit):
            service = tokens(event.subject)[1]
            definition = definitions.get(service)
            if definition is None or not definition.recomputed:
                continue
            if event.source not in lines:
                line = lines[event.source] = _Line(definition, event.source)
                line.foreign = [old for old in waiting_foreign if old.source != event.source and line.wants(old)]
            pending[event.source] = (event, data, [])
            _finish(event.source, lines, pending, configs, report, refused, per_service, first, last, broken)
            continue
        for source, line in lines.items():
            if not line.wants(event):
                continue
            (line.own if event.source == source else line.foreign).append(event)
        if event.source in pending:
            pending[event.source][2].append(event)
            _finish(event.source, lines, pending, configs, report, refused, per_service, first, last, broken)
    report.not_comparable = dict(sorted(refused.items()))
    report.by_service = dict(sorted(per_service.items()))
    return report


def _finish(
    source: str,
    lines: Mapping[str, _Line],
    pending: dict[str, tuple[Event, Commit, list[Event]]],
    configs: Mapping[str, str],
    report: Report,
    refused: Counter[str],
    per_service: Counter[str],
    first: int,
    last: int,
    broken: bool,
) -> None:
    """Check a commit once its whole batch has been read."""
    record, commit, batch = pending[source]
    if len(batch) < commit.count:
        return
    del pending[source]
    line = lines[source]
    prior_end, line.last_end = line.last_end, record.sequence + commit.count
    if (first and record.sequence < first) or (last and record.sequence > last):
        wanted = False
    else:
        wanted = True
        report.commits += 1
    text = configs.get(commit.config)
    reason = ""
    if broken:
        reason = "the state before it is no longer complete"
    elif text is None:
        reason = "the configuration's text is not in the stretch"
    elif commit.core != line.definition.core_version:
        reason = f"decided by core {commit.core or '?'}, this is {line.definition.core_version}"
    if reason or text is None:
        if wanted:
            refused[reason] += 1
        return
    if line.core is None or line.config != commit.config:
        line.fresh(text, commit.config)
    line.fold(commit.folded, prior_end)
    if not wanted:
        return
    assert line.core is not None
    decided = line.core.decide(commit.now)
    difference = compare(line.definition.name, record, commit, batch, decided)
    report.decisions += len(batch)
    per_service[line.definition.name] += 1
    if difference is None:
        report.verified += 1
        return
    report.differing += 1
    if report.first_difference is None:
        report.first_difference = difference


def compare(
    service: str, record: Event, commit: Commit, recorded: Sequence[Event], decided: Sequence[Event]
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
            ("traceparent", old.traceparent, traceparent_of(new.causes, event_id)),
        )
        for field, before, after in pairs:
            if before != after:
                return Difference(service, record.ref, index + 1, field, before, after)
    return None
