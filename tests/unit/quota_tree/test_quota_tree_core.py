"""The quota-tree core through apply and decide."""

from datetime import timedelta
from typing import Any

import pytest

from cotenant.events.node.runs import RunPhase
from cotenant_quota_tree.core import QuotaTreeCore
from tests.unit.quota_tree.builders_quota_tree import PREFIX, QuotaLog


def log_with_two_quotas() -> QuotaLog:
    log = QuotaLog()
    log.node("n1", cpu="10", memory="100")
    log.quota("a", minimum={"cpu": "2"}, maximum={"cpu": "10"})
    log.quota("b", minimum={"cpu": "2"}, maximum={"cpu": "10"})
    return log


def root_total(log: QuotaLog) -> dict[str, int]:
    root = log.published("koordinator-root-quota")
    assert root is not None
    return root.total


def test_without_any_quota_nothing_is_published() -> None:
    log = QuotaLog()
    log.node("n1", cpu="10")
    log.pod("p", cpu="1")
    assert log.decide() == []


def test_runtime_follows_the_request_and_the_rest_is_shared() -> None:
    log = log_with_two_quotas()
    log.pod("p", quota="a", cpu="9")
    log.decide()
    assert log.runtime("a") == {"cpu": 9000}
    assert log.runtime("b") == {"cpu": 0}


def test_a_quota_above_its_min_shrinks_when_another_requests_its_own() -> None:
    log = log_with_two_quotas()
    log.pod("p", quota="a", cpu="9")
    log.decide()
    log.pod("q", quota="b", cpu="2")
    log.decide()
    assert log.runtime("a") == {"cpu": 8000}
    assert log.runtime("b") == {"cpu": 2000}


def test_used_counts_placed_pods_and_overuse_is_named() -> None:
    log = log_with_two_quotas()
    log.pod("p", quota="a", cpu="9")
    log.place("p")
    log.decide()
    log.pod("q", quota="b", cpu="2")
    log.decide()
    quota = log.published("a")
    assert quota is not None
    assert quota.used == {"cpu": 9000}
    assert quota.overused == ("cpu",)


def test_a_placement_of_another_uid_is_not_used() -> None:
    log = log_with_two_quotas()
    log.pod("p", quota="a", cpu="3")
    log.place("p", uid="uid-of-its-predecessor")
    log.decide()
    quota = log.published("a")
    assert quota is not None
    assert quota.used == {}


def test_a_pod_that_ended_for_good_requests_nothing() -> None:
    log = log_with_two_quotas()
    log.pod("p", quota="a", cpu="3")
    log.place("p")
    log.run("p", RunPhase.RUNNING)
    log.decide()
    log.run("p", RunPhase.SUCCEEDED)
    log.decide()
    quota = log.published("a")
    assert quota is not None
    assert (quota.request, quota.used) == ({}, {})


def test_batch_resources_of_the_nodes_are_shared_like_any_other() -> None:
    log = QuotaLog()
    log.node("n1", cpu="10")
    log.resources("n1", batch_cpu_milli=4000)
    log.quota("a", maximum={"kubernetes.io/batch-cpu": "100000"})
    batch: dict[str, Any] = {"kubernetes.io/batch-cpu": "9000"}
    log.pod("p", quota="a", **batch)
    log.decide()
    assert log.runtime("a") == {"kubernetes.io/batch-cpu": 4000}


def test_children_share_what_their_parent_received() -> None:
    log = QuotaLog()
    log.node("n1", cpu="10")
    log.quota("team", is_parent=True, minimum={"cpu": "4"}, maximum={"cpu": "6"})
    log.quota("dev", parent="team", maximum={"cpu": "6"})
    log.quota("ops", parent="team", maximum={"cpu": "6"})
    log.pod("p", quota="dev", cpu="6")
    log.pod("q", quota="ops", cpu="6")
    log.decide()
    assert log.runtime("team") == {"cpu": 6000}
    assert log.runtime("dev") == {"cpu": 3000}
    assert log.runtime("ops") == {"cpu": 3000}


def test_mins_are_scaled_when_nodes_leave() -> None:
    log = QuotaLog()
    log.node("n1", cpu="10")
    log.node("n2", cpu="10")
    log.quota("a", minimum={"cpu": "15"}, maximum={"cpu": "20"})
    log.quota("b", minimum={"cpu": "5"}, maximum={"cpu": "20"})
    log.pod("p", quota="a", cpu="20")
    log.pod("q", quota="b", cpu="20")
    log.decide()
    assert log.runtime("a") == {"cpu": 15000}
    log.publish("objects.core.nodes._.n2", log.events[1].data, tombstone=True)
    log.decide()
    quota = log.published("a")
    assert quota is not None
    assert quota.scaled_min == {"cpu": 7500}
    assert quota.runtime == {"cpu": 7500}
    assert log.runtime("b") == {"cpu": 2500}


