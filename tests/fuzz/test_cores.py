"""Every core folds and decides whatever a message or a document can hold: nothing raises, and what it decides can be stored.

What is checked of each case: see `tests.fuzz.cores`. The examples are the same in every run; `python -m tests.fuzz` makes
others.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.engine.quarantine import Quarantine
from cotenant.events.envelope import Event, payload_types
from cotenant_scheduler.core import SchedulerCore
from tests.fuzz.__main__ import main
from tests.fuzz.cases import PLANS, Step, messages, readable, run
from tests.fuzz.cores import SUBJECTS, answer
from tests.fuzz.extremes import NOW
from tests.fuzz.facts import DELETED, OBJECT

CASES = 250
"""Of each core."""


@pytest.mark.parametrize("service", sorted(SUBJECTS))
def test_a_core_takes_whatever_a_message_can_hold(service: str) -> None:
    @settings(max_examples=CASES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(PLANS)
    def every_case(plan: list[Step]) -> None:
        run(service, plan)

    every_case()


def test_a_message_of_every_type_is_for_some_core() -> None:
    read = {wire for service in SUBJECTS for wire in readable(service)} | {OBJECT, DELETED}
    assert payload_types().keys() - read == set()


class Broken:
    """A core that folds nothing."""

    filters = ("node.n1.>",)
    folded = 0

    def __init__(self) -> None:
        self.journal = SUBJECTS["scheduler"]().journal

    def act(self, *_: object) -> None:
        raise OverflowError("too many")


def test_a_run_prints_each_fault_once_and_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(SUBJECTS, "toy", Broken)
    monkeypatch.setattr("sys.argv", ["fuzz", "-n", "40", "--seed", "1", "toy", "quota-tree"])
    assert main() == 1
    printed = capsys.readouterr().out
    assert printed.count("FAULT toy") == 1
    assert "OverflowError: too many" in printed
    assert "quota-tree=20/" in printed.splitlines()[-1], "the block of the next service"


class Allergic:
    """A scheduler that cannot fold, or not decide with, pods of some sequences."""

    def __init__(self, unfoldable: frozenset[int], undecidable: frozenset[int]) -> None:
        self.core = SchedulerCore()
        self._unfoldable, self._undecidable = unfoldable, undecidable
        self._holds: dict[str, int] = {}

    def apply(self, event: Event) -> None:
        if event.sequence in self._unfoldable:
            raise OverflowError("too many")
        self._holds[event.subject] = event.sequence
        self.core.apply(event)

    def decide(self) -> list[Event]:
        if self._undecidable.intersection(self._holds.values()):
            raise ZeroDivisionError("no rule for this")
        return list(self.core.decide(NOW))


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(PLANS, st.frozensets(st.integers(1, 30), max_size=4), st.frozensets(st.integers(1, 30), max_size=3))
def test_what_was_set_aside_comes_back_with_a_later_message(
    plan: list[Step], unfoldable: frozenset[int], undecidable: frozenset[int]
) -> None:
    journal = SUBJECTS["scheduler"]().journal
    events = [event for message in messages("scheduler", plan) if (event := journal.take(message)) is not None]
    quarantine = Quarantine()
    core = _settled(quarantine, events, unfoldable, undecidable)
    assert set(quarantine.held.values()) <= unfoldable | undecidable
    mended = [_again(event, 1000 + number) for number, event in enumerate(events) if event.subject in quarantine.held]
    quarantine.fold(mended, core.apply)
    assert not quarantine.held
    plain = SchedulerCore()
    last = {event.subject: event for event in [*events, *mended]}
    for event in sorted(last.values(), key=lambda event: event.sequence):
        plain.apply(event)
    assert answer(core.decide()) == answer(plain.decide(NOW)), "it decides as if nothing had been set aside"


def _again(event: Event, sequence: int) -> Event:
    return msgspec.structs.replace(event, sequence=sequence)


def _settled(quarantine: Quarantine, events: list[Event], unfoldable: frozenset[int], undecidable: frozenset[int]) -> Allergic:
    """Begin incarnations until one decides."""
    for _ in range(50):
        core = Allergic(unfoldable, undecidable)
        quarantine.fold(events, core.apply)
        if quarantine.searching and not quarantine.search(core.apply, core.decide):
            continue
        try:
            core.decide()
        except ZeroDivisionError as error:
            quarantine.failed(error)
            continue
        quarantine.decided()
        return core
    pytest.fail("no incarnation decides")
