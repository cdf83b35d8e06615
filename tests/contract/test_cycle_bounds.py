"""The cycle at its bounds: first and last sequences, the time of decisions, who is known to be a rival, how much fits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from cotenant.engine.cycle import Cycle, DecisionError, config_digest
from cotenant.engine.load import RELOAD_PAUSE
from cotenant.engine.quarantine import Quarantine
from cotenant.events import Event, NodeResources
from cotenant.events.commits import ServiceStarted
from cotenant.log.contract import EXECUTION, Stored
from cotenant.model.subjects import resources_subject
from tests.contract.test_cycle import NOW, Bench, answers, proposed
from tests.contract.toy import TOY, AssumingToyCore, ToyConfig, ToyCore, metric, toy_identity


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def toy_cycle(core: ToyCore | None = None, name: str = "a", **options: Any) -> Cycle:
    made = core or ToyCore(ToyConfig())
    return Cycle(made, toy_identity(name), TOY.config_text(ToyConfig()), **options)


def at(event: Event, sequence: int, stream: str = "LOG") -> Event:
    return msgspec.structs.replace(event, sequence=sequence, stream=stream)


class Many(ToyCore):
    """Decides as many events as it is told to."""

    def __init__(self, count: int) -> None:
        super().__init__(ToyConfig())
        self.count = count

    def decide(self, now: datetime) -> Sequence[Event]:
        return [Event(subject=resources_subject(f"n{i}"), data=NodeResources(node=f"n{i}")) for i in range(self.count)]


class Strict(AssumingToyCore):
    """Nothing is withdrawn or confirmed that was not assumed."""

    def withdraw(self) -> None:
        assert self.assumed, "nothing was assumed"
        super().withdraw()


def loaded(core: ToyCore, **options: Any) -> tuple[Bench, Cycle]:
    bench = Bench()
    cycle = bench.join(toy_cycle(core, **options))
    bench.deliver(cycle)
    return bench, cycle


# -- what was folded -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quarantine", [None, Quarantine()])
def test_only_later_messages_of_the_log_move_what_was_folded(quarantine: Quarantine | None) -> None:
    cycle = toy_cycle(quarantine=quarantine)
    assert cycle.folded == 0
    cycle.fold((at(metric("a", 1), 5),), NOW)
    assert cycle.folded == 5
    cycle.fold((at(metric("b", 1), 4), at(metric("c", 1), 900, EXECUTION)), NOW)
    assert cycle.folded == 5
    cycle.fold((at(metric("d", 1), 6),), NOW)
    assert cycle.folded == 6
    assert isinstance(cycle.core, ToyCore)
    assert sorted(cycle.core.metrics) == ["a", "b", "c", "d"]


def test_own_messages_are_recognised_behind_a_quarantine_too() -> None:
    bench, cycle = loaded(ToyCore(ToyConfig()), quarantine=Quarantine())
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    assert bench.settle(cycle, bench.proposed(cycle))
    folded = cycle.folded
    bench.deliver(cycle)
    assert cycle.folded == folded, "own messages are not foreign ones"
    assert cycle.ready


def test_what_was_applied_when_it_was_stored_is_not_applied_when_it_is_delivered() -> None:
    bench, cycle = loaded(ToyCore(ToyConfig()))
    bench.store(metric("a", 1), metric("b", 1), metric("c", 1))
    bench.deliver(cycle)
    assert bench.settle(cycle, bench.proposed(cycle))
    assert isinstance(cycle.core, ToyCore)
    applied = cycle.core.applied
    bench.deliver(cycle)
    assert cycle.core.applied == applied


def test_the_digest_of_a_configuration_has_16_digits() -> None:
    assert len(config_digest("{}")) == 16
    assert config_digest("{}") != config_digest("{ }")


def test_incarnations_are_numbered_in_the_marker_and_wait_while_the_load_is_not_over() -> None:
    cycle = toy_cycle()
    assert cycle.pause == RELOAD_PAUSE
    unnumbered, numbered = (cycle.start_marker(NOW, ("metrics.*",), *load) for load in ((), (3,)))
    assert isinstance(unnumbered.data, ServiceStarted)
    assert isinstance(numbered.data, ServiceStarted)
    assert (unnumbered.data.load, numbered.data.load) == (0, 3)
    assert not cycle.loaded
    assert cycle.pause == RELOAD_PAUSE
    cycle.fold((at(numbered, 1),), NOW)
    assert cycle.loaded
    assert cycle.pause == seconds(0)


def two_replicas() -> tuple[Bench, Cycle, Cycle]:
    """Two replicas that would decide the same."""
    bench = Bench()
    bench.store(metric("a", 1))
    first, second = bench.replica("a"), bench.replica("b")
    for cycle in (first, second):
        bench.deliver(cycle)
    return bench, first, second


# -- the time of a decision ----------------------------------------------------------------------------------------


def test_a_decision_is_never_earlier_than_a_rivals_that_was_seen() -> None:
    bench, first, second = two_replicas()
    late = NOW + timedelta(minutes=5)
    assert bench.settle(first, bench.proposed(first, late))
    bench.store(metric("a", 2))
    bench.deliver(second)
    bench.now = NOW - seconds(10)  # The clock of the second one's host is slow.
    assert bench.proposed(second, NOW - seconds(5)).record.now == late


def test_what_is_decided_ahead_is_not_earlier_than_the_batch_before_it() -> None:
    bench = Bench()
    cycle = bench.pipelined()
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    first = bench.proposed(cycle)
    bench.store(metric("b", 1))
    bench.deliver(cycle)
    assert cycle.decide_next(first, NOW - seconds(60))
    assert bench.settle(cycle, first)
    assert bench.proposed(cycle).record.now == NOW


def test_the_commit_record_says_how_long_the_decision_took() -> None:
    readings = iter((1, 2, 5_000_000, 8_000_999))
    bench, cycle = loaded(ToyCore(ToyConfig()), timer=lambda: next(readings))
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    assert bench.proposed(cycle).record.took_us == 3000


def test_the_commit_record_says_whether_its_reader_was_behind() -> None:
    bench, cycle = loaded(ToyCore(ToyConfig()))
    for value, behind in ((1, False), (2, True), (3, False)):
        cycle.behind = behind or cycle.behind
        bench.store(metric("a", value))
        bench.deliver(cycle)
        batch = bench.proposed(cycle)
        assert batch.record.behind is behind
        assert bench.settle(cycle, batch)
        cycle.behind = False


# -- how much fits -------------------------------------------------------------------------------------------------


def test_7999_events_fit_a_batch_and_8000_break_the_contract() -> None:
    bench, fitting = loaded(Many(7999))
    assert len(bench.proposed(fitting).events) == 8000
    _, breaking = loaded(Many(8000))
    with pytest.raises(DecisionError, match="decided 8000 events at once; at most 7999 fit a batch"):
        breaking.propose(NOW)


def test_what_was_decided_ahead_is_decided_again_while_it_is_small() -> None:
    bench = Bench()
    cycle = bench.pipelined(ahead_from=2)
    bench.store(metric("a", 1), metric("b", 1))
    bench.deliver(cycle)
    first = bench.proposed(cycle)
    for node, large in (("c", False), ("d", True), ("e", True)):
        bench.store(metric(node, 1))
        bench.deliver(cycle)
        assert cycle.decide_next(first, NOW)
        assert cycle.has_next is large
    assert bench.settle(cycle, first)
    assert [event.subject for event in bench.proposed(cycle).decided] == ["node.c.resources", "node.d.resources"]


def test_deciding_nothing_does_not_begin_a_pace() -> None:
    bench, cycle = loaded(ToyCore(ToyConfig()), pace=seconds(1))
    assert cycle.propose(NOW) is None
    assert cycle.due(NOW + seconds(0.1)) is None
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    assert bench.proposed(cycle, NOW + seconds(0.1)) is not None
    assert cycle.due(NOW + seconds(0.2)) == NOW + seconds(1.1)


# -- rivals --------------------------------------------------------------------------------------------------------


def refused_once() -> tuple[Bench, Cycle, Cycle]:
    """Two replicas that would decide the same; the first one took over and decided, the second has lost at NOW."""
    bench, first, second = two_replicas()
    two = proposed(second)
    assert bench.settle(first, bench.proposed(first))
    assert not bench.settle(second, two)
    return bench, first, second


def test_a_lost_race_is_news_once_and_over_with_a_batch_of_its_own() -> None:
    bench, _, second = refused_once()
    assert second.holding_back
    assert not second.refused(NOW)
    bench.store(metric("a", 2))
    bench.deliver(second)
    assert bench.settle(second, bench.proposed(second, NOW + seconds(2)))
    assert not second.holding_back
    assert second.refused(NOW)


def test_a_lost_race_is_news_also_if_the_winners_commit_is_delivered_before_the_refusal() -> None:
    bench, first, second = two_replicas()
    assert proposed(second) is not None
    assert bench.settle(first, bench.proposed(first))
    bench.deliver(second)
    assert second.holding_back
    assert second.refused(NOW)
    assert not second.refused(NOW)


def test_who_lost_waits_two_seconds_from_the_rivals_last_commit() -> None:
    bench, first, second = refused_once()
    bench.store(metric("a", 2))
    bench.deliver(first)
    assert bench.settle(first, bench.proposed(first))
    bench.now = NOW + seconds(1.5)
    bench.store(metric("a", 3))
    bench.deliver(second)
    assert second.propose(NOW + seconds(3.4)) is None
    assert second.propose(NOW + seconds(3.5)) is not None


def test_who_lost_does_not_wait_until_a_clock_that_was_set_back_has_caught_up() -> None:
    bench, _, second = refused_once()
    bench.store(metric("a", 2))
    bench.deliver(second)
    assert second.propose(NOW) is None
    batch = bench.proposed(second, NOW - seconds(3600))
    assert batch.record.now == NOW, "the time of decisions never goes back"
    assert bench.settle(second, batch)


def test_the_rivals_commit_is_not_seen_again_when_it_is_delivered_again() -> None:
    bench = Bench()
    rival = bench.replica("b")
    bench.deliver(rival)
    cycle = bench.join(Cycle(AssumingToyCore(ToyConfig()), toy_identity("a"), TOY.config_text(ToyConfig()), ahead_from=1))
    bench.store(metric("a", 1), metric("b", 1))
    bench.deliver(rival)
    assert bench.settle(rival, bench.proposed(rival))
    bench.deliver(cycle)
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    first = bench.proposed(cycle, NOW + seconds(3))
    cycle.decide_next(first, NOW)
    assert not cycle.ready
    bench.give(cycle, rival.prior)
    assert not cycle.ready, "the batch in progress is still assumed"
    assert bench.settle(cycle, first)
    assert answers(cycle) == {"a": 4, "b": 2}


def test_nothing_is_withdrawn_from_a_core_that_assumed_nothing() -> None:
    bench = Bench()
    cycle = bench.join(toy_cycle(Strict(ToyConfig()), ahead_from=1))
    rival = bench.replica("b")
    bench.store(metric("a", 1))
    for each in (cycle, rival):
        bench.deliver(each)
    assert bench.settle(rival, bench.proposed(rival))
    bench.deliver(cycle)
    assert answers(cycle) == {"a": 2}


def test_a_batch_that_is_stored_twice_over_is_settled_once() -> None:
    bench, cycle = loaded(ToyCore(ToyConfig()))
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    batch = bench.proposed(cycle)
    outcome = bench.stream.append(batch.writes())
    assert isinstance(outcome, Stored)
    cycle.stored(batch, outcome)
    assert isinstance(cycle.core, ToyCore)
    applied = cycle.core.applied
    cycle.stored(batch, outcome)
    assert cycle.core.applied == applied