def test_a_pod_on_a_node_that_was_deleted_is_charged_until_its_placement_is_gone() -> None:
    log = QuotaLog()
    log.node("n1", cpu="10")
    log.node("n2", cpu="10")
    log.quota("a", maximum={"cpu": "20"})
    log.pod("p", quota="a", cpu="4")
    log.place("p", "n2")
    log.publish("objects.core.nodes._.n2", log.events[1].data, tombstone=True)
    log.decide()
    quota = log.published("a")
    assert quota is not None
    assert quota.used == {"cpu": 4000}
    log.unplace("p", "n2")
    log.decide()
    quota = log.published("a")
    assert quota is not None
    assert quota.used.get("cpu", 0) == 0


def test_a_quota_without_allow_lent_resource_keeps_its_min() -> None:
    log = QuotaLog()
    log.node("n1", cpu="10")
    log.quota("a", minimum={"cpu": "6"}, maximum={"cpu": "10"}, lends=False)
    log.quota("b", maximum={"cpu": "10"})
    log.pod("q", quota="b", cpu="9")
    log.decide()
    assert log.runtime("a") == {"cpu": 6000}
    assert log.runtime("b") == {"cpu": 4000}


def test_an_unknown_parent_leaves_the_quota_below_the_root_with_a_reason() -> None:
    log = QuotaLog()
    log.node("n1", cpu="10")
    log.quota("a", parent="nobody", maximum={"cpu": "10"})
    log.pod("p", quota="a", cpu="4")
    log.decide()
    quota = log.published("a")
    assert quota is not None
    assert (quota.parent, quota.reason) == ("koordinator-root-quota", "ParentNotFound")
    assert quota.runtime == {"cpu": 4000}


def test_a_cycle_is_cut_at_its_smallest_name() -> None:
    log = QuotaLog()
    log.node("n1", cpu="10")
    for name, parent in (("b", "c"), ("c", "a"), ("a", "b")):
        log.quota(name, parent=parent, is_parent=True, maximum={"cpu": "10"})
    log.pod("p", quota="c", cpu="4")
    log.decide()
    published = {name: log.published(name) for name in "abc"}
    assert {name: (quota.parent, quota.reason) for name, quota in published.items() if quota} == {
        "a": ("koordinator-root-quota", "ParentCycle"),
        "b": ("c", ""),
        "c": ("a", ""),
    }
    assert log.runtime("c") == {"cpu": 4000}


def test_usage_of_the_default_quota_is_subtracted_before_sharing() -> None:
    log = log_with_two_quotas()
    log.pod("stray", cpu="3")
    log.place("stray")
    log.pod("p", quota="a", cpu="10")
    log.decide()
    assert log.runtime("a") == {"cpu": 7000}
    root = log.published("koordinator-root-quota")
    assert root is not None
    assert root.total == {"cpu": 7000, "memory": 100, "pods": 110}


@pytest.mark.parametrize("deleted_at", ["2026-01-01T00:00:00Z", 1])
def test_a_node_that_is_terminating_when_first_seen_does_not_count(deleted_at: str | int) -> None:
    log = log_with_two_quotas()
    log.node("n2", cpu="100", deleted_at=deleted_at)
    log.pod("p", quota="a", cpu="50")
    log.decide()
    assert root_total(log) == {"cpu": 10_000, "memory": 100, "pods": 110}


def test_a_node_stops_counting_when_its_deletion_begins() -> None:
    log = log_with_two_quotas()
    log.node("n2", cpu="30", memory="50")
    log.pod("p", quota="a", cpu="50")
    log.decide()
    assert root_total(log) == {"cpu": 40_000, "memory": 150, "pods": 220}
    log.node("n2", cpu="30", memory="50", deleted_at="2026-01-01T00:00:00Z")
    log.decide()
    assert root_total(log) == {"cpu": 10_000, "memory": 100, "pods": 110}


def test_updates_of_a_terminating_node_change_nothing_and_a_restart_neither() -> None:
    log = log_with_two_quotas()
    log.node("n2", cpu="30", deleted_at="2026-01-01T00:00:00Z")
    log.pod("p", quota="a", cpu="50")
    log.decide()
    log.node("n2", cpu="100", deleted_at="2026-01-01T00:00:00Z")
    assert log.decide() == []
    assert list(log.reloaded().decide(log.now)) == []
    assert root_total(log) == {"cpu": 10_000, "memory": 100, "pods": 110}


