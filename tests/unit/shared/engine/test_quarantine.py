"""A service goes on without the messages that its core cannot fold or decide with, and takes them back when they are mended."""

from __future__ import annotations

import pytest

from cotenant.engine.quarantine import MAX_HELD, Quarantine
from cotenant.events import Event, NodeMetricComputed
from cotenant.events.node.metrics import Usage

UNFOLDABLE, UNDECIDABLE = 666, 667


def metric(node: str, cpu: int, sequence: int) -> Event:
    data = NodeMetricComputed(node=node, node_usage=Usage(cpu_milli=cpu))
    return Event(subject=f"metrics.{node}", data=data, sequence=sequence)


class Core:
    """Knows the last figure of each node; some figures it cannot fold, some it cannot decide with."""

    def __init__(self) -> None:
        self.figures: dict[str, int] = {}

    def apply(self, event: Event) -> None:
        assert isinstance(event.data, NodeMetricComputed)
        if event.data.node_usage.cpu_milli == UNFOLDABLE:
            raise OverflowError("too many")
        self.figures[event.subject] = event.data.node_usage.cpu_milli

    def decide(self) -> None:
        if UNDECIDABLE in self.figures.values():
            raise ZeroDivisionError("no rule for this")


def run(quarantine: Quarantine, events: list[Event], pull: int = 50) -> tuple[Core, int]:
    """Begin incarnations on a log that holds these events until one decides; return its core, and how many there were."""
    for number in range(1, 100):
        core = Core()
        for first in range(0, len(events), pull):
            quarantine.fold(events[first : first + pull], core.apply)
        if quarantine.searching and not quarantine.search(core.apply, core.decide):
            continue
        try:
            core.decide()
        except ZeroDivisionError as error:
            quarantine.failed(error)
            continue
        quarantine.decided()
        return core, number
    pytest.fail("no incarnation decides")


def test_a_message_that_cannot_be_folded_is_set_aside_and_what_follows_is_folded() -> None:
    quarantine, core = Quarantine(), Core()
    quarantine.fold([metric("a", 1, 1), metric("b", UNFOLDABLE, 2), metric("c", 3, 3)], core.apply)
    assert core.figures == {"metrics.a": 1, "metrics.c": 3}
    found = [(finding.event.subject, finding.reason) for finding in quarantine.findings]
    assert found == [("metrics.b", "OverflowError: too many")]


def test_a_later_message_of_its_subject_ends_the_quarantine() -> None:
    quarantine, core = Quarantine(), Core()
    quarantine.fold([metric("b", UNFOLDABLE, 2)], core.apply)
    quarantine.fold([metric("b", UNFOLDABLE, 2), metric("b", 5, 9)], core.apply)
    assert core.figures == {"metrics.b": 5}
    assert not quarantine.held
    assert len(quarantine.findings) == 1


@pytest.mark.parametrize("bad", [(0,), (999,), (500,), (3, 4), (0, 500, 999)])
def test_messages_that_cannot_be_decided_with_are_found_in_a_few_incarnations(bad: tuple[int, ...]) -> None:
    events = [metric(f"n{number}", UNDECIDABLE if number in bad else 1, number + 1) for number in range(1000)]
    quarantine = Quarantine()
    core, incarnations = run(quarantine, events)
    assert set(quarantine.held) == {f"metrics.n{number}" for number in bad}
    assert set(core.figures) == {event.subject for event in events} - set(quarantine.held)
    assert incarnations <= 1 + 4 * len(bad) + 1
    again, count = run(quarantine, events)
    assert (again.figures, count) == (core.figures, 1)


def test_one_bad_message_among_many_good_ones_after_a_good_decision_is_suspected_alone() -> None:
    quarantine = Quarantine()
    events = [metric(f"n{number}", 1, number + 1) for number in range(100)]
    run(quarantine, events)
    core = Core()
    bad = metric("n7", UNDECIDABLE, 200)
    quarantine.fold([bad], core.apply)
    with pytest.raises(ZeroDivisionError) as failure:
        core.decide()
    quarantine.failed(failure.value)
    _, incarnations = run(quarantine, [*events, bad])
    assert quarantine.held == {"metrics.n7": 200}
    assert incarnations == 2


def test_a_core_that_raises_whatever_it_folded_ends_with_its_exception_and_nothing_is_quarantined() -> None:
    class Broken(Core):
        def decide(self) -> None:
            raise ZeroDivisionError("always")

    quarantine = Quarantine()
    run(quarantine, events := [metric(f"n{number}", 1, number + 1) for number in range(100)])
    newest = metric("n7", 2, 200)
    core = Broken()
    quarantine.fold([newest], core.apply)
    with pytest.raises(ZeroDivisionError) as failure:
        core.decide()
    quarantine.failed(failure.value)
    for _ in range(2):
        core = Broken()
        quarantine.fold([*events, newest], core.apply)
        assert quarantine.searching
        try:
            assert not quarantine.search(core.apply, core.decide)
        except ZeroDivisionError:
            break
    else:
        pytest.fail("the exception is not raised")
    assert not quarantine.held
    assert not quarantine.findings


def test_a_message_that_cannot_be_decided_with_later_on_is_found_among_those_decided_with() -> None:
    class Aged(Core):
        late = False

        def decide(self) -> None:
            if Aged.late:
                super().decide()

    def incarnation(events: list[Event]) -> Aged:
        for _ in range(10):
            core = Aged()
            quarantine.fold(events, core.apply)
            if not quarantine.searching or quarantine.search(core.apply, core.decide):
                core.decide()
                quarantine.decided()
                return core
        pytest.fail("no incarnation decides")

    quarantine = Quarantine()
    events = [metric(f"n{number}", UNDECIDABLE if number == 3 else 1, number + 1) for number in range(100)]
    core = incarnation(events)
    newest = metric("n7", 2, 200)
    quarantine.fold([newest], core.apply)
    Aged.late = True
    with pytest.raises(ZeroDivisionError) as failure:
        core.decide()
    quarantine.failed(failure.value)
    incarnation([*events, newest])
    assert quarantine.held == {"metrics.n3": 4}, "the message that came with the exception is not the one at fault"


def test_what_no_message_causes_is_raised() -> None:
    quarantine = Quarantine()
    with pytest.raises(ZeroDivisionError):
        quarantine.failed(ZeroDivisionError())


def test_where_too_many_are_set_aside_the_core_itself_is_at_fault() -> None:
    quarantine, core = Quarantine(), Core()
    quarantine.fold([metric(f"n{number}", UNFOLDABLE, number + 1) for number in range(MAX_HELD)], core.apply)
    with pytest.raises(OverflowError):
        quarantine.fold([metric("last", UNFOLDABLE, 5000)], core.apply)
