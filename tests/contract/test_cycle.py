"""The cycle without I/O: what may be proposed when, and what a refusal means."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from cotenant.engine.commit import Batch
from cotenant.engine.cycle import FENCE_AGE, FULL_FROM, REMEMBERED_BATCHES, Cycle
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

    def proposed(self, cycle: Cycle, now: datetime = NOW) -> Batch:
        """The next decision: there is one. A replica that does not lead yet takes over first."""
        batch = proposed(cycle, now)
        if not batch.takes_over:
            return batch
        assert self.settle(cycle, batch)
        assert cycle.propose(now) is None, "what was stored before is not folded yet"
        self.deliver(cycle)
        return proposed(cycle, now)

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
    batch = bench.proposed(cycle)
    record = batch.events[0].data
    assert isinstance(record, Commit)
    fence = bench.stream.last_sequence
    assert (record.prior, record.folded, record.count, record.now) == (fence, 2, 2, NOW)
    assert [event.id for event in batch.events] == [f"cell/toy/0/{fence}/{index}" for index in (0, 1, 2)]
    assert batch.decided[0].causes == ("LOG:1",)
    assert [write.expected for write in batch.writes()] == [fence, None, None]
    assert bench.settle(cycle, batch)
    assert cycle.propose(NOW) is None, "what was stored has been applied"


def test_a_commit_of_one_event_is_one_message_that_leaves_the_fence_where_it_is() -> None:
    bench = Bench()
    cycle = bench.pipelined()
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    first = bench.proposed(cycle)
    fence = bench.stream.last_sequence
    assert first.is_single
    (write,) = first.writes()
    assert (write.expected, write.expected_subject, write.message_id) == (fence, "commits.toy.0", f"cell/toy/0/{fence}/1")
    assert (first.record.prior, first.record.folded, first.record.count) == (fence, 2, 0)
    assert bench.settle(cycle, first)
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    second = bench.proposed(cycle)
    assert second.place.prior == fence + 1
    assert second.writes()[0].expected == fence
    assert bench.settle(cycle, second)
    assert answers(cycle) == {"a": 4}
    assert bench.stream.last_sequence == fence + 3
    assert verified(bench) == 2


def test_a_commit_of_one_event_that_is_sent_twice_is_stored_once() -> None:
    bench = Bench()
    bench.store(metric("a", 1))
    cycle = bench.replica()
    bench.deliver(cycle)
    batch = bench.proposed(cycle)
    first, again = bench.stream.append(batch.writes()), bench.stream.append(batch.writes())
    assert isinstance(first, Stored)
    assert again == Stored(first.first, first.last, duplicate=True)


def test_a_replica_decides_only_when_it_has_folded_what_the_one_before_it_stored_last() -> None:
    bench, first, second = rivals(metric("a", 1))
    assert bench.settle(first, bench.proposed(first))
    last = bench.stream.last_sequence
    bench.now = late = NOW + timedelta(seconds=3)
    bench.store(metric("b", 1))
    bench.give(second, last + 1)
    takes_over = proposed(second, late)
    assert takes_over.takes_over, "though it does not know the other's record, and it has not been refused"
    assert not bench.settle(second, takes_over)
    bench.deliver(second)
    late += timedelta(seconds=3)
    assert bench.settle(second, proposed(second, late))
    bench.store(metric("a", 5))
    bench.deliver(first)
    assert first.holding_back
    assert second.propose(late) is None
    bench.deliver(second)
    assert {event.subject for event in proposed(second, late).decided} == {"node.a.resources", "node.b.resources"}


def test_a_load_in_another_order_than_that_of_the_log_finds_the_fence() -> None:
    bench = Bench()
    bench.store(metric("a", 1))
    first = bench.replica("a")
    bench.deliver(first)
    assert bench.settle(first, bench.proposed(first))
    second = Cycle(ToyCore(ToyConfig()), toy_identity("b"), TOY.config_text(ToyConfig()))
    filters = (*TOY.filters, second.identity.commit_subject, second.identity.marker_subject)
    for sequence in reversed(bench.stream.snapshot(filters)):
        bench.give(second, sequence)
    bench.positions[id(second)] = bench.stream.last_sequence
    bench.stream.append([Write(event=second.start_marker(NOW, filters))])
    bench.store(metric("a", 2))
    bench.deliver(second)
    assert bench.settle(second, bench.proposed(second)), "it expects the last record, though the last commit is another message"


def test_what_a_replica_has_on_its_way_is_refused_once_another_took_over() -> None:
    bench, first, second = rivals(metric("a", 1))
    assert bench.settle(first, bench.proposed(first))
    bench.store(metric("a", 2))
    for cycle in (first, second):
        bench.deliver(cycle)
    on_its_way = proposed(first)
    assert on_its_way.is_single
    assert bench.settle(second, proposed(second, NOW + timedelta(seconds=3)))
    assert not bench.settle(first, on_its_way)
    assert answers(first) == {"a": 2}


def test_a_record_of_its_own_is_stored_again_when_the_last_one_is_far_behind() -> None:
    bench = Bench()
    bench.store(metric("a", 1))
    cycle = bench.replica()
    bench.deliver(cycle)
    assert bench.settle(cycle, bench.proposed(cycle))
    fence = bench.stream.last_sequence - 1
    for value in range(FENCE_AGE):
        bench.store(metric("a", value + 2))
    bench.deliver(cycle)
    bench.deliver(cycle)
    bench.deliver(cycle)
    batch = bench.proposed(cycle)
    assert batch.place.fence == fence
    assert not batch.is_single
    assert bench.settle(cycle, batch)
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    assert bench.proposed(cycle).is_single


def test_the_second_of_two_replicas_is_refused_and_refolds_to_the_same_state() -> None:
    bench, first, second = rivals(metric("a", 1))
    one, two = proposed(first), proposed(second)
    assert bench.settle(first, one)
    assert not bench.settle(second, two)
    bench.deliver(first)
    assert bench.settle(first, proposed(first))
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
    bench.deliver(first)
    assert bench.settle(first, proposed(first))
    bench.store(metric("a", 5))
    bench.deliver(second)
    assert second.propose(NOW + timedelta(seconds=1)) is None
    late = NOW + timedelta(seconds=2.1)
    batch = bench.proposed(second, late)
    assert bench.settle(second, batch)
    bench.deliver(first)
    assert first.propose(late) is None, "the other's answer is known"


def test_a_rivals_half_delivered_batch_is_not_decided_on() -> None:
    bench, first, second = rivals(metric("a", 1), metric("b", 1))
    batch = bench.proposed(first)
    assert bench.settle(first, batch)
    bench.store(metric("c", 1))
    record_at = first.prior
    late = NOW + timedelta(seconds=3)
    bench.give(second, record_at)
    assert second.propose(late) is None
    bench.give(second, record_at + 1)
    assert second.propose(late) is None
    bench.give(second, record_at + 2)
    bench.give(second, record_at + 3)
    assert second.propose(late) is not None


def test_now_never_goes_back() -> None:
    bench = Bench()
    bench.store(metric("a", 1))
    cycle = bench.replica()
    bench.deliver(cycle)
    batch = bench.proposed(cycle, NOW + timedelta(minutes=5))
    assert bench.settle(cycle, batch)
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    later = bench.proposed(cycle)
    assert later.record.now == NOW + timedelta(minutes=5)


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
        batch = bench.proposed(cycle)
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
    batch = bench.proposed(cycle, bench.now)
    end = bench.stream.last_sequence
    assert not cycle.was_stored(end)
    outcome = bench.stream.append(batch.writes())
    assert isinstance(outcome, Stored)
    cycle.stored(batch, outcome)
    assert [cycle.was_stored(sequence) for sequence in range(end, outcome.last + 2)] == [False, True, False]


def test_a_rivals_commit_folded_before_the_own_acknowledgement_stays_the_last_one() -> None:
    bench, first, second = rivals(metric("a", 1))
    one = bench.proposed(first)
    outcome = bench.stream.append(one.writes())
    assert isinstance(outcome, Stored)
    # The acknowledgement is still in progress; the second has folded the batch and commits behind it.
    bench.store(metric("a", 9))
    bench.deliver(second)
    two = bench.proposed(second, NOW + timedelta(seconds=3))
    assert bench.settle(second, two)
    bench.deliver(first)
    first.stored(one, outcome)
    assert first.prior == second.prior
    bench.store(metric("a", 11))
    bench.deliver(first)
    three = bench.proposed(first, NOW + timedelta(seconds=6))
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
        batch = bench.proposed(cycle)
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
    first = bench.proposed(cycle)
    bench.store(metric("a", 2), metric("b", 7))
    bench.deliver(cycle)
    folded = bench.stream.last_sequence
    assert cycle.decide_next(first, NOW)
    assert not cycle.ready
    assert cycle.propose(NOW) is None, "one batch is in progress"
    assert bench.settle(cycle, first)
    bench.store(metric("c", 1))
    bench.deliver(cycle)
    second = bench.proposed(cycle)
    assert second.place.prior == cycle.prior
    assert second.record.folded == folded
    assert [event.subject for event in second.decided] == ["node.a.resources", "node.b.resources"]
    assert second.decided[0].causes == (f"LOG:{folded - 1}", f"LOG:{second.place.prior}"), "the answer that was being stored"
    assert bench.settle(cycle, second)
    assert bench.settle(cycle, bench.proposed(cycle))
    assert answers(cycle) == {"a": 4, "b": 14, "c": 2}
    assert verified(bench) == 3


def test_what_was_decided_behind_a_refused_batch_is_thrown_away() -> None:
    bench = Bench()
    cycle, rival = bench.pipelined("a"), bench.replica("b")
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    first = bench.proposed(cycle)
    bench.deliver(rival)
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    assert cycle.decide_next(first, NOW)
    assert bench.settle(rival, proposed(rival, NOW + timedelta(seconds=3)))
    assert not bench.settle(cycle, first)
    assert answers(cycle) == {}, "nothing of the refused batch is left"
    assert cycle.conflicts == 1
    bench.deliver(rival)
    assert bench.settle(rival, proposed(rival, NOW + timedelta(seconds=3)))
    bench.store(metric("a", 3))
    bench.deliver(cycle)
    assert answers(cycle) == {"a": 4}
    late = bench.proposed(cycle, NOW + timedelta(seconds=6))
    assert late.decided[0].causes == (f"LOG:{bench.stream.last_sequence - 1}", f"LOG:{rival.prior}")
    assert bench.settle(cycle, late)
    assert verified(bench) == 2


def test_a_rivals_commit_that_is_seen_before_the_refusal_withdraws_what_was_assumed() -> None:
    bench = Bench()
    cycle, rival = bench.pipelined("a"), bench.replica("b")
    bench.store(metric("a", 1), metric("b", 1))
    bench.deliver(cycle)
    first = bench.proposed(cycle)
    assert not cycle.decide_next(first, NOW)
    bench.store(metric("a", 9))
    bench.deliver(rival)
    assert bench.settle(rival, bench.proposed(rival, NOW + timedelta(seconds=3)))
    bench.deliver(cycle)
    assert not bench.settle(cycle, first)
    assert answers(cycle) == answers(rival) == {"a": 18, "b": 2}
    assert not cycle.decide_next(first, NOW), "there is nothing to think ahead of"


def test_the_delivery_of_the_own_record_says_what_the_acknowledgement_says() -> None:
    bench = Bench()
    cycle = bench.pipelined()
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    first = bench.proposed(cycle)
    assert not cycle.decide_next(first, NOW)
    outcome = bench.stream.append(first.writes())
    assert isinstance(outcome, Stored)
    bench.deliver(cycle)
    assert cycle.ready
    assert cycle.prior == outcome.first
    cycle.stored(first, outcome)
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    second = bench.proposed(cycle)
    assert second.decided[0].causes[1] == f"LOG:{outcome.first}"
    assert bench.settle(cycle, second)
    assert verified(bench) == 2


def test_what_comes_back_before_the_acknowledgement_is_folded_once_as_it_was_decided() -> None:
    bench = Bench()
    cycle = bench.replica()
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    batch = bench.proposed(cycle)
    outcome = bench.stream.append(batch.writes())
    assert isinstance(outcome, Stored)
    bench.give(cycle, outcome.first)
    assert isinstance(cycle.core, ToyCore)
    assert cycle.core.answers["a"] is batch.decided[0].data
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
    first = bench.proposed(cycle)
    bench.store(metric("b", 1))
    bench.deliver(cycle)
    assert cycle.decide_next(first, NOW)
    outcome = bench.stream.append(first.writes())
    assert isinstance(outcome, Stored)
    bench.deliver(rival)
    assert bench.settle(rival, bench.proposed(rival, NOW + timedelta(seconds=3)))
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
    first = bench.proposed(cycle)
    bench.store(metric("c", 1))
    bench.deliver(cycle)
    assert cycle.decide_next(first, NOW)
    assert not cycle.has_next
    bench.store(metric("d", 1))
    bench.deliver(cycle)
    assert bench.settle(cycle, first)
    second = bench.proposed(cycle)
    assert [event.subject for event in second.decided] == ["node.c.resources", "node.d.resources"]
    bench.store(metric("e", 1), metric("f", 1))
    bench.deliver(cycle)
    assert cycle.decide_next(second, NOW)
    assert cycle.has_next
    bench.store(metric("g", 1))
    bench.deliver(cycle)
    assert bench.settle(cycle, second)
    third = bench.proposed(cycle)
    assert [event.subject for event in third.decided] == ["node.e.resources", "node.f.resources"]
    assert bench.settle(cycle, third)
    assert verified(bench) == 3


def test_behind_a_small_batch_nothing_is_decided_ahead() -> None:
    bench = Bench()
    cycle = bench.pipelined(ahead_from=2)
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    first = bench.proposed(cycle)
    bench.store(metric("b", 1))
    bench.deliver(cycle)
    assert not cycle.decide_next(first, NOW)
    assert cycle.ready
    assert bench.settle(cycle, first)
    assert bench.settle(cycle, bench.proposed(cycle))
    assert answers(cycle) == {"a": 2, "b": 2}


def paced(urgent: Callable[[Event], bool] | None = None) -> tuple[Bench, Cycle]:
    """A replica that stores at most one batch a second that is not urgent; it has just stored one."""
    bench = Bench()
    text = TOY.config_text(ToyConfig())
    cycle = bench.join(Cycle(ToyCore(ToyConfig()), toy_identity("a"), text, pace=timedelta(seconds=1), urgent=urgent))
    bench.store(metric("a", 1))
    bench.deliver(cycle)
    assert bench.settle(cycle, bench.proposed(cycle))
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
    assert bench.settle(cycle, bench.proposed(cycle, NOW + timedelta(seconds=1)))
    assert answers(cycle) == {"a": 8, "b": 6}
    assert cycle.propose(NOW + timedelta(seconds=9)) is None, "nothing is left"


def test_an_urgent_event_is_stored_at_once_and_takes_along_what_waits() -> None:
    bench, cycle = paced(lambda event: event.subject == "node.now.resources")
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    assert cycle.propose(NOW) is None
    bench.store(metric("now", 3))
    bench.deliver(cycle)
    batch = bench.proposed(cycle)
    assert {event.subject for event in batch.decided} == {"node.a.resources", "node.now.resources"}


def test_a_full_batch_is_one_of_several_and_the_next_one_does_not_wait() -> None:
    bench, cycle = paced()
    assert FULL_FROM == 900
    bench.store(*(metric(f"n{number}", 1) for number in range(900)))
    bench.deliver(cycle)
    assert bench.settle(cycle, bench.proposed(cycle, NOW + timedelta(seconds=1)))
    bench.store(*(metric(f"n{number}", 2) for number in range(899)))
    bench.deliver(cycle)
    assert bench.settle(cycle, bench.proposed(cycle, NOW + timedelta(seconds=1)))
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
    batch = bench.proposed(cycle)
    assert len(batch.events) == 1 + 900
    assert bench.settle(cycle, batch)
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    assert bench.settle(cycle, bench.proposed(cycle)), "the rest of what fills several batches does not wait either"


def test_a_clock_that_was_set_back_does_not_stretch_the_pace() -> None:
    bench, cycle = paced()
    bench.store(metric("a", 2))
    bench.deliver(cycle)
    earlier = NOW - timedelta(hours=1)
    assert cycle.due(earlier) is None
    assert cycle.propose(earlier) is not None
