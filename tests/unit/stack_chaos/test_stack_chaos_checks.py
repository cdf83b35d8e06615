"""The checker of `bench chaos` on histories made by hand: right ones pass, and each kind of wrong one is found."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from cotenant.events import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant_verification.stack_chaos.check_pods import BUDGET, TWICE, check_pods
from cotenant_verification.stack_chaos.check_reads import ASKED, BACK, EXACT, check_reads
from cotenant_verification.stack_chaos.check_watches import WHOLE, check_watches
from cotenant_verification.stack_chaos.check_writes import CONDITION, LOST, ONCE, REAL_TIME, REFUSED, check_writes
from cotenant_verification.stack_chaos.clients import NAMESPACE
from cotenant_verification.stack_chaos.records import (
    Action,
    BrokenPromise,
    Fault,
    Listing,
    ObservedObject,
    Version,
    WatchedChange,
    WatchRecord,
    WriteOutcome,
    WriteRecord,
)
from cotenant_verification.stack_chaos.run_report import gap_of, longest_gaps
from cotenant_verification.stack_chaos.truth import versions_of
from tests.builders import pod_document, stored

VERSIONS = [
    Version(3, "a", "v1", "ua"),
    Version(5, "b", "w1", "ub"),
    Version(6, "a", "v2", "ua"),
    Version(8, "b", None, "ub"),
    Version(9, "a", "v3", "ua"),
]


def write(value: str, version: int = 0, at: float = 0.0, **more: object) -> WriteRecord:
    fields: dict[str, object] = {
        "client": "c",
        "gateway": "g",
        "action": Action.PATCH,
        "name": "a",
        "value": value,
        "started": at,
        "ended": at + 0.5,
        "outcome": WriteOutcome.OK,
        "version": version,
    }
    return WriteRecord(**(fields | more))  # type: ignore[arg-type]


def promises(found: Sequence[BrokenPromise]) -> list[str]:
    return [violation.promise for violation in found]


def test_writes_that_are_as_acknowledged_break_nothing() -> None:
    writes = [
        write("v1", 3, 1.0, action=Action.CREATE),
        write("w1", 5, 2.0, name="b", action=Action.CREATE),
        write("v2", 6, 3.0, action=Action.REPLACE, expected=3),
        write("", 0, 4.0, name="b", action=Action.DELETE, uid="ub"),
        write("v3", 0, 5.0, outcome=WriteOutcome.UNKNOWN),
        write("never", 0, 5.0, outcome=WriteOutcome.REFUSED),
        write("nor this", 0, 5.0, outcome=WriteOutcome.UNKNOWN),
    ]
    assert check_writes(writes, VERSIONS) == []


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(write("v4", 12), id="its version is not there"),
        pytest.param(write("v1", 5), id="its version is another object's"),
        pytest.param(write("v9", 6), id="its version has another value"),
        pytest.param(write("", 0, name="a", action=Action.DELETE, uid="ua"), id="what it ended lives"),
    ],
)
def test_a_lost_write_is_found(lost: WriteRecord) -> None:
    (found,) = check_writes([lost], VERSIONS)
    assert found.promise == LOST
    assert "c " in found.text
    assert "0.00-0.50 s" in found.text, "the operation and its times are named"


def test_what_nobody_could_read_proves_nothing() -> None:
    assert check_writes([write("v4", 12)], VERSIONS, missing={12}) == []
    assert promises(check_writes([write("v4", 12)], VERSIONS, missing={11})) == [LOST]


def test_a_refused_write_that_took_effect_is_found() -> None:
    assert promises(check_writes([write("v2", outcome=WriteOutcome.REFUSED)], VERSIONS)) == [REFUSED]


def test_a_write_that_is_stored_twice_is_found() -> None:
    twice = [*VERSIONS, Version(10, "a", "v3", "ua")]
    assert promises(check_writes([write("v3", 9)], twice)) == [ONCE]


def test_a_condition_that_did_not_hold_is_found() -> None:
    stale = write("v3", 9, action=Action.REPLACE, expected=3)
    (found,) = check_writes([stale], VERSIONS)
    assert found.promise == CONDITION
    assert "it follows on version 6" in found.text


def test_an_order_against_real_time_is_found() -> None:
    later, earlier = write("v2", 6, 1.0), write("v1", 3, 2.0)
    assert promises(check_writes([later, earlier], VERSIONS)) == [REAL_TIME]
    # Side by side any order is right.
    assert check_writes([later, write("v1", 3, 1.2)], VERSIONS) == []


def listing(
    version: int, at: float = 0.0, at_least: int = 0, gateway: str = "g", name: str = "", **objects: ObservedObject
) -> Listing:
    return Listing(
        client="c",
        gateway=gateway,
        name=name,
        at_least=at_least,
        started=at,
        ended=at + 0.5,
        version=version,
        objects=objects,
    )


def test_listings_that_follow_the_log_break_nothing() -> None:
    listings = [
        listing(2, 0.0),
        listing(5, 1.0, at_least=4, a=ObservedObject(3, "v1"), b=ObservedObject(5, "w1")),
        listing(7, 2.0, name="a", a=ObservedObject(6, "v2")),
        listing(4, 3.0, gateway="h", a=ObservedObject(3, "v1")),
        listing(20, 4.0, a=ObservedObject(9, "v3")),
    ]
    assert check_reads(listings, VERSIONS) == []


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(listing(7, a=ObservedObject(3, "v1"), b=ObservedObject(5, "w1")), id="an old value"),
        pytest.param(listing(6, a=ObservedObject(6, "v2")), id="one is missing"),
        pytest.param(listing(8, a=ObservedObject(6, "v2"), b=ObservedObject(5, "w1")), id="one that has ended"),
        pytest.param(listing(4, a=ObservedObject(3, "v1"), b=ObservedObject(5, "w1")), id="one of the future"),
        pytest.param(listing(9, name="a", a=ObservedObject(9, "v2")), id="another value"),
    ],
)
def test_a_listing_that_is_not_the_log_at_its_version_is_found(wrong: Listing) -> None:
    assert promises(check_reads([wrong], VERSIONS)) == [EXACT]


def test_a_listing_older_than_asked_for_is_found() -> None:
    assert promises(check_reads([listing(5, at_least=6, a=ObservedObject(3, "v1"), b=ObservedObject(5, "w1"))], VERSIONS)) == [
        ASKED
    ]


def test_a_gateway_that_goes_back_is_found() -> None:
    listings = [listing(9, 1.0, a=ObservedObject(9, "v3")), listing(4, 2.0, a=ObservedObject(3, "v1"))]
    assert promises(check_reads(listings, VERSIONS)) == [BACK]


CHANGES = [
    WatchedChange("ADDED", "a", 3, "v1"),
    WatchedChange("ADDED", "b", 5, "w1"),
    WatchedChange("MODIFIED", "a", 6, "v2"),
    WatchedChange("DELETED", "b", 8, "w1"),
    WatchedChange("MODIFIED", "a", 9, "v3"),
]


def watch(changes: list[WatchedChange], start: int = 0, through: int = 9) -> WatchRecord:
    return WatchRecord(gateway="g", started=0.0, start=start, through=through, changes=changes)


def test_watches_that_follow_the_log_break_nothing() -> None:
    watches = [watch(CHANGES), watch(CHANGES[2:4], 5, 8), watch([], 9, 30), watch(CHANGES[1:3], 3, 7)]
    assert check_watches(watches, VERSIONS) == []


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([CHANGES[0], *CHANGES[2:]], id="a gap"),
        pytest.param(CHANGES[:-1], id="it ends early"),
        pytest.param([*CHANGES[:2], CHANGES[1], *CHANGES[2:]], id="one comes twice"),
        pytest.param([CHANGES[1], CHANGES[0], *CHANGES[2:]], id="another order"),
        pytest.param([*CHANGES[:4], WatchedChange("MODIFIED", "a", 9, "v2")], id="another value"),
        pytest.param([*CHANGES[:3], WatchedChange("MODIFIED", "b", 8, "w1"), CHANGES[4]], id="another type"),
    ],
)
def test_a_watch_that_is_not_the_log_is_found(changes: list[WatchedChange]) -> None:
    assert promises(check_watches([watch(changes)], VERSIONS)) == [WHOLE]


def test_a_watch_that_ends_with_410_may_lack_versions_of_what_has_ended_and_nothing_else() -> None:
    ended = WatchRecord(gateway="g", started=0.0, start=0, through=7, changes=[CHANGES[0], CHANGES[2]], expired=True)
    assert check_watches([ended], VERSIONS) == []
    lives = msgspec.structs.replace(ended, changes=[CHANGES[0], CHANGES[1]])
    assert promises(check_watches([lives], VERSIONS)) == [WHOLE]
    twice = msgspec.structs.replace(ended, changes=[CHANGES[0], CHANGES[2], CHANGES[2]])
    assert promises(check_watches([twice], VERSIONS)) == [WHOLE]


def event(sequence: int, subject: str, data: object, *, tombstone: bool = False) -> Event:
    return Event(subject=subject, data=data, sequence=sequence, tombstone=tombstone, stream="LOG")  # type: ignore[arg-type]


def pod(sequence: int, name: str, group: str, *, ending: bool = False) -> Event:
    deleted = "2026-01-01T00:00:00Z" if ending else None
    document = pod_document(name, namespace=NAMESPACE, uid=f"u-{name}", labels={"group": group}, deleted=deleted)
    return event(sequence, f"objects.core.pods.{NAMESPACE}.{name}", stored(document))


def placed(sequence: int, name: str, node: str, phase: PlacementPhase = PlacementPhase.BOUND) -> Event:
    data = Placement(node=node, namespace=NAMESPACE, name=name, uid=f"u-{name}", phase=phase)
    return event(sequence, f"node.{node}.placement.{NAMESPACE}.{name}", data, tombstone=phase is PlacementPhase.GONE)


def ran(sequence: int, name: str, node: str, phase: RunPhase = RunPhase.RUNNING) -> Event:
    data = RunStatus(node=node, namespace=NAMESPACE, name=name, uid=f"u-{name}", phase=phase)
    return event(sequence, f"node.{node}.run.{NAMESPACE}.{name}", data)


def evicted(sequence: int, name: str) -> Event:
    data = EvictionOutcome(namespace=NAMESPACE, name=name, uid=f"u-{name}", allowed=True, reason="Evicted")
    return event(sequence, f"evictions.{NAMESPACE}.{name}", data)


def test_a_pod_that_moves_after_its_end_is_on_one_node_at_a_time() -> None:
    events = [
        pod(1, "p", "free"),
        placed(2, "p", "n1"),
        ran(3, "p", "n1"),
        ran(4, "p", "n1", RunPhase.STOPPED),
        placed(5, "p", "n1", PlacementPhase.GONE),
        placed(6, "p", "n2"),
        ran(7, "p", "n2"),
    ]
    assert check_pods(events, "group", {}) == []


def test_a_pod_on_two_nodes_is_found() -> None:
    assert promises(check_pods([placed(2, "p", "n1"), placed(3, "p", "n2")], "group", {})) == [TWICE]
    (found,) = check_pods([ran(2, "p", "n1"), ran(3, "p", "n2")], "group", {})
    assert found == BrokenPromise(TWICE, f"LOG:3 {NAMESPACE}/p runs on n1 and n2")


def test_an_eviction_beyond_its_budget_is_found() -> None:
    events = [each for i in range(3) for each in (pod(10 * i + 1, f"p{i}", "kept"), ran(10 * i + 2, f"p{i}", "n1"))]
    first = [pod(40, "p0", "kept", ending=True), evicted(41, "p0")]
    assert check_pods([*events, *first], "group", {"kept": 2}) == []
    second = [pod(42, "p1", "kept", ending=True), evicted(43, "p1")]
    (found,) = check_pods([*events, *first, *second], "group", {"kept": 2})
    assert found == BrokenPromise(BUDGET, f"LOG:43 {NAMESPACE}/p1 was evicted; 1 pods of kept are left, 2 must be")


def test_versions_of_the_log_are_read_from_its_events() -> None:
    subject = f"objects.core.configmaps.{NAMESPACE}.r1"
    data = ObjectStored(object=msgspec.Raw(b'{"metadata":{"uid":"u1"},"data":{"value":"x"}}'))
    events = [event(4, subject, data), event(6, subject, ObjectDeleted(), tombstone=True), pod(7, "p", "free")]
    assert versions_of(events) == [Version(4, "r1", "x", "u1"), Version(6, "r1", None, "u1")]


def test_a_time_without_progress_goes_with_its_fault() -> None:
    fault = Fault(at=10.0, seconds=1.0, kind="kill", target="leader")
    progress = [8.0, 9.5, 10.2, 15.7, 16.0, 70.0]
    assert gap_of(progress[:-1], fault) == pytest.approx(5.5)
    first, second, *_ = longest_gaps(progress, [fault])
    assert (first.at, second.at) == (16.0, 10.2)
    assert second.fault == "kill leader"
