"""What a core looks at again: what was marked, and what is due by time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.engine.agenda import Agenda, IdleSpan
from cotenant.model.times import NEVER

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_what_was_marked_is_due_in_order_until_it_is_settled() -> None:
    agenda = Agenda()
    agenda.mark("b")
    agenda.mark_all(["c", "a"])
    assert agenda.due(START) == ["a", "b", "c"]
    agenda.settle("b")
    assert agenda.due(START) == ["a", "c"]
    agenda.mark("b")
    assert agenda.due(START) == ["a", "b", "c"]


def test_a_settled_entity_is_due_again_at_its_next_look_and_not_before() -> None:
    agenda = Agenda()
    agenda.settle("a", at(10))
    assert agenda.waits("a")
    assert agenda.due(at(9.999)) == []
    assert agenda.due(at(10)) == ["a"]
    assert not agenda.waits("a")
    assert agenda.due(at(10)) == ["a"]


def test_a_next_look_moves_forward_only() -> None:
    agenda = Agenda()
    agenda.settle("a", at(10))
    agenda.settle("a", at(20))
    assert agenda.due(at(10)) == ["a"]
    agenda.settle("a", at(20))
    agenda.settle("a", at(15))
    assert agenda.due(at(15)) == ["a"]
    agenda.settle("a")
    assert agenda.due(at(20)) == []


def test_one_that_waits_for_nothing_is_never_due_by_time() -> None:
    agenda = Agenda()
    agenda.settle("a", NEVER)
    assert not agenda.waits("a")
    assert agenda.due(NEVER) == []


def test_what_is_dropped_is_not_due_by_its_mark_nor_by_its_time() -> None:
    agenda = Agenda()
    agenda.mark("a")
    agenda.settle("b", at(1))
    agenda.drop("a")
    agenda.drop("b")
    agenda.drop("c")
    assert agenda.due(at(2)) == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["mark", "settle", "drop"]), st.integers(0, 9)), max_size=40))
def test_nothing_is_due_later_than_it_asked_to_be(steps: list[tuple[str, str, int]]) -> None:
    """Against the plain rule: marked, or its last `settle` is over, and not dropped since. Some are due earlier than that."""
    agenda, asked = Agenda(), dict[str, datetime]()
    for number, (name, step, wait) in enumerate(steps):
        now = at(number)
        if step == "mark":
            agenda.mark(name)
            asked[name] = now
        elif step == "settle":
            agenda.settle(name, now + timedelta(seconds=wait))
            asked[name] = now + timedelta(seconds=wait)
        else:
            agenda.drop(name)
            asked.pop(name, None)
        due = agenda.due(now)
        assert due == sorted(due)
        assert {each for each, when in asked.items() if when <= now} <= set(due) <= set(asked)


@pytest.mark.parametrize(
    ("version", "seconds", "holds"),
    [(3, 0, True), (3, 9.9, True), (3, 10, False), (3, -1, False), (4, 0, False), (2, 5, False)],
)
def test_a_span_holds_for_its_version_and_its_time(version: int, seconds: float, holds: bool) -> None:
    idle = IdleSpan()
    idle.begin(3, START, at(10))
    assert idle.until == at(10)
    assert idle.holds(version, at(seconds)) is holds


def test_a_span_that_has_not_begun_or_is_of_no_version_holds_never() -> None:
    idle = IdleSpan()
    assert not idle.holds(-1, datetime(1970, 1, 1, tzinfo=UTC))
    idle.begin(-1, START, at(10))
    assert not idle.holds(-1, at(5))
