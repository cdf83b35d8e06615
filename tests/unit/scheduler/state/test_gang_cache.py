"""Gangs as a fold: their members, what each requires, whether a group may be tried, and when enough of it was placed."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from cotenant.api.objects.pod_group import PodGroup
from cotenant.domain.gangs import (
    ANNOTATION_GANG_GROUPS,
    ANNOTATION_GANG_MATCH_POLICY,
    ANNOTATION_GANG_MIN,
    ANNOTATION_GANG_MODE,
    ANNOTATION_GANG_NAME,
    LABEL_POD_GROUP,
    MatchPolicy,
)
from cotenant_scheduler.state.counting import RESERVE_NAMESPACE, PodKey
from cotenant_scheduler.state.gangs import MAX_TIMEOUT_SECONDS, CoschedulingArgs, GangCache, GangPod

BOTH = '["ns/g", "ns/h"]'


def key(name: str) -> PodKey:
    return ("ns", name)


def member(
    gang: str = "g",
    least: int | str = 2,
    *,
    created: str = "1",
    bound: bool = False,
    groups: str = "",
    policy: str = "",
    mode: str = "",
) -> GangPod:
    stated = {
        ANNOTATION_GANG_NAME: gang,
        ANNOTATION_GANG_MIN: str(least),
        ANNOTATION_GANG_GROUPS: groups,
        ANNOTATION_GANG_MATCH_POLICY: policy,
        ANNOTATION_GANG_MODE: mode,
    }
    return GangPod(created, {}, {name: value for name, value in stated.items() if value}, bound)


def cache(**pods: GangPod) -> GangCache:
    found = GangCache()
    for name, pod in pods.items():
        found.put(key(name), pod)
    list(found.settle())
    return found


def pod_group(least: int) -> PodGroup:
    document = {"metadata": {"name": "g", "namespace": "ns"}, "spec": {"minMember": least, "scheduleTimeoutSeconds": 7}}
    return msgspec.convert(document, PodGroup)


def least_of(found: GangCache, identity: str = "ns/g") -> int | None:
    spec = found.gangs[identity].spec
    return spec.min_member if spec is not None else None


# -- members ----------------------------------------------------------------------------------------------------------


def test_a_pod_belongs_to_the_gang_that_it_names_last() -> None:
    found = cache(a=member(), b=member(bound=True))
    assert (found.of_pod, found.gangs["ns/g"].bound) == ({key("a"): "ns/g", key("b"): "ns/g"}, 1)
    found.put(key("b"), member("h", bound=True))
    assert found.of_pod == {key("a"): "ns/g", key("b"): "ns/h"}
    assert (found.gangs["ns/g"].bound, found.gangs["ns/h"].bound) == (0, 1)
    assert list(found.gangs["ns/g"].members) == [key("a")]
    found.put(key("b"), GangPod("1", {}, {}, True))
    assert (list(found.of_pod), list(found.gangs)) == ([key("a")], ["ns/g"])
    found.put(key("a"), None)
    found.put(key("a"), None)
    found.put(("ns", ""), member())
    assert (found.of_pod, found.gangs) == ({}, {})


def test_a_reserve_pod_is_in_the_gang_of_the_namespace_that_its_template_names() -> None:
    found = GangCache()
    found.put((RESERVE_NAMESPACE, "r"), member(), "other")
    assert found.of_pod == {(RESERVE_NAMESPACE, "r"): "other/g"}


def test_members_with_a_node_are_counted_as_they_come_and_go() -> None:
    found = cache(a=member(), b=member())
    gang = found.gangs["ns/g"]
    counts = []
    for name, bound in (("a", True), ("a", True), ("b", True), ("a", False), ("b", False)):
        found.put(key(name), member(bound=bound))
        counts.append(gang.bound)
    assert counts == [1, 1, 2, 1, 0]


def test_a_gang_ends_when_neither_a_member_nor_its_pod_group_is_left() -> None:
    found = cache(a=member())
    found.put_pod_group("ns/g", pod_group(3), 17)
    assert found.gangs["ns/g"].pod_group_sequence == 17
    found.put(key("a"), None)
    list(found.settle())
    assert least_of(found) == 3
    found.put_pod_group("ns/g", None)
    assert found.gangs == {}
    assert list(found.settle()) == []


def test_what_changed_is_to_be_reported_and_what_is_repeated_is_not() -> None:
    found = cache(a=member())
    assert found.unreported == {"ns/g"}
    found.unreported.clear()
    found.put(key("a"), member())
    assert not found.unreported
    found.put(key("a"), member(bound=True))
    assert found.unreported == {"ns/g"}
    found.unreported.clear()
    found.put_pod_group("ns/h", pod_group(1))
    found.put(key("a"), None)
    assert found.unreported == {"ns/g", "ns/h"}


# -- requirements -----------------------------------------------------------------------------------------------------


def test_the_pod_group_counts_before_pods_and_of_these_the_oldest_with_a_minimum() -> None:
    found = cache(a=member(least="x", created="1"), b=member(least=4, created="2"), c=member(least=5, created="3"))
    assert least_of(found) == 4
    found.put(key("d"), GangPod("0", {LABEL_POD_GROUP: "g"}, {ANNOTATION_GANG_MIN: "9"}, False))
    list(found.settle())
    assert least_of(found) == 4, "it names a PodGroup, which states what its gang requires"
    found.put(key("b"), None)
    list(found.settle())
    assert least_of(found) == 5
    found.put_pod_group("ns/g", pod_group(3))
    list(found.settle())
    spec = found.gangs["ns/g"].spec
    assert spec is not None
    assert (spec.min_member, spec.wait) == (3, timedelta(seconds=7))
    assert cache(a=member(least="x")).gangs["ns/g"].spec is None


def test_defaults_are_configured() -> None:
    plain = cache(a=member()).gangs["ns/g"].spec
    assert plain is not None
    assert (plain.wait, plain.match_policy) == (timedelta(seconds=600), MatchPolicy.ONCE_SATISFIED)
    found = GangCache(CoschedulingArgs(5, MatchPolicy.ONLY_WAITING))
    found.put(key("a"), member())
    list(found.settle())
    spec = found.gangs["ns/g"].spec
    assert spec is not None
    assert (spec.wait, spec.match_policy) == (timedelta(seconds=5), MatchPolicy.ONLY_WAITING)
    ten_years = 10 * 365 * 86_400
    assert ten_years == MAX_TIMEOUT_SECONDS
    assert msgspec.convert({"defaultTimeout": ten_years}, CoschedulingArgs).default_timeout == ten_years
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"defaultTimeout": ten_years + 1}, CoschedulingArgs)


# -- which pods have to be queued again -------------------------------------------------------------------------------


def settled(found: GangCache) -> list[str]:
    return [name for _, name in found.settle()]


def test_pods_are_queued_again_when_the_rules_of_their_group_change() -> None:
    found = GangCache()
    for name, gang in (("a", "g"), ("b", "g"), ("c", "h")):
        found.put(key(name), member(gang, groups=BOTH))
    assert settled(found) == ["a", "b", "c"], "one group"
    assert settled(found) == []
    found.put(key("d"), member("g", groups=BOTH, created="2"))
    assert settled(found) == [], "one more says the same"
    found.put(key("a"), member("g", groups=BOTH, bound=True))
    assert settled(found) == ["a", "b", "d", "c"], "the group is satisfied now"
    found.put(key("b"), member("g", groups=BOTH, bound=True))
    assert settled(found) == []
    found.put(key("a"), member("g", groups=BOTH))
    assert settled(found) == [], "another one still has a node"
    found.put(key("b"), member("g", groups=BOTH))
    assert settled(found) == ["a", "b", "d", "c"]
    found.put(key("c"), None)
    assert settled(found) == ["a", "b", "d"], "a gang of the group is gone"
    found.put_pod_group("ns/g", pod_group(3))
    assert settled(found) == ["a", "b", "d"], "a gang by itself now"


# -- asking -----------------------------------------------------------------------------------------------------------


def test_who_is_in_a_gang_is_placed_with_its_group_until_that_is_satisfied() -> None:
    found = cache(a=member(groups=BOTH), b=member("h", groups=BOTH), c=member("i"))
    group = found.together(key("a"))
    assert group is not None
    assert found.together(key("b")) is group
    assert group.name == "ns/g,ns/h"
    assert (group.gang_of(key("a")), group.gang_of(key("b"))) == ("ns/g", "ns/h")
    other = found.together(key("c"))
    assert other is not None
    assert other.name == "ns/i"
    assert found.together(key("x")) is None
    found.put(key("b2"), member("h", groups=BOTH, bound=True))
    assert found.together(key("a")) is None
    for policy in ("only-waiting", "waiting-and-running"):
        assert cache(a=member(policy=policy), b=member(policy=policy, bound=True)).together(key("a")) is not None


def test_why_a_gang_may_not_be_tried_is_said_in_koordinators_words() -> None:
    def refusal(found: GangCache, identity: str = "ns/g") -> str:
        return found.refusal(identity, key("a"))

    tail = ", current gang: ns/g, podName: ns/a"
    assert refusal(cache(), "ns/x") == "can't find gang, gangName: ns/x, podName: ns/a"
    assert refusal(cache(a=member(least="x"))) == "gang has not init, gangName: ns/g, podName: ns/a"
    assert refusal(cache(a=member(), b=member())) == ""
    assert refusal(cache(a=member())) == f"gangGroup [ns/g] basic check: memberGangs [ns/g] child pod not collect enough{tail}"
    alone = cache(a=member(least=1, groups=BOTH))
    assert refusal(alone) == f"gangGroup [ns/g ns/h] basic check: memberGangs [ns/h] doesn't exists{tail}"
    unready = cache(a=member(least=1, groups=BOTH), b=member("h", "x"))
    assert refusal(unready) == f"gangGroup [ns/g ns/h] basic check: memberGangs [ns/h] has not init{tail}"
    one_short = cache(a=member(least=1, groups=BOTH), b=member("h", 2, groups=BOTH))
    short = "memberGangs [ns/g ns/h] child pod not collect enough"
    assert refusal(one_short) == f"gangGroup [ns/g ns/h] basic check: {short}{tail}"
    both = cache(a=member(groups='["ns/g", "ns/x", "ns/h"]'), b=member("h", "x"))
    assert refusal(both) == (
        "gangGroup [ns/g ns/h ns/x] basic check: memberGangs [ns/x] doesn't exists, memberGangs [ns/h] has not init,"
        f" memberGangs [ns/g ns/h ns/x] child pod not collect enough{tail}"
    )
    assert refusal(cache(a=member(least=9), b=member(least=9, bound=True))) == "", "it was satisfied once"
    running = cache(a=member(least=9, policy="only-waiting"), b=member(least=9, policy="only-waiting", bound=True))
    assert refusal(running) != ""


def test_the_first_member_by_name_is_asked() -> None:
    found = cache(a=member(least="x"), b=member("h", 1, groups=BOTH))
    group = found.together(key("b"))
    assert group is not None
    assert "podName: ns/a" in group.missing([key("b"), key("a")])


@pytest.mark.parametrize(
    ("policy", "bound", "placed", "enough"),
    [
        ("only-waiting", 2, 1, False),
        ("only-waiting", 0, 2, True),
        ("waiting-and-running", 1, 1, True),
        ("waiting-and-running", 0, 1, False),
        ("once-satisfied", 0, 1, False),
        ("once-satisfied", 0, 2, True),
        ("once-satisfied", 0, 3, True),
        ("once-satisfied", 1, 1, True),
    ],
)
def test_enough_is_placed_when_each_gang_has_its_minimum(policy: str, bound: int, placed: int, enough: bool) -> None:
    running = {f"r{index}": member(policy=policy, bound=True) for index in range(bound)}
    found = cache(**running, **{f"p{index}": member(policy=policy) for index in range(3)})
    assert found.permits("ns/g", [key(f"p{index}") for index in range(placed)]) is enough


def test_every_gang_of_the_group_has_to_have_its_minimum() -> None:
    found = cache(a=member(least=1, groups=BOTH), b=member("h", 2, groups=BOTH), c=member("h", 2, groups=BOTH))
    group = found.together(key("a"))
    assert group is not None
    members = [key(name) for name in "abc"]
    assert group.enough(members, members)
    assert not group.enough([key("a"), key("b")], members)
    assert not group.enough([key("b"), key("c")], members)
    assert not group.enough([], members)
    assert not cache(a=member(least=1, groups=BOTH)).permits("ns/g", [key("a")]), "the other gang does not exist"
    unready = cache(a=member(least=1, groups=BOTH), b=member("h", "x"))
    assert not unready.permits("ns/g", [key("a"), key("b")])


def test_a_strict_gang_gives_up_with_its_first_member_unless_it_was_satisfied() -> None:
    assert cache(a=member()).rejects("ns/g")
    assert not cache(a=member(mode="NonStrict")).rejects("ns/g")
    assert not cache(a=member(), b=member(bound=True)).rejects("ns/g")
    assert cache(a=member(policy="only-waiting"), b=member(policy="only-waiting", bound=True)).rejects("ns/g")
    assert not cache(a=member(least="x")).rejects("ns/g")
    assert not cache().rejects("ns/g")
    group = cache(a=member()).together(key("a"))
    assert group is not None
    assert group.gives_up(key("a"))
