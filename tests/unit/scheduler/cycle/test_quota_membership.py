"""A placed pod counts in the quota that its object belongs to by the quotas there are, whenever these are declared or end."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cotenant.domain.quota.membership import Membership
from cotenant.domain.quota.names import DEFAULT, LABEL_QUOTA
from cotenant.events.node.runs import RunPhase
from cotenant_quota_tree.core import QuotaTreeCore
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.state.pod_records import PodRecord
from tests.unit.scheduler.builders_scheduler import QUOTAS, Story, node, pod


def story() -> Story:
    told = Story()
    told.nodes(node("a", cpu="16"))
    told.executor("a")
    return told


def labelled(name: str, quota: str = "red", cpu: str = "1", **more: Any) -> dict[str, Any]:
    return pod(name, cpu=cpu, memory="64Mi", labels={LABEL_QUOTA: quota} if quota else {}, **more)


def used(core: SchedulerCore, quota: str, tree: str = "") -> int:
    """Milli-cores that a quota's pods use, as the scheduler admits by it."""
    core.settle()
    return core.ledger.used(Membership(quota, tree)).get("cpu", 0)


def test_a_pod_placed_before_its_quota_is_declared_counts_in_it() -> None:
    told = story()
    told.pods(labelled("early"))
    told.settle()
    told.quota("red", max={"cpu": 1000}, min={"cpu": 1000})
    told.pods(labelled("late"))
    told.settle()
    assert told.placed() == {"early": "a"}
    waiting = told.waiting("late")
    assert waiting is not None
    assert waiting.codes == {("quota", "cpu")}


def test_a_pod_of_the_default_quota_moves_to_the_quota_that_it_names_in_another_tree() -> None:
    told = story()
    told.quota("blue", max={"cpu": 5000})
    told.pods(labelled("early"))
    told.settle()
    assert used(told.core, DEFAULT) == 1000
    told.quota("red", tree="t", max={"cpu": 5000})
    told.settle()
    assert (used(told.core, DEFAULT), used(told.core, "red", "t")) == (0, 1000)


def test_pods_of_a_quota_that_ends_count_in_the_default_quota_and_come_back_with_it() -> None:
    told = story()
    told.quota("blue", max={"cpu": 5000})
    told.quota("red", max={"cpu": 5000})
    told.pods(labelled("p", "red"), labelled("q", "blue"))
    told.settle()
    told.quota_deleted("red")
    assert (used(told.core, DEFAULT), used(told.core, "red"), used(told.core, "blue")) == (1000, 0, 1000)
    told.quota("red", max={"cpu": 5000})
    assert (used(told.core, DEFAULT), used(told.core, "red"), used(told.core, "blue")) == (0, 1000, 1000)
    told.quota_deleted("red")
    told.quota_deleted("blue")
    told.settle()
    told.quota("red", max={"cpu": 1000})
    told.pods(labelled("late", "red"))
    told.settle()
    assert "late" not in told.placed()


def test_unlabelled_pods_of_a_namespace_follow_the_quota_that_lists_it() -> None:
    told = story()
    told.quota("red", max={"cpu": 5000}, namespaces=["shop"])
    told.pods(labelled("p", "", namespace="shop"))
    told.settle()
    assert (used(told.core, "red"), used(told.core, DEFAULT)) == (1000, 0)
    told.quota("red", max={"cpu": 5000}, namespaces=["mail"])
    assert (used(told.core, "red"), used(told.core, DEFAULT)) == (0, 1000)
    told.quota("amber", max={"cpu": 5000}, namespaces=["shop"])
    assert (used(told.core, "amber"), used(told.core, DEFAULT)) == (1000, 0)


def test_a_placed_pod_that_names_another_quota_counts_there_in_the_same_decision() -> None:
    told = story()
    told.quota("red", max={"cpu": 1000})
    told.quota("blue", max={"cpu": 1000})
    told.pods(labelled("p", "red"))
    told.settle()
    told.pods(labelled("p", "blue"), labelled("to-red", "red"), labelled("to-blue", "blue"))
    told.settle()
    assert set(told.placed()) == {"p", "to-red"}
    placed = told.placement("p")
    assert placed is not None
    assert placed.quota == "blue"


