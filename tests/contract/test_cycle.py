"""The cycle without I/O: what may be proposed when, and what a refusal means."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from cotenant.engine.commit import Batch
from cotenant.engine.cycle import FULL_FROM, REMEMBERED_BATCHES, Cycle
from cotenant.engine.replay import verify
from cotenant.events import Commit, Event
from cotenant.log.contract import Refused, Stored, Write
from cotenant.log.memory import MemoryStream
from tests.contract.toy import ASSUMING_TOY, TOY, AssumingToyCore, ToyConfig, ToyCore, metric, toy_identity

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Bench:
    """A stream and replicas of the toy service on it, driven by hand."""

    def __init__(self) -> None:
        self.now = NOW
        self.stream = MemoryStream("LOG", lambda: self.now, keep_per_subject=64)
        self.positions: dict[int, int] = {}

    def replica(self, name: str = "a") -> Cycle:
        return self.join(Cycle(ToyCore(ToyConfig()), toy_identity(name), TOY.config_text(ToyConfig())))

    def pipelined(self, name: str = "a", ahead_from: int = 1) -> Cycle:
        """A replica that decides ahead, loaded."""
        core, config_text = AssumingToyCore(ToyConfig()), TOY.config_text(ToyConfig())
        cycle = self.join(Cycle(core, toy_identity(name), config_text, ahead_from=ahead_from))
        self.deliver(cycle)
        return cycle

    def join(self, cycle: Cycle) -> Cycle:
        """Give it what the stream holds, and store its start marker."""
        filters = (*TOY.filters, cycle.identity.commit_subject, cycle.identity.marker_subject)
        for sequence in self.stream.snapshot(filters):
            self.give(cycle, sequence)
        self.positions[id(cycle)] = self.stream.last_sequence
        self.stream.append([Write(event=cycle.start_marker(self.now, filters))])
        return cycle

    def give(self, cycle: Cycle, sequence: int) -> None:
        event = self.stream.event(sequence)
        assert event is not None
        cycle.fold((event,), self.now)

    def deliver(self, cycle: Cycle) -> None:
        filters = (*TOY.filters, cycle.identity.commit_subject, cycle.identity.marker_subject)
        for sequence in self.stream.after(self.positions[id(cycle)], filters, 1000):
            self.give(cycle, sequence)
        self.positions[id(cycle)] = self.stream.last_sequence

    def store(self, *events: Event) -> None:
        assert isinstance(self.stream.append([Write(event=event) for event in events]), Stored)

    def settle(self, cycle: Cycle, batch: Batch) -> bool:
        outcome = self.stream.append(batch.writes())
        if isinstance(outcome, Refused):
            cycle.refused(self.now)
            return False
        cycle.stored(batch, outcome)
        return True


def rivals(*events: Event) -> tuple[Bench, Cycle, Cycle]:
    """A stream that holds the events, and two replicas that have loaded them."""
    bench = Bench()
    bench.store(*events)
    first, second = bench.replica("a"), bench.replica("b")
    bench.deliver(first)
    bench.deliver(second)
    return bench, first, second


def proposed(cycle: Cycle, now: datetime = NOW) -> Batch:
    """The batch that follows from the state: there is one."""
    batch = cycle.propose(now)
    assert batch is not None
    return batch


def answers(cycle: Cycle) -> dict[str, int]:
    assert isinstance(cycle.core, ToyCore)
    return {node: answer.batch_cpu_milli for node, answer in cycle.core.answers.items()}


def test_nothing_is_proposed_before_the_start_marker_came_back() -> None:
    bench = Bench()
    bench.store(metric("a", 1))
    cycle = bench.replica()
    assert cycle.propose(NOW) is None
    bench.deliver(cycle)
    assert cycle.propose(NOW) is not None


def test_a_batch_begins_with_a_commit_record_that_says_what_it_was_decided_on() -> None:
    bench = Bench()
    bench.store(metric("a", 1), metric("b", 2))
    cycle = bench.replica()
    bench.deliver(cycle)
    batch = proposed(cycle)
    record = batch.events[0].data
    assert isinstance(record, Commit)
    assert (record.prior, record.folded, record.count, record.now) == (0, 2, 2, NOW)
    assert [event.id for event in batch.events] == ["cell/toy/0/0/0", "cell/toy/0/0/1", "cell/toy/0/0/2"]
    assert batch.events[1].causes == ("LOG:1",)
    assert batch.writes()[0].expected == 0
    assert bench.settle(cycle, batch)
    assert cycle.propose(NOW) is None, "what was stored has been applied"


def test_the_second_of_two_replicas_is_refused_and_refolds_to_the_same_state() -> None:
    bench, first, second = rivals(metric("a", 1))
    one, two = proposed(first), proposed(second)
    assert bench.settle(first, one)
    assert not bench.settle(second, two)
    bench.deliver(second)
    assert isinstance(second.core, ToyCore)
    assert isinstance(first.core, ToyCore)
    assert second.core.answers == first.core.answers
    assert second.prior == first.prior


def test_a_replica_that_lost_holds_back_and_takes_over_when_nobody_commits() -> None:
    bench, first, second = rivals(metric("a", 1))
    two, one = proposed(second), proposed(first)
    assert bench.settle(first, one)
    assert not bench.settle(second, two)
    bench.store(metric("a", 5))
    bench.deliver(second)
    assert second.propose(NOW + timedelta(seconds=1)) is None
    late = NOW + timedelta(seconds=2.1)
    batch = proposed(second, late)
    assert bench.settle(second, batch)
    bench.deliver(first)
    assert first.propose(late) is None, "the other's answer is known"


def test_a_rivals_half_delivered_batch_is_not_decided_on() -> None:
    bench, first, second = rivals(metric("a", 1), metric("b", 1))
    batch = proposed(first)
    assert bench.settle(first, batch)
    bench.store(metric("c", 1))
    record_at = first.prior
    bench.give(second, record_at)
    assert second.propose(NOW) is None
    bench.give(second, record_at + 1)
    assert second.propose(NOW) is None
    bench.give(second, record_at + 2)
    bench.give(second, record_at + 3)
    assert second.propose(NOW) is not None


def test_now_never_goes_back() -> None:
    bench = Bench()
    bench.store(metric("a", 1))
    cycle = bench.replica()
    bench.deliver(cycle)
    batch = proposed(cycle, NOW + timedelta(minutes=5))
    assert bench.settle(cycle, batch)
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    later = proposed(cycle)
    assert isinstance(later.events[0].data, Commit)
    assert later.events[0].data.now == NOW + timedelta(minutes=5)


def test_repeated_deliveries_of_own_older_messages_do_not_turn_the_state_back() -> None:
    bench = Bench()
    bench.store(metric("a", 1))
    cycle = bench.replica()
    bench.deliver(cycle)
    for value in (1, 2, 3):
        if value > 1:
            bench.store(metric("a", value))
            # Only the metric is delivered; the own answers lag behind.
            bench.give(cycle, bench.stream.last_sequence)
        batch = proposed(cycle)
        assert bench.settle(cycle, batch)
    bench.deliver(cycle)
    assert isinstance(cycle.core, ToyCore)
    assert cycle.core.answers["a"].batch_cpu_milli == 6
    assert cycle.propose(NOW) is None


def test_a_fresh_core_that_loads_the_last_messages_equals_the_live_one() -> None:
    bench = Bench()
    live = bench.replica("a")
    for value in range(20):
        bench.store(metric(f"n{value % 3}", value))
        bench.deliver(live)
        batch = live.propose(NOW)
        if batch is not None:
            assert bench.settle(live, batch)
    fresh = bench.replica("b")
    bench.deliver(fresh)
    assert isinstance(live.core, ToyCore)
    assert isinstance(fresh.core, ToyCore)
    assert fresh.core.answers == live.core.answers
    assert {name: msgspec.structs.replace(event) for name, event in fresh.core.metrics.items()} == live.core.metrics
    assert fresh.propose(NOW) is None


def test_own_messages_need_not_be_read_once_they_are_applied() -> None:
    bench = Bench()
    cycle = bench.replica()
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    batch = proposed(cycle, bench.now)
    end = bench.stream.last_sequence
    assert not cycle.was_stored(end)
    outcome = bench.stream.append(batch.writes())
    assert isinstance(outcome, Stored)
    cycle.stored(batch, outcome)
    assert [cycle.was_stored(sequence) for sequence in range(end, outcome.last + 2)] == [False, True, True, False]


def test_a_rivals_commit_folded_before_the_own_acknowledgement_stays_the_last_one() -> None:
    bench, first, second = rivals(metric("a", 1))
    one = proposed(first)
    outcome = bench.stream.append(one.writes())
    assert isinstance(outcome, Stored)
    # The acknowledgement is still in progress; the second has folded the batch and commits behind it.
    bench.store(metric("a", 9))
    bench.deliver(second)
    two = proposed(second, NOW + timedelta(seconds=3))
    assert bench.settle(second, two)
    bench.deliver(first)
    first.stored(one, outcome)
    assert first.prior == second.prior
    bench.store(metric("a", 11))
    bench.deliver(first)
    three = proposed(first, NOW + timedelta(seconds=6))
    assert bench.settle(first, three), "what it expects is the rival's record"
    assert isinstance(first.core, ToyCore)
    assert first.core.answers["a"].batch_cpu_milli == 22


def test_what_is_remembered_of_own_batches_is_bounded() -> None:
    bench = Bench()
    cycle = bench.replica()
    bench.deliver(cycle)
    for value in range(REMEMBERED_BATCHES + 50):
        bench.store(metric("a", value + 1))
        bench.give(cycle, bench.stream.last_sequence)
        batch = proposed(cycle)
        assert bench.settle(cycle, batch)
    assert len(cycle._applied) == len(cycle._unread) == REMEMBERED_BATCHES


def verified(bench: Bench) -> int:
    """How many commits `replay --verify` has checked, all of them right."""
    events = [event for number in range(1, bench.stream.last_sequence + 1) if (event := bench.stream.event(number))]
    report = verify(events, {"toy": ASSUMING_TOY})
    assert report.ok, report.first_difference
    return report.verified


def test_the_next_batch_is_decided_while_the_last_one_is_stored() -> None:
    bench = Bench()
    cycle = bench.pipelined()
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    first = proposed(cycle)
    bench.store(metric("a", 2), metric("b", 7))
    bench.deliver(cycle)
    folded = bench.stream.last_sequence
    assert cycle.decide_next(first, NOW)
    assert not cycle.ready
    assert cycle.propose(NOW) is None, "one batch is in progress"
    assert bench.settle(cycle, first)
    bench.store(metric("c", 1))
    bench.deliver(cycle)
    second = proposed(cycle)
    assert second.prior == cycle.prior
    assert second.record.folded == folded
    assert [event.subject for event in second.events[1:]] == ["node.a.resources", "node.b.resources"]
    assert second.events[1].causes == (f"LOG:{folded - 1}", f"LOG:{second.prior + 1}"), "the answer that was being stored"
    assert bench.settle(cycle, second)
    assert bench.settle(cycle, proposed(cycle))
    assert answers(cycle) == {"a": 4, "b": 14, "c": 2}
    assert verified(bench) == 3


def test_what_was_decided_behind_a_refused_batch_is_thrown_away() -> None:
    bench = Bench()
    cycle, rival = bench.pipelined("a"), bench.replica("b")
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    bench.deliver(rival)
    first = proposed(cycle)
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    assert cycle.decide_next(first, NOW)
    assert bench.settle(rival, proposed(rival))
    assert not bench.settle(cycle, first)
    assert answers(cycle) == {}, "nothing of the refused batch is left"
    assert cycle.conflicts == 1
    bench.deliver(cycle)
    assert answers(cycle) == {"a": 2}
    late = proposed(cycle, NOW + timedelta(seconds=3))
    assert late.events[1].causes == (f"LOG:{bench.stream.last_sequence - 2}", f"LOG:{rival.prior + 1}")
    assert bench.settle(cycle, late)
    assert verified(bench) == 2


def test_a_rivals_commit_that_is_seen_before_the_refusal_withdraws_what_was_assumed() -> None:
    bench = Bench()
    cycle, rival = bench.pipelined("a"), bench.replica("b")
    bench.store(metric("a", 1), metric("b", 1))
    bench.deliver(cycle)
    first = proposed(cycle)
    assert not cycle.decide_next(first, NOW)
    bench.store(metric("a", 9))
    bench.deliver(rival)
    assert bench.settle(rival, proposed(rival))
    bench.deliver(cycle)
    assert not bench.settle(cycle, first)
    assert answers(cycle) == answers(rival) == {"a": 18, "b": 2}
    assert not cycle.decide_next(first, NOW), "there is nothing to think ahead of"


def test_the_delivery_of_the_own_record_says_what_the_acknowledgement_says() -> None:
    bench = Bench()
    cycle = bench.pipelined()
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    first = proposed(cycle)
    assert not cycle.decide_next(first, NOW)
    outcome = bench.stream.append(first.writes())
    assert isinstance(outcome, Stored)
    bench.deliver(cycle)
    assert cycle.ready
    assert cycle.prior == outcome.first
    cycle.stored(first, outcome)
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    second = proposed(cycle)
    assert second.events[1].causes[1] == f"LOG:{outcome.first + 1}"
    assert bench.settle(cycle, second)
    assert verified(bench) == 2


def test_what_comes_back_before_the_acknowledgement_is_folded_once_as_it_was_decided() -> None:
    bench = Bench()
    cycle = bench.replica()
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    batch = proposed(cycle)
    outcome = bench.stream.append(batch.writes())
    assert isinstance(outcome, Stored)
    bench.give(cycle, outcome.first)
    assert isinstance(cycle.core, ToyCore)
    assert cycle.core.answers["a"] is batch.events[1].data
    assert cycle.was_stored(outcome.last), "nobody need read it"
    applied = cycle.core.applied
    bench.give(cycle, outcome.last)
    cycle.stored(batch, outcome)
    assert cycle.core.applied == applied
    assert cycle.ready


def test_a_rivals_commit_behind_the_own_one_voids_what_was_decided_ahead() -> None:
    bench = Bench()
    cycle, rival = bench.pipelined("a"), bench.replica("b")
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    first = proposed(cycle)
    bench.store(metric("b", 1))
    bench.deliver(cycle)
    assert cycle.decide_next(first, NOW)
    outcome = bench.stream.append(first.writes())
    assert isinstance(outcome, Stored)
    bench.deliver(rival)
    assert bench.settle(rival, proposed(rival))
    bench.deliver(cycle)
    cycle.stored(first, outcome)
    assert cycle.propose(NOW) is None, "the rival has decided it"
    assert answers(cycle) == {"a": 2, "b": 2}
    assert verified(bench) == 2


def test_a_small_decision_made_ahead_is_made_anew_with_what_has_arrived() -> None:
    bench = Bench()
    cycle = bench.pipelined(ahead_from=2)
    bench.store(metric("a", 1), metric("b", 1))
    bench.deliver(cycle)
    first = proposed(cycle)
    bench.store(metric("c", 1))
    bench.deliver(cycle)
    assert cycle.decide_next(first, NOW)
    assert not cycle.has_next
    bench.store(metric("d", 1))
    bench.deliver(cycle)
    assert bench.settle(cycle, first)
    second = proposed(cycle)
    assert [event.subject for event in second.events[1:]] == ["node.c.resources", "node.d.resources"]
    bench.store(metric("e", 1), metric("f", 1))
    bench.deliver(cycle)
    assert cycle.decide_next(second, NOW)
    assert cycle.has_next
    bench.store(metric("g", 1))
    bench.deliver(cycle)
    assert bench.settle(cycle, second)
    third = proposed(cycle)
    assert [event.subject for event in third.events[1:]] == ["node.e.resources", "node.f.resources"]
    assert bench.settle(cycle, third)
    assert verified(bench) == 3


def test_behind_a_small_batch_nothing_is_decided_ahead() -> None:
    bench = Bench()
    cycle = bench.pipelined(ahead_from=2)
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    first = proposed(cycle)
    bench.store(metric("b", 1))
    bench.deliver(cycle)
    assert not cycle.decide_next(first, NOW)
    assert cycle.ready
    assert bench.settle(cycle, first)
    assert bench.settle(cycle, proposed(cycle))
    assert answers(cycle) == {"a": 2, "b": 2}


def paced(urgent: Callable[[Event], bool] | None = None) -> tuple[Bench, Cycle]:
    """A replica that stores at most one batch a second that is not urgent; it has just stored one."""
    bench = Bench()
    text = TOY.config_text(ToyConfig())
    cycle = bench.join(Cycle(ToyCore(ToyConfig()), toy_identity("a"), text, pace=timedelta(seconds=1), urgent=urgent))
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    assert bench.settle(cycle, proposed(cycle))
    return bench, cycle


def test_within_its_pace_a_service_stores_no_second_batch_and_afterwards_all_in_one() -> None:
    bench, cycle = paced()
    bench.store(metric("a", 2), metric("b", 3))
    bench.deliver(cycle)
    assert cycle.propose(NOW + timedelta(milliseconds=999)) is None
    assert cycle.due(NOW + timedelta(milliseconds=999)) == NOW + timedelta(seconds=1)
    bench.store(metric("a", 4))
    bench.deliver(cycle)
    assert cycle.due(NOW + timedelta(seconds=1)) is None
    assert bench.settle(cycle, proposed(cycle, NOW + timedelta(seconds=1)))
    assert answers(cycle) == {"a": 8, "b": 6}
    assert cycle.propose(NOW + timedelta(seconds=9)) is None, "nothing is left"


def test_an_urgent_event_is_stored_at_once_and_takes_along_what_waits() -> None:
    bench, cycle = paced(lambda event: event.subject == "node.now.resources")
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    assert cycle.propose(NOW) is None
    bench.store(metric("now", 3))
    bench.deliver(cycle)
    batch = proposed(cycle)
    assert {event.subject for event in batch.events[1:]} == {"node.a.resources", "node.now.resources"}


def test_a_full_batch_is_one_of_several_and_the_next_one_does_not_wait() -> None:
    bench, cycle = paced()
    assert FULL_FROM == 900
    bench.store(*(metric(f"n{number}", 1) for number in range(900)))
    bench.deliver(cycle)
    assert bench.settle(cycle, proposed(cycle, NOW + timedelta(seconds=1)))
    bench.store(*(metric(f"n{number}", 2) for number in range(899)))
    bench.deliver(cycle)
    assert bench.settle(cycle, proposed(cycle, NOW + timedelta(seconds=1)))
    bench.store(metric("a", 3))
    bench.deliver(cycle)
    assert cycle.propose(NOW + timedelta(seconds=1)) is None, "that one was not full"


def test_what_fills_a_batch_is_not_held_back_though_nothing_in_it_is_urgent() -> None:
    bench, cycle = paced(lambda event: False)
    bench.store(*(metric(f"n{number}", 1) for number in range(899)))
    bench.deliver(cycle)
    assert cycle.propose(NOW) is None
    bench.store(metric("n899", 1))
    bench.deliver(cycle)
    batch = proposed(cycle)
    assert len(batch.events) == 1 + 900
    assert bench.settle(cycle, batch)
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    assert bench.settle(cycle, proposed(cycle)), "the rest of what fills several batches does not wait either"


def test_a_clock_that_was_set_back_does_not_stretch_the_pace() -> None:
    bench, cycle = paced()
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    earlier = NOW - timedelta(hours=1)
    assert cycle.due(earlier) is None
    assert cycle.propose(earlier) is not None
