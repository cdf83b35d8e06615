"""A core that raises while a commit is decided again: for a message that the service quarantined, or without one at fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from cotenant.engine.commit import CommitPlace, Decision, Identity, commit_batch
from cotenant.engine.cycle import config_digest
from cotenant.engine.definition import ServiceDefinition
from cotenant.engine.replay import BEHIND, INCOMPLETE, RAISED, Verifier, verify
from cotenant.events.commits import Commit, ServiceStarted
from cotenant.events.envelope import Event
from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.events.node.resources import NodeResources
from cotenant.model.subjects import marker_subject

START = datetime(2026, 1, 1, tzinfo=UTC)
POISON = 667
NAME = "doubling"
IDENTITY = Identity(service=NAME, core="1")
TEXT = "{}"


class NoConfig(msgspec.Struct, frozen=True):
    """The core has no settings."""


class Doubling:
    """Answers each node's figure with its double; it cannot decide while a node has the figure POISON."""

    def __init__(self) -> None:
        self.figures: dict[str, int] = {}
        self.answers: dict[str, int] = {}

    def apply(self, event: Event) -> None:
        data = event.data
        if isinstance(data, NodeMetricComputed):
            self.figures[data.node] = data.node_usage.cpu_milli
        elif isinstance(data, NodeResources):
            self.answers[data.node] = data.batch_cpu_milli

    def decide(self, now: datetime) -> Sequence[Event]:
        if POISON in self.figures.values():
            raise ZeroDivisionError("no rule for this")
        return [
            Event(subject=f"node.{node}.resources", data=NodeResources(node=node, batch_cpu_milli=2 * figure))
            for node, figure in sorted(self.figures.items())
            if self.answers.get(node) != 2 * figure
        ]


class Broken(Doubling):
    """A version with a bug that has nothing to do with any message: it raises from the second minute on."""

    def decide(self, now: datetime) -> Sequence[Event]:
        if now >= START + timedelta(minutes=1):
            raise KeyError("minute")
        return super().decide(now)


def definition(core: Callable[[], Doubling] = Doubling) -> ServiceDefinition:
    return ServiceDefinition(
        name=NAME,
        core_version="1",
        filters=("metrics.*", "node.*.resources"),
        config_type=NoConfig,
        make_core=lambda _: core(),
    )


