"""Gangs as users write them, and the status of a PodGroup."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from cotenant.domain.gangs import (
    MAX_GANGS_IN_GROUP,
    GangError,
    MatchPolicy,
    Members,
    Mode,
    PodGroupPhase,
    PodGroupState,
    Source,
    gang_id,
    gang_name,
    group_id,
    min_member,
    occupied_by,
    of_pod,
    of_pod_group,
    parse_groups,
    synchronised,
    wait_of,
)

GANG = "gang.scheduling.koordinator.sh/"
GROUP = "pod-group.scheduling.sigs.k8s.io"
NOW = datetime(2026, 1, 10, tzinfo=UTC)
TEN = timedelta(minutes=10)


def noted(**values: str) -> dict[str, str]:
    return {f"{GANG}{name.replace('_', '-')}": value for name, value in values.items()}


def test_the_first_name_that_is_not_empty_wins() -> None:
    labels = {GROUP: "a", f"{GROUP}/name": "b"}
    assert gang_name(labels, noted(name="c")) == "a"
    assert gang_name({**labels, GROUP: ""}, noted(name="c")) == "b"
    assert gang_name({}, noted(name="c")) == "c"
    assert gang_name({}, {}) == ""
    assert (gang_id("ns", "a"), group_id(["ns/b", "ns/a"])) == ("ns/a", "ns/a,ns/b")


def test_the_label_states_the_minimum_before_the_annotation() -> None:
    assert min_member({f"{GROUP}/min-available": "3"}, noted(min_available="5")) == 3
    assert min_member({f"{GROUP}/min-available": ""}, noted(min_available="+5")) == 5
    assert min_member({}, noted(min_available="-1")) == -1
    for most in (2**31 - 1, 1 - 2**31):
        assert min_member({}, noted(min_available=str(most))) == most


@pytest.mark.parametrize("text", ["", "x", "1.5", " 1", "2147483648", "99999999999", "-2147483648", "１"])
def test_a_minimum_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(GangError, match="min-available"):
        min_member({}, noted(min_available=text))


@pytest.mark.parametrize(("stated", "total"), [("", 3), ("2", 3), ("3", 3), ("4", 4), ("x", 3), ("-1", 3)])
def test_the_total_is_at_least_the_minimum(stated: str, total: int) -> None:
    assert of_pod("ns/g", {}, noted(min_available="3", total_number=stated)).total_member == total


def test_a_total_for_a_minimum_of_nothing_is_at_least_one() -> None:
    assert of_pod("ns/g", {}, noted(min_available="0", total_number="0")).total_member == 0
    assert of_pod("ns/g", {}, noted(min_available="0", total_number="1")).total_member == 1
    assert of_pod("ns/g", {}, noted(min_available="-2", total_number="0")).total_member == -2


def test_a_gang_has_the_defaults_of_what_cannot_be_read() -> None:
    plain = of_pod("ns/g", {}, noted(min_available="2"))
    assert (plain.mode, plain.match_policy, plain.wait, plain.groups, plain.source) == (
        Mode.STRICT,
        MatchPolicy.ONCE_SATISFIED,
        TEN,
        ("ns/g",),
        Source.ANNOTATION,
    )
    unreadable = noted(min_available="2", mode="x", match_policy="x", waiting_time="x", groups="x")
    odd = of_pod("ns/g", {}, unreadable, default_wait=TEN * 2)
    assert odd == replace(plain, wait=TEN * 2)
    for none in ("0s", "-5s"):
        assert of_pod("ns/g", {}, noted(min_available="2", waiting_time=none)).wait == TEN


def test_a_gang_has_what_is_stated() -> None:
    stated = noted(
        min_available="2", mode="NonStrict", match_policy="only-waiting", waiting_time="30s", groups='["ns/h", "ns/g"]'
    )
    found = of_pod("ns/g", {}, stated)
    assert (found.mode, found.match_policy, found.wait) == (Mode.NON_STRICT, MatchPolicy.ONLY_WAITING, timedelta(seconds=30))
    assert (found.groups, found.group_id) == (("ns/h", "ns/g"), "ns/g,ns/h")
    alias = {f"{GROUP}/match-policy": "waiting-and-running"}
    assert of_pod("ns/g", {}, {**noted(min_available="2"), **alias}).match_policy is MatchPolicy.WAITING_AND_RUNNING
    assert of_pod("ns/g", {}, {**stated, **alias}).match_policy is MatchPolicy.ONLY_WAITING


def test_a_pod_group_waits_as_long_as_it_says_where_that_is_above_0() -> None:
    assert [wait_of(seconds, TEN) for seconds in (None, 0, -1, 1)] == [TEN, TEN, TEN, timedelta(seconds=1)]
    found = of_pod_group("ns/g", 4, 7, noted(total_number="9"), default_policy=MatchPolicy.ONLY_WAITING)
    assert (found.min_member, found.total_member, found.wait) == (4, 9, timedelta(seconds=7))
    assert (found.match_policy, found.source) == (MatchPolicy.ONLY_WAITING, Source.POD_GROUP)


def test_a_group_has_at_most_256_gangs() -> None:
    assert parse_groups("") == ()
    assert len(parse_groups(json.dumps(["a"] * MAX_GANGS_IN_GROUP))) == 256
    with pytest.raises(GangError, match="257 gangs"):
        parse_groups(json.dumps(["a"] * 257))
    for wrong in ("{}", "[1]", "x"):
        with pytest.raises(GangError, match="groups"):
            parse_groups(wrong)


def state(phase: PodGroupPhase, **fields: int) -> PodGroupState:
    return PodGroupState(phase, schedule_start=NOW - TEN, **fields)


@pytest.mark.parametrize(
    ("members", "phase"),
    [
        (Members(), PodGroupPhase.PENDING),
        (Members(pods=1), PodGroupPhase.PENDING),
        (Members(pods=2), PodGroupPhase.SCHEDULING),
        (Members(pods=2, scheduled=1), PodGroupPhase.SCHEDULING),
        (Members(pods=2, scheduled=2), PodGroupPhase.SCHEDULED),
        (Members(pods=3, scheduled=2, running=1), PodGroupPhase.SCHEDULED),
        (Members(pods=2, scheduled=2, running=2), PodGroupPhase.RUNNING),
        (Members(pods=2, scheduled=2, running=1, succeeded=1), PodGroupPhase.RUNNING),
        (Members(pods=2, scheduled=2, failed=1), PodGroupPhase.SCHEDULED),
        (Members(pods=2, scheduled=2, failed=1, running=1), PodGroupPhase.FAILED),
        (Members(pods=2, scheduled=2, failed=1, succeeded=1), PodGroupPhase.FAILED),
        (Members(pods=2, scheduled=2, failed=2), PodGroupPhase.FAILED),
        (Members(pods=2, scheduled=2, succeeded=2), PodGroupPhase.FINISHED),
        (Members(pods=3, scheduled=3, succeeded=2, failed=1), PodGroupPhase.FINISHED),
    ],
)
def test_a_pod_group_of_two_comes_into_the_phase_of_its_members(members: Members, phase: PodGroupPhase) -> None:
    found = synchronised(PodGroupState(), 2, members, NOW, NOW)
    assert found.phase is phase
    if phase is not PodGroupPhase.PENDING:
        counts = (found.scheduled, found.running, found.succeeded, found.failed)
        assert counts == (members.scheduled, members.running, members.succeeded, members.failed)


def test_scheduling_begins_once_and_is_remembered() -> None:
    first = synchronised(PodGroupState(), 2, Members(pods=2), NOW, NOW)
    assert first.schedule_start == NOW
    later = synchronised(first, 2, Members(pods=2, scheduled=1), NOW, NOW + TEN)
    assert later.schedule_start == NOW
    assert synchronised(PodGroupState(), 2, Members(pods=2, scheduled=2), NOW, NOW).schedule_start is None


def test_a_group_without_pods_waits_for_them_again_and_one_that_is_over_stays_so() -> None:
    assert (
        synchronised(state(PodGroupPhase.RUNNING, running=2, scheduled=2), 2, Members(), NOW, NOW).phase
        is PodGroupPhase.PENDING
    )
    for over in (PodGroupPhase.FINISHED, PodGroupPhase.FAILED):
        assert synchronised(state(over), 2, Members(pods=2, scheduled=2, running=2), NOW, NOW) == state(over)
    assert synchronised(PodGroupState(), 0, Members(pods=2), NOW, NOW).phase is PodGroupPhase.PENDING
    assert synchronised(PodGroupState(), 1, Members(pods=1), NOW, NOW).phase is PodGroupPhase.SCHEDULING


def test_a_running_group_that_loses_members_is_scheduling_again() -> None:
    found = synchronised(
        state(PodGroupPhase.RUNNING, scheduled=2, running=2), 2, Members(pods=2, scheduled=1, running=1), NOW, NOW
    )
    assert found.phase is PodGroupPhase.SCHEDULING


@pytest.mark.parametrize(
    ("waited", "fields", "moves"),
    [
        (timedelta(hours=48, seconds=1), {"scheduled": 2}, False),
        (timedelta(hours=48), {"scheduled": 2}, True),
        (timedelta(hours=49), {"scheduled": 1}, True),
        (timedelta(hours=49), {"scheduled": 2, "running": 1}, True),
    ],
)
def test_a_placed_group_that_has_run_nothing_for_two_days_is_not_looked_at(
    waited: timedelta, fields: dict[str, int], moves: bool
) -> None:
    """From its creation to the beginning of its scheduling."""
    last = PodGroupState(PodGroupPhase.SCHEDULED, schedule_start=NOW, **fields)
    found = synchronised(last, 2, Members(pods=2, scheduled=2, running=2), NOW - waited, NOW)
    assert (found.phase is PodGroupPhase.RUNNING) is moves


def test_a_group_is_occupied_by_the_owners_of_its_first_pod() -> None:
    assert occupied_by("ns", ["b", "a"]) == "ns/a,ns/b"
