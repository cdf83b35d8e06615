"""The order of what waits, how it is walked, and which classes a pass over the queue asks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from cotenant.domain.quota.membership import Membership
from cotenant.events.placements import Nomination, Waiting
from cotenant_scheduler.cycle.ordering.cursor import Cursor
from cotenant_scheduler.cycle.ordering.walk import States, Walk
from cotenant_scheduler.cycle.queue import EquivalenceClass, GroupClass, PodQueue
from cotenant_scheduler.framework.plugin import Together
from cotenant_scheduler.state.pod_records import Charge, PodRecord
from cotenant_scheduler.state.reading.pod_traits import traits_of
from cotenant_scheduler.state.reading.shapes import ParsedPod, Shape
from tests.unit.scheduler.asking import Asking
from tests.unit.scheduler.builders_scheduler import NOW
from tests.unit.scheduler.tickets import AllOf


def shapes() -> tuple[Shape, Shape, Shape]:
    """Two plain shapes, and one that wants to be where pods of the app `web` are."""
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "host"}
    asking = Asking()
    asking.ask_for("small", cpu="1")
    asking.ask_for("large", cpu="2")
    asking.ask_for("follower", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    asking.current()
    return asking.shape("small"), asking.shape("large"), asking.shape("follower")


SMALL, LARGE, FOLLOWER = shapes()
[WANTED] = FOLLOWER.wanted


def record(name: str, shape: Shape = SMALL, *, priority: int = 0, minute: int = 0, namespace: str = "default") -> PodRecord:
    found = PodRecord((namespace, name))
    found.facts = ParsedPod(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        created=f"2026-01-01T11:{minute:02}:00Z",
        deleting=False,
        grace_seconds=30,
        traits=traits_of({}, {}),
        scheduler_name="",
        node_name="",
        priority=priority,
        from_class=False,
        gated=(),
        shape=shape,
        error="",
    )
    return found


def put(
    queue: PodQueue, found: PodRecord, together: Together | None = None, of: Membership | None = None
) -> EquivalenceClass:
    assert found.facts is not None
    return queue.put(found, found.facts, of, True, together)


def queued(*records: PodRecord) -> tuple[PodQueue, EquivalenceClass]:
    queue = PodQueue()
    for found in records:
        put(queue, found)
    [alike] = queue.classes.values()
    return queue, alike


def names(records: Iterable[PodRecord]) -> list[str]:
    return [found.key[1] for found in records]


def order(alike: EquivalenceClass) -> list[str]:
    return names(found for _, found in alike.pods())


# -- a class -------------------------------------------------------------------------------------------------------------


def test_priority_comes_first_then_age_then_namespace_and_name() -> None:
    _, alike = queued(
        record("b", namespace="x"),
        record("late", minute=9),
        record("a", namespace="y"),
        record("a", namespace="x"),
        record("high", priority=5, minute=30),
        record("higher", priority=6, minute=59),
    )
    assert [found.key for _, found in alike.pods()] == [
        ("default", "higher"),
        ("default", "high"),
        ("x", "a"),
        ("x", "b"),
        ("y", "a"),
        ("default", "late"),
    ]


@pytest.mark.parametrize("late", [1, 64, 65, 200])
def test_pods_that_come_late_stand_where_they_belong(late: int) -> None:
    expected = [f"p{i:03}" for i in range(300)]
    queue, alike = queued(*(record(name) for name in expected[late:]))
    assert order(alike) == expected[late:]
    for name in reversed(expected[:late]):
        put(queue, record(name))
    assert order(alike) == expected


def test_many_that_are_gone_are_forgotten_and_the_others_stay_in_order() -> None:
    expected = [f"p{i:04}" for i in range(2400)]
    records = [record(name) for name in expected]
    queue, alike = queued(*records)
    for found in records[:1500]:
        queue.take(found)
    assert order(alike) == expected[1500:]
    put(queue, record("p1700a"))
    put(queue, record("a"))
    assert order(alike) == ["a", *expected[1500:1701], "p1700a", *expected[1701:]]
    assert len(queue) == 902


def test_a_pod_that_is_queued_already_stays_where_it_is() -> None:
    first = record("a")
    queue, alike = queued(first, record("b"))
    alike.reported = None
    assert put(queue, first) is alike
    assert (order(alike), len(queue)) == (["a", "b"], 2)
    again = record("a", priority=-1)
    first.facts = again.facts
    assert put(queue, first) is alike
    assert (order(alike), len(queue)) == (["b", "a"], 2)
    moved = record("a", LARGE)
    first.facts = moved.facts
    assert put(queue, first) is not alike
    assert order(alike) == ["b"]


def test_a_class_ends_with_its_last_pod() -> None:
    first, second = record("a"), record("b")
    queue, alike = queued(first, second)
    queue.take(first)
    assert queue.classes == {alike.key: alike}
    queue.take(second)
    assert not queue.classes
    assert first.queued_in is None
    queue.take(first)
    assert len(queue) == 0


def test_a_nominated_pod_is_a_class_of_its_own() -> None:
    nominated, of_another = record("a"), record("b")
    for found, uid in ((nominated, "uid-a"), (of_another, "uid-of-its-predecessor")):
        nomination = Nomination(node="n", at=NOW, attempts=1)
        found.waiting = Waiting(namespace="default", name=found.key[1], uid=uid, nomination=nomination)
    queue = PodQueue()
    assert put(queue, nominated).own_rooms == {("default", "a")}
    assert put(queue, of_another).own_rooms == frozenset()
    assert put(queue, record("c")) is put(queue, of_another)
    assert len(queue.classes) == 2


def test_a_cursor_takes_skips_and_looks_ahead_and_passes_over_who_is_gone() -> None:
    records = [record(f"p{i}") for i in range(8)]
    queue, alike = queued(*records)
    queue.take(records[2])
    cursor = Cursor(alike)
    first = cursor.take()
    assert first is not None
    assert first.records == (records[0],)
    assert names(cursor.look(3, None)) == ["p1", "p3", "p4"]
    assert names(cursor.look(0, None)) == []
    assert names(cursor.look(9, (0, "2026-01-01T11:00:00Z", "default", "p5"))) == ["p1", "p3", "p4", "p5"]
    cursor.skip(2)
    assert names(cursor.look(9, None)) == ["p4", "p5", "p6", "p7"]
    cursor.skip(4)
    assert cursor.take() is None
    assert cursor.take() is None
    assert cursor.look(9, None) == []


def test_the_placement_of_a_pod_that_waits_takes_two_events() -> None:
    waiting = record("a")
    waiting.waiting = Waiting(namespace="default", name="a", uid="uid-a")
    queue = PodQueue()
    for found in (waiting, record("b"), record("c")):
        group = put(queue, found, AllOf("g", 3))
    entry = Cursor(group).take()
    assert entry is not None
    assert entry.event_count == 4


# -- a group -------------------------------------------------------------------------------------------------------------


def test_a_group_is_one_entry_once_its_size_is_there() -> None:
    queue, together = PodQueue(), AllOf("g", 2)
    second, first, third = record("b", LARGE), record("a", priority=1), record("c")
    group = put(queue, second, together)
    assert isinstance(group, GroupClass)
    assert group.missing
    assert Cursor(group).take() is None
    assert put(queue, first, together) is group
    assert not group.missing
    entry = Cursor(group).take()
    assert entry is not None
    assert entry.records == (first, second)
    assert entry.order == (-1, "2026-01-01T11:00:00Z", "default", "a")
    assert group.charge == group.charge_of(first) == Charge(SMALL, None, True)
    assert group.charge_of(second) == Charge(LARGE, None, True)
    put(queue, third, together)
    entry = Cursor(group).take()
    assert entry is not None
    assert names(entry.records) == names(found for _, found in group.pods()) == ["a", "b", "c"]
    assert put(queue, third, together) is group
    assert Cursor(group).take() is entry, "nothing changed"
    queue.take(first)
    queue.take(third)
    assert group.missing
    assert Cursor(group).take() is None
    queue.take(second)
    assert not queue.classes


def test_a_group_wants_what_any_of_its_pods_wants() -> None:
    queue, together = PodQueue(), AllOf("g", 2)
    group = put(queue, record("a"), together)
    assert group.wanted == frozenset()
    put(queue, record("b", FOLLOWER), together)
    assert group.wanted == {WANTED}


# -- a pass over the queue -------------------------------------------------------------------------------------------------


def three_classes() -> tuple[PodQueue, dict[str, EquivalenceClass]]:
    """In queue order: s0 l0 s1 s2 f0 s3 l1."""
    queue = PodQueue()
    pods = [("s0", SMALL), ("l0", LARGE), ("s1", SMALL), ("s2", SMALL), ("f0", FOLLOWER), ("s3", SMALL), ("l1", LARGE)]
    for minute, (name, shape) in enumerate(pods):
        put(queue, record(name, shape, minute=minute))
    by_shape = {SMALL: "small", LARGE: "large", FOLLOWER: "follower"}
    return queue, {by_shape[alike.charge.shape]: alike for alike in queue.classes.values()}


def top(walk: Walk) -> str | None:
    found = walk.top()
    return found[0].records[0].key[1] if found is not None else None


def asked(walk: Walk) -> list[str]:
    """Everybody who is still asked, each placed in turn."""
    found = []
    while (name := top(walk)) is not None:
        found.append(name)
        walk.advance()
    return found


def test_a_pass_goes_over_all_classes_in_queue_order() -> None:
    queue, _ = three_classes()
    assert asked(Walk(queue)) == ["s0", "l0", "s1", "s2", "f0", "s3", "l1"]


def test_a_run_ends_where_another_class_is_next_or_at_its_bound() -> None:
    queue, _ = three_classes()
    walk = Walk(queue)
    assert names(walk.run(9)) == ["s0"]
    walk.advance()
    walk.advance()
    assert names(walk.run(9)) == ["s1", "s2"]
    assert names(walk.run(1)) == ["s1"]
    walk.advance(2)
    assert asked(walk) == ["f0", "s3", "l1"]
    pair = PodQueue()
    for name, shape in (("a", SMALL), ("b", SMALL), ("c", LARGE), ("d", SMALL)):
        put(pair, record(name, shape))
    assert names(Walk(pair).run(9)) == ["a", "b"], "c is of another class"
    only = Walk(queued(record("a"), record("b"), record("c"))[0])
    assert names(only.run(2)) == ["a", "b"]
    assert names(only.run(9)) == ["a", "b", "c"]
    only.advance(2)
    assert asked(only) == ["c"]


def test_a_class_that_is_refused_is_not_asked_again() -> None:
    queue, _ = three_classes()
    walk = Walk(queue)
    walk.close()
    assert asked(walk) == ["l0", "f0", "l1"]


def test_who_wants_a_pod_that_was_placed_is_asked_again() -> None:
    queue, _ = three_classes()
    walk = Walk(queue)
    walk.advance()
    walk.close(by_nodes=True)
    walk.advance(2)
    assert top(walk) == "f0"
    walk.close(by_nodes=True)
    walk.reopen((WANTED + 1,))
    assert top(walk) == "s3"
    walk.reopen((WANTED + 1, WANTED))
    assert asked(walk) == ["f0", "s3"], "but not the large ones: they want nobody"


def test_a_quotas_refusal_is_not_reopened_and_a_room_that_is_free_reopens_all_that_nodes_refused() -> None:
    queue, _ = three_classes()
    walk = Walk(queue)
    walk.close()
    walk.close(by_nodes=True)
    walk.close(by_nodes=True)
    assert top(walk) is None
    walk.reopen_all()
    assert asked(walk) == ["l0", "f0", "l1"]
    walk.reopen_all()
    assert asked(walk) == []


def test_what_was_refused_in_this_very_state_is_passed_over_until_something_is_placed() -> None:
    queue, found = three_classes()
    calls = []

    def states() -> States:
        calls.append(1)
        return States((1,), (1, 2))

    first = Walk(queue, states)
    assert calls == []
    first.close(by_nodes=True)
    first.close()
    first.close(by_nodes=True)
    first.finish()
    small, large, follower = (found[name] for name in ("small", "large", "follower"))
    assert (small.refused_in, large.refused_in, follower.refused_in) == ((1, 2), (1,), None)
    assert len(calls) == 1
    second = Walk(queue, states)
    assert len(calls) == 2
    assert top(second) == "f0", "who wants other pods is asked each time"
    second.wake()
    second.advance()
    assert asked(second) == [], "small and large begin before the follower"
    third = Walk(queue, lambda: States((1,), (1, 3)))
    assert asked(third) == ["s0", "s1", "s2", "f0", "s3"], "nodes changed, quotas did not"
    fourth = Walk(queue, lambda: States((2,), (1, 2)))
    assert asked(fourth) == ["l0", "f0", "l1"], "quotas changed, nodes did not"
    assert asked(Walk(queue)) == ["s0", "l0", "s1", "s2", "f0", "s3", "l1"], "while pods are nominated nobody is passed over"


def test_what_nodes_refused_is_asked_again_when_its_own_quota_changes_and_not_when_another_does() -> None:
    mine, theirs = Membership("mine"), Membership("theirs")
    versions = {mine: (0, 1), theirs: (0, 1)}
    total = 0

    def states() -> States:
        return States((total,), (1, 2), versions.__getitem__)

    queue = PodQueue()
    own = put(queue, record("own"), of=mine)
    other = put(queue, record("other", LARGE), of=theirs)
    nobodys = put(queue, record("nobodys", minute=1))
    by_quota = put(queue, record("by-quota", LARGE, minute=2), of=mine)
    group = put(queue, record("member", minute=3), AllOf("g", 1), of=mine)
    first = Walk(queue, states)
    while (at := first.top()) is not None:
        first.close(by_nodes=at[1] is not by_quota)
    first.finish()
    assert asked(Walk(queue, states)) == []
    versions[theirs], total = (0, 2), 1
    assert asked(Walk(queue, states)) == ["other", "by-quota", "member"], "the last two depend on all quotas"
    assert (own.refused_in, nobodys.refused_in, group.refused_in) == ((1, 2, 0, 1), (1, 2), (1, 2, 0))
    versions[theirs], total = (0, 1), 0
    versions[mine] = (1, 1)
    assert asked(Walk(queue, states)) == ["own"]
    assert other.refused_in == (1, 2, 0, 1)


def test_classes_behind_what_is_placed_are_asked_after_all() -> None:
    queue, found = three_classes()
    put(queue, record("z", LARGE, priority=-1))
    state = States((1,), (1, 2))
    for alike in found.values():
        alike.refused_in = state.nodes if alike.charge.shape is not SMALL else None
    walk = Walk(queue, lambda: state)
    assert top(walk) == "s0"
    walk.wake()
    assert asked(walk) == ["s0", "l0", "s1", "s2", "f0", "s3", "l1", "z"]
    walk = Walk(queue, lambda: state)
    walk.finish()
    assert found["large"].refused_in == state.nodes
    walk.close()
    assert top(walk) is None
    walk.finish()
    assert found["small"].refused_in == state.quotas
