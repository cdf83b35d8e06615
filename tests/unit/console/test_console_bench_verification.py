"""The benchmarks' independent check finds a wrong placement of each kind, and a pod that waits for nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from cotenant.events.envelope import Event
from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, Waiting
from cotenant_verification.bench.audit.verification import verify
from cotenant_verification.bench.constraints import DEDICATED, KINDS, ZONE
from cotenant_verification.bench.core_only import START, carry_out
from cotenant_verification.bench.workload import BenchWorkload, node_name, pod_name, synthetic

NODES = 100
"""Enough for a dedicated, a best avoided and a cordoned one."""
MIXED = synthetic(NODES, 120, 1, mix=100)


def decided_log(workload: BenchWorkload) -> list[Event]:
    """The log of a run."""
    log: list[Event] = []
    carry_out(workload, log)
    return log


@pytest.fixture(scope="module")
def mixed() -> list[Event]:
    """The log of ten pods of every kind, decided by the scheduler."""
    return decided_log(MIXED)


def number_of(kind: str, place: int = 0, member: int = 0) -> int:
    """The number of a pod of a kind: the `member`-th of the group at `place`."""
    return KINDS.index(kind) + (place + 8 * member) * len(KINDS)


def findings(log: list[Event]) -> str:
    return "\n".join(verify(log).wrong)


def node_of(log: list[Event], number: int) -> str:
    [placement] = [e.data for e in log if isinstance(e.data, Placement) and e.data.name == pod_name(number)]
    return placement.node


def moved(log: list[Event], number: int, node: str) -> list[Event]:
    """The log as if the pod had been placed on another node, by the same rules of causes."""
    of_node = [
        f"LOG:{event.sequence}"
        for event in log
        if (isinstance(event.data, ObjectStored) and event.subject.endswith(f".{node}"))
        or (not isinstance(event.data, Placement | ObjectStored | Waiting) and getattr(event.data, "node", "") == node)
    ]
    of_quota = [f"LOG:{event.sequence}" for event in log if ".elasticquotas." in event.subject]
    found = []
    for event in log:
        if isinstance(event.data, Placement) and event.data.name == pod_name(number):
            data = msgspec.structs.replace(event.data, node=node)
            event = msgspec.structs.replace(event, data=data, causes=(*of_node, *of_quota))
        found.append(event)
    return found


def with_node(log: list[Event], node: str, change: Callable[[dict[str, object]], None]) -> list[Event]:
    """The log as if a node had been declared otherwise."""
    return with_object(log, f".{node}", change)


def with_object(log: list[Event], end: str, change: Callable[[dict[str, object]], None]) -> list[Event]:
    """The log as if an object, whose subject ends so, had been declared otherwise."""
    found = []
    for event in log:
        if isinstance(event.data, ObjectStored) and event.subject.endswith(end):
            document = msgspec.json.decode(event.data.object)
            change(document)
            event = msgspec.structs.replace(event, data=ObjectStored(object=msgspec.Raw(msgspec.json.encode(document))))
        found.append(event)
    return found


def test_what_the_scheduler_decided_holds_and_pods_of_every_kind_are_placed(mixed: list[Event]) -> None:
    verdict = verify(mixed)
    assert verdict.wrong == ()
    assert (verdict.placed, verdict.waiting) == (115, 5), "half of the tight quota's pods wait"
    placed = {event.data.name for event in mixed if isinstance(event.data, Placement)}
    for index, kind in enumerate(KINDS):
        assert pod_name(index) in placed, kind


@pytest.mark.parametrize("resource", ["cpu", "memory", "pods"])
def test_a_node_without_room(mixed: list[Event], resource: str) -> None:
    node = node_of(mixed, number_of("spread-host"))

    def shrink(document: dict[str, object]) -> None:
        document["status"]["allocatable"][resource] = "0"  # type: ignore[index]

    assert f"does not fit node {node}" in (found := findings(with_node(mixed, node, shrink)))
    assert f"{resource} short by" in found


@pytest.mark.parametrize("kind", ["batch", "mid"])
def test_a_node_that_lends_nothing(mixed: list[Event], kind: str) -> None:
    node = node_of(mixed, number_of(kind))
    log = [event for event in mixed if event.subject != f"node.{node}.resources"]
    assert f"kubernetes.io/{kind}-cpu short by" in findings(log)


def test_a_cordoned_node(mixed: list[Event]) -> None:
    assert "cordoned" in findings(moved(mixed, number_of("batch"), node_name(37)))


def test_a_taint_that_is_not_tolerated(mixed: list[Event]) -> None:
    assert f"taint {DEDICATED}" in findings(moved(mixed, number_of("batch"), node_name(49)))


def test_node_affinity_that_does_not_hold(mixed: list[Event]) -> None:
    assert "node selector or affinity" in findings(moved(mixed, number_of("dedicated"), node_name(0)))
    assert "node selector or affinity" in findings(moved(mixed, number_of("node-affinity"), node_name(43)))


def test_a_host_port_taken_twice(mixed: list[Event]) -> None:
    first, second = number_of("host-port"), number_of("host-port", member=1)
    assert "host port 20000 taken" in findings(moved(mixed, second, node_of(mixed, first)))


def test_a_node_that_is_too_busy(mixed: list[Event]) -> None:
    node = node_of(mixed, number_of("image"))
    busy = [
        msgspec.structs.replace(event, data=msgspec.structs.replace(event.data, node_usage=Usage(cpu_milli=41_700)))
        if isinstance(event.data, NodeMetricComputed) and event.data.node == node
        else event
        for event in mixed
    ]
    assert "cpu usage 65." in findings(busy)
    assert "> 65%" in findings(busy)


def test_a_metric_that_has_expired(mixed: list[Event]) -> None:
    late = [
        msgspec.structs.replace(event, time=START + timedelta(seconds=181)) if isinstance(event.data, Placement) else event
        for event in mixed
    ]
    assert "metric expired" in findings(late)


def test_pods_that_avoid_each_other_on_one_node(mixed: list[Event]) -> None:
    first, second = number_of("anti-affinity"), number_of("anti-affinity", member=1)
    assert "avoids a pod there" in findings(moved(mixed, second, node_of(mixed, first)))


def test_a_pod_that_an_earlier_one_keeps_away(mixed: list[Event]) -> None:
    """The other side: a plain pod with the labels that the earlier one avoids."""
    first, plain = number_of("anti-affinity"), number_of("image")
    relabelled = []
    for event in moved(mixed, plain, node_of(mixed, first)):
        if isinstance(event.data, ObjectStored) and event.subject.endswith(pod_name(plain)):
            document = bytes(event.data.object).replace(b'"image-0"', b'"anti-affinity-0"')
            event = msgspec.structs.replace(event, data=ObjectStored(object=msgspec.Raw(document)))
        relabelled.append(event)
    assert "a pod there keeps it away" in findings(relabelled)


def test_a_pod_that_is_not_with_those_it_must_be_with(mixed: list[Event]) -> None:
    first, second = number_of("affinity"), number_of("affinity", member=1)
    zone = int(node_of(mixed, first)[-6:]) % 3
    assert "not with the pods it must be with" in findings(moved(mixed, second, node_name(zone + 1)))


def test_a_domain_with_too_many_pods(mixed: list[Event]) -> None:
    first, second = number_of("spread-zone"), number_of("spread-zone", member=1)
    zone = int(node_of(mixed, first)[-6:]) % 3
    assert f"skew 2 > 1 over {ZONE}" in findings(moved(mixed, second, node_name(zone + 3)))


def test_a_quota_that_is_exceeded(mixed: list[Event]) -> None:

    def shrink(document: dict[str, object]) -> None:
        document["spec"]["max"]["cpu"] = "300m"  # type: ignore[index]

    tight = with_object(mixed, ".bench-tight", shrink)
    assert "quota bench-tight: cpu 400 > 300" in findings(tight)


def test_a_pod_that_is_placed_twice(mixed: list[Event]) -> None:
    placement = next(event for event in mixed if isinstance(event.data, Placement))
    assert isinstance(placement.data, Placement)
    again = moved([*mixed, placement], int(placement.data.name[-7:]), node_name(1))
    assert "and again on" in findings([*mixed, again[-1]])


def test_a_decision_on_facts_that_were_overtaken(mixed: list[Event]) -> None:
    placements = [event for event in mixed if isinstance(event.data, Placement)]
    first, last = placements[0], placements[-1]
    assert isinstance(last.data, Placement)
    declared = next(event for event in mixed if event.subject.endswith(f"nodes._.{last.data.node}"))
    newer = msgspec.structs.replace(declared, sequence=first.sequence)
    knows = msgspec.structs.replace(first, causes=(*first.causes, newer.ref), sequence=first.sequence)
    log = [entry for event in mixed for entry in ((newer, knows) if event is first else (event,))]
    assert "comes after one on" in findings(log)


def test_a_pod_that_was_never_submitted(mixed: list[Event]) -> None:
    log = [event for event in mixed if not event.subject.endswith(f"pods.bench.{pod_name(0)}")]
    assert "was not submitted" in findings(log)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tight-quota"])
def test_a_pod_that_waits_although_it_fits(mixed: list[Event], kind: str) -> None:
    name = pod_name(number_of(kind, member=1))
    log = [event for event in mixed if not (isinstance(event.data, Placement) and event.data.name == name)]
    assert f"pod {name} waits although it fits node" in findings(log)


def test_pods_that_fit_nowhere_wait_rightly() -> None:
    small = BenchWorkload(1, 30, ({"cpu": "4", "memory": "8Gi", "pods": "20"},), ({"cpu": "100m", "memory": "128Mi"},))
    verdict = verify(decided_log(small))
    assert verdict.wrong == ()
    assert 0 < verdict.placed < 30
    assert verdict.waiting == 30 - verdict.placed


GANGS = synthetic(20, 60, 1, gang=20)


@pytest.fixture(scope="module")
def gangs() -> list[Event]:
    """The log of three gangs of twenty."""
    return decided_log(GANGS)


def test_gangs_that_are_placed_whole(gangs: list[Event]) -> None:
    assert verify(gangs).wrong == ()
    assert verify(gangs).placed == 60


def test_a_gang_of_which_a_member_is_not_placed(gangs: list[Event]) -> None:
    log = [event for event in gangs if not (isinstance(event.data, Placement) and event.data.name == pod_name(21))]
    assert "gang gang-0000001 has 19 of 20 members placed" in findings(log)


def test_a_gang_that_two_commits_place(gangs: list[Event]) -> None:
    [first] = [event.sequence for event in gangs if isinstance(event.data, Placement) and event.data.name == pod_name(30)]
    log = [msgspec.structs.replace(event, sequence=event.sequence + (event.sequence >= first)) for event in gangs]
    assert "gang gang-0000001 of 20 is placed by 2 commits" in findings(log)


def with_ids(log: list[Event], commit_of: Callable[[Placement], int]) -> list[Event]:
    """The log as a server has it: the ids of a commit's messages begin with the sequence of the commit before."""
    return [
        msgspec.structs.replace(event, id=f"cell/scheduler/0/{commit_of(event.data)}/{event.sequence}")
        if isinstance(event.data, Placement)
        else event
        for event in log
    ]