def test_a_pod_that_has_ended_moves_nothing() -> None:
    told = story()
    told.pods(labelled("p"))
    told.settle()
    told.run("a", "p", RunPhase.SUCCEEDED)
    told.quota("red", max={"cpu": 1000})
    told.settle()
    assert used(told.core, "red") == 0


def test_only_the_pods_of_quotas_that_some_may_leave_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    told = story()
    for name in ("red", "blue", "green"):
        told.quota(name, max={"cpu": 9000})
    told.pods(*(labelled(f"{quota}-{i}", quota, "100m") for quota in ("red", "blue", "green") for i in range(5)))
    told.settle()
    looked: list[str] = []
    charged = told.core.pods.charged
    move = charged.move

    def noted(record: PodRecord) -> None:
        looked.append(record.key[1])
        move(record)

    monkeypatch.setattr(charged, "move", noted)
    told.quota("red", max={"cpu": 7000})
    told.core.settle()
    assert looked == []
    told.quota_deleted("blue")
    told.core.settle()
    assert sorted(looked) == [f"blue-{i}" for i in range(5)]


@pytest.mark.parametrize("seed", range(25))
def test_used_is_that_of_the_pods_by_the_quotas_there_are_whatever_comes_first_and_after_a_restart(seed: int) -> None:
    chance = Random(seed)
    told = story()
    told.nodes(node("b", cpu="64"))
    names, spaces = ("red", "blue", "shop"), ("default", "shop", "mail", QUOTAS)
    declared: dict[str, tuple[str, ...]] = {}
    for _ in range(40):
        match chance.randrange(6):
            case 0:
                name = chance.choice(names)
                declared[name] = tuple(chance.sample(spaces, chance.randrange(3)))
                told.quota(name, tree="t" if name == "blue" else "", max={"cpu": 100_000}, namespaces=declared[name])
            case 1 if declared:
                name = chance.choice(sorted(declared))
                del declared[name]
                told.quota_deleted(name)
            case 2 if told.placed():
                name, where = chance.choice(sorted(told.placed().items()))
                told.run(where, name, RunPhase.SUCCEEDED, namespace=name.split("-")[0])
            case _:
                space = chance.choice(spaces)
                document = labelled(f"{space}-{chance.randrange(8)}", chance.choice(["", *names]), "100m", namespace=space)
                told.pods(document)
        if chance.random() < 0.7:
            told.decide()
        if chance.random() < 0.3:
            batch = told.core.decide(told.now)
            told.core.assume(batch)
            told.core.decide(told.now)
            told.core.withdraw()
    told.settle()
    expected = {"red": 0, "blue": 0, "shop": 0, DEFAULT: 0}
    for (space, _), record in told.core.pods.records.items():
        if record.facts is None or record.finished or not record.placements:
            continue
        label = record.facts.traits.quota_label
        bound = sorted(name for name, listed in declared.items() if space in listed)
        name = (label if label in declared else DEFAULT) if label else (bound or [DEFAULT])[0]
        expected[name] += 100
    again = told.reloaded()
    tree = QuotaTreeCore()
    for event in told.last.values():
        tree.apply(event)
    tree.decide(told.now)
    published = {quota.quota: quota for quota in tree.quotas()}
    runtimes = {membership.quota: runtime for membership, runtime in told.core.runtimes(told.now).items()}
    for name in (*sorted(declared), *([DEFAULT] if declared else [])):
        of_tree = "t" if name == "blue" else ""
        assert used(told.core, name, of_tree) == expected[name]
        assert used(again, name, of_tree) == expected[name]
        assert published[name].used.get("cpu", 0) == expected[name]
        assert published[name].runtime == runtimes[name]
