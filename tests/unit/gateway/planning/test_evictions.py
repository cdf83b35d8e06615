"""Evictions keep the budgets, and say why they are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cotenant.api.times import rfc3339
from cotenant.events.migrations import EvictionOutcome, EvictionRequest
from cotenant.events.node.runs import RunPhase
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.kinds.pod_disruption_budgets import BUDGETS
from cotenant.model.subjects import object_subject, pod_subject
from cotenant_gateway.planning.budgets import budget_updates, figures
from cotenant_gateway.planning.evictions import plan_eviction
from cotenant_gateway.read_model import slots
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, manifest, raw


def world_of(pods: int, **budget: object) -> World:
    """Running pods a0..an labelled app=a, and a budget over them."""
    world = World()
    for number in range(pods):
        document = manifest(f"a{number}")
        document["metadata"] = {"name": f"a{number}", "labels": {"app": "a"}}
        world.create("pods", document)
        world.place(f"a{number}")
        world.run(f"a{number}")
    spec = {"selector": {"matchLabels": {"app": "a"}}, **budget}
    world.create(
        "poddisruptionbudgets",
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec},
    )
    return world


def evict(world: World, name: str, **fields: Any) -> EvictionOutcome:
    request = EvictionRequest(namespace="default", name=name, uid=world.uid_of(name), job="job-1", **fields)
    planned = plan_eviction(world.core, request, world.now)
    world.store(planned.plan)
    return planned.outcome


def test_an_allowed_eviction_marks_the_pod_and_charges_the_budget_in_one_plan() -> None:
    world = world_of(3, minAvailable=2)
    planned = plan_eviction(
        world.core,
        EvictionRequest(namespace="default", name="a0", uid=world.uid_of("a0"), job="j", trigger="LowNodeLoad"),
        world.now,
    )
    assert planned.plan is not None
    assert [write.subject for write in planned.plan.writes] == [
        "objects.core.pods.default.a0",
        "objects.policy.poddisruptionbudgets.default.b",
        "evictions.default.a0",
    ]
    world.store(planned.plan)
    pod: Any = world.show("pods", "a0")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert pod["metadata"]["annotations"]["cotenant.io/evicted-by"] == "LowNodeLoad"
    budget: Any = world.show("poddisruptionbudgets", "b")
    assert budget["status"]["disruptionsAllowed"] == 0
    assert list(budget["status"]["disruptedPods"]) == ["a0"]


def test_the_second_eviction_is_refused_with_the_budgets_figures() -> None:
    world = world_of(3, minAvailable=2)
    assert evict(world, "a0").allowed
    refused = evict(world, "a1")
    assert not refused.allowed
    assert (refused.reason, refused.budget) == ("DisruptionBudget", "b")
    assert "needs 2 healthy pods and has 2 currently" in refused.message
    assert world.events[-1].data == refused


def test_percentages_round_up_and_max_unavailable_counts_what_is_down() -> None:
    assert not evict(world_of(3, minAvailable="67%"), "a0").allowed
    assert evict(world_of(3, minAvailable="66%"), "a0").allowed
    world = world_of(3, maxUnavailable=1)
    assert evict(world, "a0").allowed
    assert not evict(world, "a1").allowed


def test_a_lost_nodes_pod_is_evicted_past_its_budget() -> None:
    world = world_of(1, minAvailable=1)
    assert not evict(world, "a0").allowed
    assert evict(world, "a0", ignore_budgets=True).allowed


def test_a_pod_that_is_ending_or_gone_is_answered_as_allowed() -> None:
    world = world_of(2, minAvailable=1)
    assert evict(world, "a0").allowed
    again = evict(world, "a0")
    assert (again.allowed, again.reason) == (True, "Terminating")
    gone = plan_eviction(world.core, EvictionRequest(namespace="default", name="nobody", uid="u"), world.now)
    assert (gone.outcome.allowed, gone.outcome.reason, gone.plan) == (True, "Gone", None)


def test_the_answer_for_a_pod_that_is_gone_names_its_end_as_the_cause() -> None:
    """Seed 134: the answer had no cause at all."""
    world = world_of(1)
    uid = world.uid_of("a0")
    ended = world.put("objects.core.pods.default.a0", ObjectDeleted(uid=uid), tombstone=True)
    planned = plan_eviction(world.core, EvictionRequest(namespace="default", name="a0", uid=uid, job="j"), world.now)
    assert planned.plan is not None
    (answer,) = planned.plan.writes
    assert (planned.outcome.reason, answer.causes) == ("Gone", (ended.ref,))


def test_the_budgets_status_follows_the_pods() -> None:
    world = world_of(3, minAvailable=1)
    (plan,) = budget_updates(world.core, world.now)
    world.store(plan)
    assert list(budget_updates(world.core, world.now)) == []
    world.run("a0", RunPhase.FAILED, exit_code=1)
    (plan,) = budget_updates(world.core, world.now)
    world.store(plan)
    status: Any = world.show("poddisruptionbudgets", "b")["status"]
    assert (status["expectedPods"], status["currentHealthy"], status["disruptionsAllowed"]) == (2, 2, 1)


@pytest.mark.parametrize("touched", [1, 10_000])
def test_a_budget_counts_the_pods_that_it_selects_now(touched: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many changes are kept for it: with one it looks at all pods wherever two changed."""
    monkeypatch.setattr(slots, "MAX_TOUCHED", touched)
    world = world_of(3)

    def labelled(name: str, app: str) -> dict[str, object]:
        return manifest(name) | {"metadata": {"name": name, "uid": f"uid-{name}", "labels": {"app": app}}}

    def expected(budget: str = "b") -> int:
        snapshot = world.core.get(BUDGETS, "default", budget)
        assert snapshot is not None
        return figures(world.core, snapshot, world.now).expected

    assert expected() == 3
    world.put(pod_subject("default", "a3"), ObjectStored(object=raw(labelled("a3", "a"))))
    world.put(pod_subject("elsewhere", "a4"), ObjectStored(object=raw(labelled("a4", "a"))))
    assert expected() == 4
    world.put(pod_subject("default", "a3"), ObjectStored(object=raw(labelled("a3", "other"))))
    assert expected() == 3
    world.put(pod_subject("default", "a0"), ObjectDeleted(), tombstone=True)
    assert expected() == 2
    spec = {"selector": {"matchLabels": {"app": "other"}}}
    for name in ("b", "c"):
        document = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
        world.put(object_subject("policy", "poddisruptionbudgets", "default", name), ObjectStored(object=raw(document)))
    assert (expected("b"), expected("c")) == (1, 1)
    world.put(pod_subject("default", "a5"), ObjectStored(object=raw(labelled("a5", "other"))))
    assert (expected("b"), expected("c")) == (2, 2)


