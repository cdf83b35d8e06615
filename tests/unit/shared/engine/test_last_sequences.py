"""What is remembered of subjects so that repeated and overtaken deliveries change nothing, and for how long."""

from __future__ import annotations

from cotenant.engine.last_sequences import REMEMBERED_POSITIONS, LastSequences
from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeResources


def delivery(subject: str, sequence: int, *, ends: bool = False) -> Event:
    return Event(subject=subject, data=NodeResources(node="n"), sequence=sequence, tombstone=ends)


def test_only_what_is_newer_than_the_subject_is_news() -> None:
    last = LastSequences()
    assert last.is_new(delivery("a", 5))
    assert not last.is_new(delivery("a", 5))
    assert not last.is_new(delivery("a", 4))
    assert last.is_new(delivery("b", 4))
    assert last.is_new(delivery("a", 6))


def test_what_an_ended_subject_said_before_is_no_news() -> None:
    last = LastSequences()
    last.is_new(delivery("a", 5))
    assert last.is_new(delivery("a", 9, ends=True))
    assert not last.is_new(delivery("a", 5))
    assert last.is_new(delivery("a", 10))
    assert not last.is_new(delivery("a", 9, ends=True))


def test_subjects_that_ended_are_forgotten_so_far_behind_and_those_that_live_never() -> None:
    last = LastSequences()
    last.is_new(delivery("alive", 1))
    for sequence in range(2, 3 * REMEMBERED_POSITIONS):
        last.is_new(delivery(f"pod-{sequence}", sequence, ends=True))
    assert len(last) == REMEMBERED_POSITIONS + 1
    assert last.of("alive") == 1
    assert last.of("pod-2") == 0
    assert last.of(f"pod-{2 * REMEMBERED_POSITIONS}") == 2 * REMEMBERED_POSITIONS


def test_a_subject_that_came_again_is_not_forgotten_with_its_former_end() -> None:
    last = LastSequences()
    last.is_new(delivery("a", 1, ends=True))
    last.is_new(delivery("a", 2))
    last.is_new(delivery("b", 2 * REMEMBERED_POSITIONS, ends=True))
    assert last.of("a") == 2
    assert not last.is_new(delivery("a", 2))


def test_a_load_may_bring_the_newest_first() -> None:
    last = LastSequences()
    last.is_new(delivery("new", 9 * REMEMBERED_POSITIONS, ends=True))
    assert last.is_new(delivery("old", 5, ends=True))
    assert last.of("old") == 0
    assert last.is_new(delivery("older", 4))
    assert last.of("new") == 9 * REMEMBERED_POSITIONS
    assert last.of("older") == 4