def test_a_gang_of_whose_commit_messages_have_expired(gangs: list[Event]) -> None:
    """Tombstones of waiting pods in a commit are gone after five minutes, and leave gaps."""
    [first] = [event.sequence for event in gangs if isinstance(event.data, Placement) and event.data.name == pod_name(30)]
    log = [msgspec.structs.replace(event, sequence=event.sequence + (event.sequence >= first)) for event in gangs]
    assert verify(with_ids(log, lambda _: 7)).wrong == ()


def test_a_gang_that_two_commits_place_one_after_the_other(gangs: list[Event]) -> None:
    log = with_ids(gangs, lambda placed: 7 if placed.name <= pod_name(30) else 9)
    assert "gang gang-0000001 of 20 is placed by 2 commits" in findings(log)


def test_a_gang_that_waits_although_it_fits(gangs: list[Event]) -> None:
    names = {pod_name(number) for number in range(20, 40)}
    log = [event for event in gangs if not (isinstance(event.data, Placement) and event.data.name in names)]
    assert "gang gang-0000001 waits although its 20 pods fit" in findings(log)


def test_a_gang_that_does_not_fit_waits_rightly() -> None:
    small = BenchWorkload(
        1, 40, ({"cpu": "16", "memory": "64Gi", "pods": "30"},), ({"cpu": "100m", "memory": "128Mi"},), gang=20
    )
    verdict = verify(decided_log(small))
    assert verdict.wrong == ()
    assert (verdict.placed, verdict.waiting) == (20, 20)
