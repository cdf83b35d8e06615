"""Gangs preempt inside reservations: all members get room in them, or beside them, or nobody leaves."""

from __future__ import annotations

from typing import Any

from cotenant.domain.gangs import ANNOTATION_GANG_MIN, ANNOTATION_GANG_NAME
from cotenant.events.node.runs import RunPhase
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from cotenant_scheduler.plugins.reservation.args import ReservationArgs
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import as_stored, node, pod

ON = SchedulerConfig(reservation=ReservationArgs(enable_preemption=True))


def story(*, cpu: str = "8", config: SchedulerConfig | None = ON) -> ReservedStory:
    """A node with a Restricted reservation of 6 CPUs."""
    told = ReservedStory(config)
    told.node(node("n1", cpu=cpu, memory="64Gi"))
    told.executor("n1")
    told.reservation(reservation("r", cpu="6", memory="32Gi", allocatePolicy="Restricted", allocateOnce=False))
    told.settle()
    return told


def users(told: ReservedStory, *names: str, cpu: str = "2") -> None:
    for name in names:
        told.pod(pod(name, cpu=cpu, memory="1Gi", labels={"app": "web"}, annotations=wants(), priority=0))
        told.settle()
        told.later(1)


def member(name: str, least: int, *, cpu: str = "2", **more: Any) -> dict[str, Any]:
    more.setdefault("annotations", wants())
    more["annotations"] = {**more["annotations"], ANNOTATION_GANG_NAME: "g", ANNOTATION_GANG_MIN: str(least)}
    more.setdefault("priority", 9)
    return pod(name, cpu=cpu, memory="1Gi", labels={"app": "web"}, **more)


def victims(told: ReservedStory) -> set[str]:
    return {victim.name for found in told.nominated().values() for victim in found.victims}


def evict(told: ReservedStory, *names: str) -> None:
    for name in names:
        placement = told.placement(name)
        assert placement is not None
        told.pod_deleted(name)
        told.settle()
        told.run(placement.node, name, RunPhase.EVICTED, uid=placement.uid)
        told.settle()


def test_users_leave_for_all_members_and_these_take_their_room_in_one_batch() -> None:
    told = story()
    users(told, "a", "b", "c")
    told.pods(*(member(f"g{index}", 3) for index in range(3)))
    told.settle()
    nominated = told.nominated()
    assert sorted(nominated) == ["g0", "g1", "g2"]
    assert {(found.node, found.reservation and found.reservation.name) for found in nominated.values()} == {("n1", "r")}
    assert victims(told) == {"a", "b", "c"}
    evict(told, "a", "b")
    assert not {name for name in told.placed() if name.startswith("g")}
    evict(told, "c")
    assert [told.used(f"g{index}") for index in range(3)] == ["r", "r", "r"]
    assert not told.nominated()


def test_a_member_that_fits_costs_nobody_and_its_room_is_held() -> None:
    told = story()
    users(told, "a", "b")
    told.pods(member("g0", 2), member("g1", 2))
    told.settle()
    assert victims(told) == {"b"}, "the later of two alike"
    assert sorted(told.nominated()) == ["g0", "g1"]
    users(told, "late")
    assert told.node_of("late") is None
    evict(told, "b")
    assert (told.used("g0"), told.used("g1")) == ("r", "r")


def test_room_held_inside_a_reservation_is_not_taken_from_the_node_as_well() -> None:
    told = story(cpu="10")
    users(told, "a", "b")
    told.pods(member("g0", 2), member("g1", 2))
    told.settle()
    assert victims(told) == {"b"}
    # 6 are reserved, and one room more is held until b has left: 2 of 10 are free.
    told.pods(pod("beside", cpu="2", memory="1Gi", priority=0), pod("too-much", cpu="1", memory="1Gi", priority=0))
    told.settle()
    assert (told.node_of("beside"), told.node_of("too-much")) == ("n1", None)


def test_a_gang_for_whose_last_member_there_is_no_room_makes_nobody_leave() -> None:
    told = story()
    users(told, "a", "b", "c")
    told.pods(*(member(f"g{index}", 4) for index in range(4)))
    told.settle()
    assert not told.nominated()
    told.later(1)
    told.settle()
    waiting = told.waiting("g0")
    assert waiting is not None
    assert '"default/g" gets rejected due to member Pod "default/g0" is unschedulable' in waiting.message


def test_members_without_affinity_use_the_reservation_and_the_node_beside_it() -> None:
    told = story()
    users(told, "a", "b", "c")
    told.pods(*(member(f"g{index}", 4, annotations={}) for index in range(4)))
    told.settle()
    rooms = [found.reservation is not None for found in told.nominated().values()]
    assert (sorted(told.nominated()), sorted(rooms)) == (["g0", "g1", "g2", "g3"], [False, True, True, True])
    assert victims(told) == {"a", "b", "c"}
    evict(told, "a", "b", "c")
    assert {f"g{index}" for index in range(4)} <= set(told.placed())


def test_it_is_off_by_default_and_equal_priorities_stay() -> None:
    told = story(config=None)
    users(told, "a", "b", "c")
    told.pods(member("g0", 2), member("g1", 2))
    told.settle()
    assert not told.nominated()
    told = story()
    users(told, "a", "b", "c")
    told.pods(member("g0", 2, priority=0), member("g1", 2, priority=0))
    told.settle()
    assert not told.nominated()


def test_a_decision_leaves_nothing_and_a_restart_decides_the_same() -> None:
    told = story()
    users(told, "a", "b", "c")
    told.pods(*(member(f"g{index}", 3) for index in range(3)))
    decided = as_stored(told.core.decide(told.now))
    table = told.core.nodes.requested.tolist()
    assert as_stored(told.core.decide(told.now)) == decided
    assert told.core.nodes.requested.tolist() == table
    told.settle()
    status = told.share("r")
    told.core = told.reloaded(sorted(told.last, reverse=True))
    assert told.settle() == []
    assert status is not None
    assert {owner.name for owner in status.owners} == {"a", "b", "c"}, "nominated pods are no owners yet"