def test_pods_follow_a_changed_namespace_list_at_once() -> None:
    log = log_with_two_quotas()
    log.pod("p", namespace="web", cpu="3")
    log.decide()
    assert log.runtime("a") == {"cpu": 0}
    log.quota("a", minimum={"cpu": "2"}, maximum={"cpu": "10"}, namespaces=["web"])
    log.decide()
    assert log.runtime("a") == {"cpu": 3000}


def test_a_separate_tree_has_the_total_of_its_root() -> None:
    log = QuotaLog()
    log.node("n1", cpu="10")
    tree = {PREFIX + "tree-id": "gpu"}
    log.quota(
        "gpu-root",
        is_parent=True,
        maximum={"cpu": "100"},
        labels={**tree, PREFIX + "is-root": "true"},
        annotations={PREFIX + "total-resource": '{"cpu": "4"}'},
    )
    log.quota("x", parent="gpu-root", maximum={"cpu": "100"}, labels=tree)
    log.quota("a", maximum={"cpu": "100"})
    log.pod("p", quota="x", cpu="50")
    log.pod("q", quota="a", cpu="50")
    log.decide()
    assert log.runtime("x", tree="gpu") == {"cpu": 4000}
    assert log.runtime("a") == {"cpu": 6000}


def test_a_deleted_quota_ends_and_its_pods_count_in_the_default_quota() -> None:
    log = log_with_two_quotas()
    log.pod("p", quota="a", cpu="3")
    log.decide()
    log.delete_quota("a")
    log.decide()
    assert log.published("a") is None
    default = log.published("koordinator-default-quota")
    assert default is not None
    assert default.request == {"cpu": 3000}


def test_the_built_in_quotas_end_with_the_last_declared_one() -> None:
    log = QuotaLog()
    log.quota("a", maximum={"cpu": "1"})
    log.decide()
    log.delete_quota("a")
    log.decide()
    assert log.published("koordinator-root-quota") is None
    assert log.decide() == []


def test_nothing_is_published_twice() -> None:
    log = log_with_two_quotas()
    log.pod("p", quota="a", cpu="3")
    assert log.decide()
    assert log.decide() == []


def test_changed_usage_alone_is_published_after_the_settle_period() -> None:
    log = log_with_two_quotas()
    log.pod("p", quota="a", cpu="3")
    log.decide()
    log.place("p")
    assert log.decide(after=timedelta(milliseconds=200)) == []
    assert {event.subject for event in log.decide(after=timedelta(seconds=1))} == {
        "quotas._.a",
        "quotas._.koordinator-root-quota",
    }


def test_a_changed_runtime_is_published_at_once_and_names_its_causes() -> None:
    log = log_with_two_quotas()
    object_ref = "LOG:2"
    log.decide()
    pod_ref = log.pod("p", quota="a", cpu="3")
    events = {event.subject: event for event in log.decide(after=timedelta(milliseconds=1))}
    assert events["quotas._.a"].causes == (object_ref, pod_ref)


def test_a_malformed_quota_counts_as_absent_with_a_reason() -> None:
    log = log_with_two_quotas()
    log.decide()
    log.quota("a", maximum={"cpu": "ten"})
    log.decide()
    assert log.published("a") is None
    assert "ten" in next(iter(log.core.refused.values()))
    log.quota("a", maximum={"cpu": "10"})
    log.decide()
    assert log.published("a") is not None
    assert log.core.refused == {}


def test_a_repeated_or_outdated_delivery_changes_nothing() -> None:
    log = log_with_two_quotas()
    log.pod("p", quota="a", cpu="3")
    old = log.events[-1]
    log.pod("p", quota="a", cpu="4")
    log.core.apply(old)
    log.decide()
    assert log.runtime("a") == {"cpu": 4000}
    log.delete_pod("p")
    log.core.apply(old)
    log.decide()
    assert log.runtime("a") == {"cpu": 0}


def test_a_fresh_core_with_the_last_messages_decides_nothing_new() -> None:
    log = log_with_two_quotas()
    log.pod("p", quota="a", cpu="3")
    log.place("p")
    log.pod("gone", quota="b", cpu="3")
    log.decide()
    log.delete_pod("gone")
    log.place("p", node="n2")
    log.unplace("p")
    log.decide()
    fresh = log.reloaded()
    assert fresh.decide(log.now) == []
    log.pod("late", quota="b", cpu="1")
    fresh.apply(log.events[-1])
    assert fresh.decide(log.now) == log.core.decide(log.now)


def test_a_decision_has_at_most_999_events_and_continues_with_the_rest() -> None:
    log = QuotaLog(QuotaTreeCore())
    for number in range(1200):
        log.quota(f"q{number:04}", maximum={"cpu": "1"})
    assert len(log.core.decide(log.now)) == 999
    assert len(log.decide()) == 1203