class Log:
    """What a service's log holds: facts, and the commits of a service that decides after some of them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._prior = 0
        marker = ServiceStarted(service=NAME, replica="a", config_text=TEXT, config=config_digest(TEXT))
        self._append(Event(subject=marker_subject(NAME, "a"), data=marker, source=IDENTITY.source))

    def _append(self, event: Event) -> None:
        self.events.append(msgspec.structs.replace(event, sequence=len(self.events) + 1))

    def says(self, **figures: int) -> None:
        for node, figure in figures.items():
            data = NodeMetricComputed(node=node, node_usage=Usage(cpu_milli=figure))
            self._append(Event(subject=f"metrics.{node}", data=data, source="metrics-ingest"))

    def decided(self, answers: Mapping[str, int], *, minute: int = 0, behind: bool = False) -> None:
        """Store a commit on everything before it."""
        events: list[Event] = [
            Event(subject=f"node.{node}.resources", data=NodeResources(node=node, batch_cpu_milli=answer))
            for node, answer in answers.items()
        ]
        folded = len(self.events)
        now = START + timedelta(minutes=minute)
        decision = Decision(events=events, folded=folded, now=now, took_us=0, behind=behind)
        batch = commit_batch(decision, IDENTITY, config_digest(TEXT), CommitPlace(self._prior, self._prior))
        self._prior = folded + 1
        for event in batch.events:
            self._append(event)


def test_a_commit_is_compared_without_the_message_that_the_service_had_quarantined() -> None:
    log = Log()
    log.says(a=1, b=2)
    log.decided({"a": 2, "b": 4})
    log.says(c=POISON, a=5)
    log.decided({"a": 10})
    log.says(b=6)
    log.decided({"b": 12})
    log.says(c=3)
    log.decided({"c": 6})
    report = verify(log.events, {NAME: definition()})
    assert report.ok, report
    assert (report.commits, report.verified, report.not_comparable) == (4, 4, {})


def test_messages_at_fault_are_found_among_all_that_a_service_loads() -> None:
    log = Log()
    figures = {f"n{number:03}": POISON if number in (0, 70, 71, 199) else number for number in range(200)}
    log.says(**figures)
    log.decided({node: 2 * figure for node, figure in figures.items() if figure != POISON})
    report = verify(log.events, {NAME: definition()})
    assert (report.verified, report.differing) == (1, 0), report


def test_what_was_decided_without_the_quarantined_message_is_still_compared() -> None:
    log = Log()
    log.says(a=1, c=POISON)
    log.decided({"a": 77})
    report = verify(log.events, {NAME: definition()})
    assert report.differing == 1
    assert report.first_difference is not None
    assert (report.first_difference.field, report.first_difference.index) == ("data", 1)
    assert '"batchCpuMilli":2' in report.first_difference.recomputed


def test_a_core_that_raises_for_no_message_differs_and_the_difference_says_what_and_where() -> None:
    log = Log()
    log.says(a=1)
    log.decided({"a": 2})
    log.says(a=2)
    log.decided({"a": 4}, minute=1)
    log.says(a=3)
    log.decided({"a": 6}, minute=2)
    report = verify(log.events, {NAME: definition(Broken)})
    assert not report.ok
    assert (report.commits, report.verified, report.differing, report.not_comparable) == (3, 1, 2, {})
    found = report.first_difference
    assert found is not None
    assert (found.service, found.field, found.index, found.recorded) == (NAME, RAISED, 0, "1 events")
    assert found.commit == "LOG:6"
    assert found.recomputed.startswith(f"KeyError: 'minute' ({__name__}:")
    assert found.recomputed.endswith(" in decide)")


def test_a_core_that_always_raises_is_not_searched_again_for_every_commit() -> None:
    made: list[Doubling] = []

    class Hopeless(Doubling):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

        def decide(self, now: datetime) -> Sequence[Event]:
            raise KeyError("always")

    log = Log()
    for figure in range(1, 50):
        log.says(a=figure)
        log.decided({"a": 2 * figure})
    report = verify(log.events, {NAME: definition(Hopeless)})
    assert (report.verified, report.differing) == (0, 49)
    assert len(made) == 2


def test_what_was_found_once_is_not_searched_again() -> None:
    made: list[Doubling] = []

    class Counted(Doubling):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    log = Log()
    log.says(a=1, c=POISON)
    log.decided({"a": 2})
    assert verify(log.events, {NAME: definition(Counted)}).ok
    for_one_commit = len(made)
    for figure in range(2, 20):
        log.says(a=figure)
        log.decided({"a": 2 * figure})
    report = verify(log.events, {NAME: definition(Counted)})
    assert (report.verified, report.differing) == (19, 0)
    assert len(made) == 2 * for_one_commit


def test_a_core_that_decides_again_is_searched_again() -> None:
    class BrokenForAMinute(Doubling):
        def decide(self, now: datetime) -> Sequence[Event]:
            if now == START + timedelta(minutes=1):
                raise KeyError("minute")
            return super().decide(now)

    log = Log()
    log.says(a=1)
    log.decided({"a": 2}, minute=1)
    log.says(a=2)
    log.decided({"a": 4}, minute=2)
    log.says(a=3, c=POISON)
    log.decided({"a": 6}, minute=3)
    report = verify(log.events, {NAME: definition(BrokenForAMinute)})
    assert (report.verified, report.differing) == (2, 1)


def test_a_message_of_a_commit_that_is_not_compared_is_suspected_too() -> None:
    log = Log()
    log.says(a=1)
    log.decided({"a": 2})
    log.says(c=POISON, b=2)
    log.decided({"b": 4})
    log.says(a=3)
    log.decided({"a": 6})
    last = next(event.sequence for event in reversed(log.events) if isinstance(event.data, Commit))
    verifier = Verifier({NAME: definition()}, first=last)
    for event in log.events:
        verifier.read(event)
    report = verifier.report
    assert (report.commits, report.verified, report.differing) == (1, 1, 0), report


@pytest.mark.parametrize(("complete", "behind", "reason"), [(False, False, INCOMPLETE), (True, True, BEHIND)])
def test_where_messages_are_missing_a_core_that_raises_is_not_comparable(complete: bool, behind: bool, reason: str) -> None:
    log = Log()
    log.says(a=1)
    log.decided({"a": 2}, minute=1, behind=behind)
    report = verify(log.events, {NAME: definition(Broken)}, complete_from_start=complete)
    assert report.not_comparable == {reason: 1}
    assert report.differing == 0
