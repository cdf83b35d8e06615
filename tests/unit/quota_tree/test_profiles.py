"""Quota profiles: what the nodes that a profile selects make of its tree's root quota."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from cotenant.domain.quota.profile import ratio_of, tree_id
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.objects import ObjectDeleted
from cotenant.events.quotas import ProfiledQuota
from cotenant.model.subjects import condition_subject, node_subject, profiled_quota_subject
from cotenant_quota_tree.gauges import GAUGES
from tests.builders import node_document, stored
from tests.unit.quota_tree.builders_quota_tree import PREFIX, QuotaLog

ZONE = {"zone": "a"}


def declare(log: QuotaLog, name: str, *, cpu: str = "10", zone: str = "a", cordoned: bool = False) -> None:
    offered = {"cpu": cpu, "memory": "1000"}
    document = node_document(name, labels={"zone": zone}, unschedulable=cordoned, allocatable=offered)
    log.publish(node_subject(name), stored(document))


def made(log: QuotaLog, quota: str = "root", tree: str = "t1") -> ProfiledQuota | None:
    subject = profiled_quota_subject(tree, quota)
    last = next((event for event in reversed(log.events) if event.subject == subject), None)
    if last is None or last.tombstone:
        return None
    assert isinstance(last.data, ProfiledQuota)
    return last.data


def test_the_total_is_what_the_selected_nodes_offer_times_the_ratio() -> None:
    log = QuotaLog()
    declare(log, "n1")
    declare(log, "n2", cordoned=True)
    declare(log, "n3", zone="b")
    log.profile("p", ZONE, ratio="0.9", labels={PREFIX + "is-parent": "true"})
    log.decide()
    quota = made(log)
    assert quota is not None
    assert quota.total["cpu"] == quota.min["cpu"] == 18_000
    assert quota.unschedulable["cpu"] == 9_000
    assert quota.max == {"cpu": 4611686018427387 * 1000, "memory": 4611686018427387}
    assert quota.labels == {
        PREFIX + "profile": "p",
        PREFIX + "is-parent": "true",
        PREFIX + "tree-id": "t1",
        PREFIX + "is-root": "true",
    }


def test_a_node_that_is_not_ready_is_part_of_the_total_and_unschedulable() -> None:
    log = QuotaLog()
    declare(log, "n1")
    log.profile("p", ZONE)
    log.publish(condition_subject("n1"), NodeCondition(node="n1", status="False"))
    log.decide()
    quota = made(log)
    assert quota is not None
    assert (quota.total["cpu"], quota.unschedulable["cpu"]) == (10_000, 10_000)
    log.publish(condition_subject("n1"), NodeCondition(node="n1", status="True"))
    log.decide(after=timedelta(seconds=11))
    quota = made(log)
    assert quota is not None
    assert quota.unschedulable == {}


def test_figures_alone_are_published_every_ten_seconds() -> None:
    log = QuotaLog()
    declare(log, "n1")
    log.profile("p", ZONE)
    log.decide()
    declare(log, "n2")
    assert log.decide(after=timedelta(seconds=9)) == []
    assert len(log.decide(after=timedelta(seconds=1))) == 1


def test_a_profile_that_goes_ends_its_event() -> None:
    log = QuotaLog()
    log.profile("p", ZONE)
    log.decide()
    assert made(log) is not None
    log.delete_profile("p")
    log.decide()
    assert made(log) is None
    assert log.decide() == []


def test_of_two_profiles_for_one_quota_the_first_by_name_is_used() -> None:
    log = QuotaLog()
    declare(log, "n1")
    log.profile("b", {"zone": "b"})
    log.profile("a", ZONE)
    log.decide()
    quota = made(log)
    assert quota is not None
    assert quota.profile == "a"


def test_a_profile_without_a_quota_is_named_and_makes_nothing() -> None:
    log = QuotaLog()
    log.profile("p", ZONE, quota="")
    assert log.decide() == []
    [why] = log.core.refused.values()
    assert "spec.quotaName is missing" in why


def test_the_tree_follows_from_the_name_where_no_label_says_it() -> None:
    assert tree_id("kube-system", "cn-hangzhou-k-nodepool") == "18340441938858026940"
    log = QuotaLog()
    log.profile("p", ZONE, tree="")
    log.decide()
    assert made(log, tree=tree_id("default", "p")) is not None


@pytest.mark.parametrize(
    ("text", "ratio"),
    [
        *(("0.5", 0.5), ("1", 1.0), ("5e-1", 0.5)),
        *((text, 1.0) for text in ("0", "1.5", "-1", "nan", "x", " 0.5", "")),
    ],
)
def test_a_ratio_out_of_bounds_counts_as_one(text: str, ratio: float) -> None:
    assert ratio_of(text) == ratio


def test_totals_equal_those_from_scratch_after_any_history() -> None:
    for seed in range(20):
        dice, log = Random(seed), QuotaLog()
        for _ in range(60):
            match dice.randrange(5):
                case 0 | 1:
                    cpu, cordoned = str(dice.randrange(1, 9)), dice.random() < 0.3
                    declare(log, f"n{dice.randrange(5)}", cpu=cpu, zone=dice.choice("ab"), cordoned=cordoned)
                case 2:
                    log.publish(node_subject(f"n{dice.randrange(5)}"), ObjectDeleted(), tombstone=True)
                case 3:
                    log.profile(dice.choice("pq"), {"zone": dice.choice("ab")}, tree=dice.choice(["t1", "t2"]))
                case _:
                    log.delete_profile(dice.choice("pq"))
            if dice.random() < 0.2:
                log.decide(after=timedelta(seconds=11))
        log.decide(after=timedelta(seconds=11))
        assert log.reloaded().decide(log.now + timedelta(seconds=11)) == []


def test_what_of_a_trees_total_takes_no_pods_is_a_metric() -> None:
    log = QuotaLog()
    declare(log, "n1")
    declare(log, "n2", cordoned=True)
    log.profile("p", ZONE, labels={PREFIX + "is-parent": "true"})
    log.decide()
    labels = {"name": "root", "tree": "t1", "is_parent": "true", "parent": "koordinator-root-quota", "resource": "cpu"}
    assert (10_000, {**labels, "field": "unschedulable-resource"}) in list(GAUGES[0].read(log.core))