def test_two_gateways_cannot_overshoot_because_both_write_the_budget() -> None:
    world = world_of(3, minAvailable=2)
    requests = [EvictionRequest(namespace="default", name=name, uid=world.uid_of(name)) for name in ("a0", "a1")]
    first, second = (plan_eviction(world.core, request, world.now).plan for request in requests)
    assert first is not None
    assert second is not None

    def budget_expectation(writes: Any) -> int | None:
        return next((int(write.expected) for write in writes if "poddisruptionbudgets" in write.subject), None)

    assert budget_expectation(first.writes) == budget_expectation(second.writes)
    assert isinstance(first.writes[1].payload, ObjectStored)


def test_the_policy_delete_asks_no_budget() -> None:
    world = world_of(1, minAvailable=1)
    assert not evict(world, "a0").allowed
    assert evict(world, "a0", policy="Delete").allowed
    assert "deletionTimestamp" in world.show("pods", "a0")["metadata"]


def test_the_policy_soft_eviction_only_writes_the_annotation() -> None:
    world = world_of(1, minAvailable=1)
    outcome = evict(world, "a0", policy="SoftEviction", trigger="LowNodeLoad", reason="hot", grace_period_seconds=7)
    assert (outcome.allowed, outcome.soft, outcome.ends_pod) == (True, True, False)
    metadata = world.show("pods", "a0")["metadata"]
    assert "deletionTimestamp" not in metadata
    said = json.loads(metadata["annotations"]["scheduling.koordinator.sh/soft-eviction"])
    assert said == {
        "timestamp": rfc3339(world.now),
        "deleteOptions": {"gracePeriodSeconds": 7},
        "initiator": "LowNodeLoad",
        "reason": "hot",
    }


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ApiError, match="'Explode' is none of Eviction, Delete, SoftEviction"):
        evict(world_of(1), "a0", policy="Explode")


@pytest.mark.parametrize(
    ("trigger", "reason", "message"),
    [
        ("Preemption", "PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"),
        ("TaintEviction", "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
        ("LowNodeLoad", "EvictionByEvictionAPI", "Eviction API: evicting"),
        ("alice", "EvictionByEvictionAPI", "Eviction API: evicting"),
    ],
)
def test_a_pod_that_is_evicted_says_by_whom_in_its_conditions(trigger: str, reason: str, message: str) -> None:
    world = world_of(1, maxUnavailable=1)
    before: Any = world.show("pods", "a0")
    assert "DisruptionTarget" not in {condition["type"] for condition in before["status"]["conditions"]}
    evict(world, "a0", trigger=trigger)
    pod: Any = world.show("pods", "a0")
    (found,) = [condition for condition in pod["status"]["conditions"] if condition["type"] == "DisruptionTarget"]
    assert (found["status"], found["reason"], found["message"]) == ("True", reason, message)
    assert found["lastTransitionTime"] == rfc3339(world.now)


def test_a_pod_that_its_user_deletes_is_no_target_of_a_disruption() -> None:
    world = world_of(1, maxUnavailable=1)
    world.delete("pods", "a0")
    pod: Any = world.show("pods", "a0")
    assert pod["metadata"]["deletionTimestamp"]
    assert "DisruptionTarget" not in {condition["type"] for condition in pod["status"]["conditions"]}


def test_a_pod_that_its_node_evicted_says_so_too() -> None:
    world = world_of(1, maxUnavailable=1)
    world.run("a0", RunPhase.EVICTED)
    pod: Any = world.show("pods", "a0")
    (found,) = [condition for condition in pod["status"]["conditions"] if condition["type"] == "DisruptionTarget"]
    assert (found["status"], found["reason"]) == ("True", "TerminationByKubelet")
