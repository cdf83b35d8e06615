"""What fuzzing found: reports and messages that made the copilot raise, or publish the same again and again."""

from __future__ import annotations

import msgspec
import pytest

from cotenant.events import Event, YarnNode
from cotenant.events.envelope import decode_event, encode_event
from cotenant.model.bounds import MAX_AMOUNT
from cotenant.model.subjects import node_subject, yarn_subject
from cotenant_yarn_copilot.rm_messages import AnswerError, read_node
from tests.builders import node_document, stored
from tests.unit.yarn_copilot.builders_yarn_copilot import NOON, Bench, manager


def test_a_manager_that_is_listed_twice_is_published_once() -> None:
    bench = Bench()
    twice = [manager("a:1", vcores=4), manager("a:1", vcores=8)]
    assert [fact.given.cpu_milli for fact in bench.facts(*twice).values()] == [8000]
    assert bench.facts(*twice) == {}


def test_a_manager_without_an_id_is_left_out() -> None:
    assert Bench().facts(manager("")) == {}


def test_amounts_beyond_the_bounds_are_saturated() -> None:
    (fact,) = Bench().facts(manager("a:1", memory_mb=2**60)).values()
    assert fact.given.memory_bytes == MAX_AMOUNT
    wire = encode_event(Event(subject=yarn_subject("a:1"), data=fact, id="i", source="/s"))
    assert decode_event(wire, subject=yarn_subject("a:1"), stream="LOG", sequence=1).data == fact


def test_a_number_beyond_javas_is_no_answer() -> None:
    with pytest.raises(AnswerError):
        read_node(msgspec.json.encode({"node": {"id": "a:1", "numContainers": 2**40}}))


def test_a_published_id_that_is_none_is_forgotten() -> None:
    bench = Bench()
    bench.node("n1")
    bench.store(yarn_subject("n1"), YarnNode(node="n1", node_id="*", update_time=NOON))
    assert bench.copilot.match({}, NOON) == []


def test_a_message_about_another_entity_than_its_subject_is_not_published_again() -> None:
    bench = Bench()
    bench.node("n1")
    bench.store(yarn_subject("n1"), YarnNode(node="n2", node_id="a:1", cluster="yarn-2", update_time=NOON))
    assert bench.pass_over({}) == {}


def test_an_older_version_of_a_node_that_comes_again_changes_nothing() -> None:
    bench = Bench()
    old = Event(subject=node_subject("n1"), data=stored(node_document("n1")), sequence=5)
    bench.copilot.apply(old)
    bench.copilot.apply(Event(subject=node_subject("n1"), data=stored(node_document("n1")), sequence=6, tombstone=True))
    bench.copilot.apply(old)
    assert bench.facts(manager("n1:1"))["n1:1"].node == ""
