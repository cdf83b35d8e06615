"""Preemption inside reservations: users of a lower priority leave for a pod that the reservation is for, too."""

from __future__ import annotations

from typing import Any

from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Nomination
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from cotenant_scheduler.plugins.reservation.args import ReservationArgs
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import as_stored, node, pod
from tests.unit.scheduler.test_operating_pods import acting, report

PROTECTED = {"scheduling.koordinator.sh/disable-preemptible": "true"}
ON = SchedulerConfig(reservation=ReservationArgs(enable_preemption=True))


def story(*nodes: str, config: SchedulerConfig | None = ON, cpu: str = "4") -> ReservedStory:
    told = ReservedStory(config)
    for name in nodes or ("n1",):
        told.node(node(name, cpu=cpu, memory="64Gi"))
        told.executor(name)
    return told


def restricted(name: str = "r", cpu: str = "4", **more: Any) -> dict[str, Any]:
    return reservation(name, cpu=cpu, memory="8Gi", allocatePolicy="Restricted", allocateOnce=False, **more)


def web(name: str, cpu: str = "2", priority: int = 1, **more: Any) -> dict[str, Any]:
    return pod(name, cpu=cpu, memory="1Gi", priority=priority, labels={"app": "web", **more.pop("labels", {})}, **more)


def only(name: str = "r") -> dict[str, str]:
    return wants(name=name)


def victims(told: ReservedStory, name: str) -> list[str]:
    nomination = told.nominated().get(name)
    return [victim.name for victim in nomination.victims] if nomination is not None else []


def evict(told: ReservedStory, nomination: Nomination) -> list[Event]:
    for victim in nomination.victims:
        told.pod_deleted(victim.name)
        told.settle()
        told.run(nomination.node, victim.name, RunPhase.EVICTED, uid=victim.uid)
    return told.settle()


def test_users_of_a_lower_priority_leave_the_reservation_for_a_pod_that_may_use_nothing_else() -> None:
    told = story(cpu="8")
    told.reservation(restricted())
    told.settle()
    told.pods(web("low"), web("lower", priority=0))
    told.settle()
    told.pods(web("high", priority=9, annotations=only()))
    told.settle()
    assert victims(told, "high") == ["lower"]
    evict(told, told.nominated()["high"])
    assert (told.used("high"), told.node_of("low"), told.node_of("lower")) == ("r", "n1", None)
    assert told.nominated() == {}


def test_it_is_off_by_default() -> None:
    told = story(config=None)
    told.reservation(restricted())
    told.settle()
    told.pods(web("low", "4"), web("high", "4", priority=9))
    told.settle()
    assert told.placed() == {"high": "n1"}
    told.pods(web("higher", "4", priority=10))
    told.settle()
    assert told.nominated() == {}


def test_users_of_other_reservations_stay() -> None:
    told = story(cpu="4")
    told.reservation(restricted("other", cpu="2", app="db"))
    told.reservation(restricted("r", cpu="2"))
    told.settle()
    told.pods(pod("db", cpu="2", memory="1Gi", priority=0, labels={"app": "db"}))
    told.pods(web("mine", priority=5))
    told.settle()
    told.pods(web("high", priority=9))
    told.settle()
    assert victims(told, "high") == ["mine"]
    told.pods(web("large", "4", priority=9))
    told.settle()
    assert victims(told, "large") == []


def test_equal_priority_protected_and_never_preempting_pods() -> None:
    told = story()
    told.reservation(restricted())
    told.settle()
    told.pods(web("same", priority=9), web("kept", priority=0, labels=PROTECTED))
    told.settle()
    told.pods(web("high", priority=9))
    told.settle()
    assert victims(told, "high") == []
    told.pods(web("never", priority=10, preemptionPolicy="Never"))
    told.settle()
    assert victims(told, "never") == []
    told.pods(web("higher", priority=10))
    told.settle()
    assert victims(told, "higher") == ["same"]


def test_what_the_reservation_lacks_is_taken_from_pods_of_its_node_where_its_policy_allows_that() -> None:
    told = story(cpu="6")
    told.reservation(reservation("r", cpu="2", memory="8Gi", allocatePolicy="Aligned", allocateOnce=False))
    told.settle()
    told.pods(pod("plain", cpu="4", memory="1Gi", priority=0))
    told.settle()
    told.pods(web("high", "4", priority=9))
    told.settle()
    assert victims(told, "high") == ["plain"]
    evict(told, told.nominated()["high"])
    assert told.used("high") == "r"


def test_users_that_would_violate_a_budget_leave_last_and_the_node_with_the_lowest_victims_is_chosen() -> None:
    told = story("n1", "n2")
    told.reservation(restricted("r1", template={"nodeName": "n1"}))
    told.reservation(restricted("r2", template={"nodeName": "n2"}))
    told.budget("b", {"team": "a"}, allowed=0)
    told.settle()
    told.pods(web("a", annotations=only("r1"), labels={"team": "a"}), web("b", priority=2, annotations=only("r1")))
    told.pods(web("c", priority=3, annotations=only("r2")), web("d", priority=4, annotations=only("r2")))
    told.settle()
    told.pods(web("high", priority=9))
    told.settle()
    nomination = told.nominated()["high"]
    assert (nomination.node, victims(told, "high")) == ("n1", ["b"])


def test_nothing_is_left_of_a_trial_and_a_restart_decides_the_same() -> None:
    told = story("n1", "n2", cpu="6")
    for name in ("r1", "r2"):
        told.reservation(restricted(name, cpu="5"))
    told.settle()
    told.pods(*(web(f"p{i}", "1", priority=i % 3, hostNetwork=True) for i in range(10)))
    told.settle()
    told.pods(web("high", "3", priority=9), web("higher", "2", priority=10, annotations=only("r1")))
    decided = as_stored(told.core.decide(told.now))
    tables = told.core.nodes.requested.tolist(), told.core.nodes.nonzero.tolist(), held(told)
    assert as_stored(told.core.decide(told.now)) == decided
    assert (told.core.nodes.requested.tolist(), told.core.nodes.nonzero.tolist(), held(told)) == tables
    assert as_stored(told.reloaded().decide(told.now)) == decided
    told.settle()
    assert set(told.nominated()) == {"high", "higher"}


def held(told: ReservedStory) -> dict[int, dict[str, tuple[dict[str, int], set[str]]]]:
    """By row and reservation, what its users have of it, and who they are."""
    by_row = told.core.nodes.held.by_row
    return {
        row: {uid: (dict(use.allocated), {name for _, name in use.owners}) for uid, use in uses.items()}
        for row, uses in by_row.items()
    }


def test_a_pod_that_acts_as_the_reservation_stays_and_others_of_its_node_leave() -> None:
    told = story(cpu="8")
    told.pod(acting("holder", cpu="4", priority=0))
    told.settle()
    report(told, "holder", ready=True)
    told.pod(pod("beside", cpu="4", priority=0))
    told.settle()
    told.pod(web("high", cpu="6", priority=9, annotations=wants()))
    told.settle()
    nomination = told.nominated()["high"]
    assert nomination.reservation is not None
    assert nomination.reservation.name == "default/holder"
    assert victims(told, "high") == ["beside"]
    evict(told, nomination)
    assert told.used("high") == "default/holder"
