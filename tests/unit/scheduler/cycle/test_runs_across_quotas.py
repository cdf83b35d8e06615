"""Pods of one shape that follow each other in several quotas are placed at once, exactly as one after the other."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cotenant.domain.quota.admission import admit
from cotenant.domain.quota.equal_pods import EqualPods
from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.domain.quota.trees.demands import ChargeClass
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement
from cotenant_scheduler.cycle.binding import Binding
from cotenant_scheduler.framework.evaluation import Evaluation
from tests.unit.scheduler.builders_scheduler import GIB, Story, node, pod

WORTHWHILE = "cotenant_scheduler.cycle.placing.WORTHWHILE"
PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"
NO_RUN = 1 << 30
QUOTAS = ("a", "b", "a1", "a2", "b1", "b2", "b3")


def cluster(random: Random) -> Story:
    """Quotas on two levels, some of which list fewer resources, on a few nodes."""
    story = Story()
    sizes = random.choice([("8", "20"), ("3", "6")])  # on small nodes some pods preempt others, and are nominated
    story.nodes(*(node(f"n{i}", cpu=random.choice(sizes), pods=random.choice(["9", "110"])) for i in range(5)))
    story.metric("n0", 3000, 3 * GIB, p003=(100, 1 << 20))
    for name in QUOTAS:
        cpu = random.choice([2_000, 5_000, 40_000])
        most = {"cpu": cpu, **({"memory": 400 * GIB} if random.random() < 0.8 else {})}
        story.quota(name, max=most, min={"cpu": random.choice([0, cpu // 2])}, parent=name[0] if len(name) > 1 else "")
    return story


def more_pods(random: Random, story: Story, first: int, count: int) -> None:
    for number in range(first, first + count):
        labels = {LABEL_QUOTA: random.choice(QUOTAS)}
        if random.random() < 0.2:
            labels[PREEMPTIBLE] = "false"
        cpu = random.choice(["500m", "500m", "500m", "700m"])
        priority = random.choice([None, None, None, 9000])
        story.pod(pod(f"p{number:03}", cpu=cpu, memory="100Mi", labels=labels, priority=priority))


def told(seed: int) -> list[Event]:
    """Everything that is decided while pods come and end."""
    random = Random(seed)
    story = cluster(random)
    events: list[Event] = []
    for step in range(5):
        more_pods(random, story, step * 40, 40)
        decided = story.decide()
        events += decided
        placed = [event.data for event in decided if isinstance(event.data, Placement)]
        for placement in random.sample(placed, min(8, len(placed))):
            story.run(placement.node, placement.name, RunPhase.SUCCEEDED)
        for _, nomination in sorted(story.nominated().items())[:5]:
            for victim in nomination.victims:
                story.run(nomination.node, victim.name, RunPhase.STOPPED)
        story.later(1)
    return events


@pytest.mark.parametrize("seed", range(24))
def test_runs_are_decided_as_one_by_one(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WORTHWHILE, 2)
        at_once = told(seed)
        patch.setattr(WORTHWHILE, NO_RUN)
        one_by_one = told(seed)
    assert sum(isinstance(event.data, Placement) for event in at_once) > 20
    assert at_once == one_by_one


def quotas_of(random: Random) -> tuple[QuotaLedger, list[Membership]]:
    """A ledger with quotas on four levels in which something is used already, here and there too much."""
    ledger = QuotaLedger()
    views: dict[str, ElasticQuotaView] = {}
    for name in ("a", "a1", "a2", "a11", "a12", "a21", "a111", "a112", "b"):
        most = {"cpu": random.randint(1, 60), **({"memory": random.randint(1, 60)} if random.random() < 0.8 else {})}
        least = {"cpu": random.randint(0, 20)} if random.random() < 0.5 else {}
        views[name] = ElasticQuotaView(name=name, parent=name[:-1] or "root", max=most, min=least, shared_weight=most)
    ledger.declare(views)
    ledger.demands.offer({"cpu": 90, "memory": 90})
    members = [Membership(name, "") for name in views]
    for name in views:
        ledger.demands.count(ChargeClass("default", name, (("cpu", 50), ("memory", 50)), True), 1, 0)
    for member in random.sample(members, 4):
        used = {"cpu": random.randint(0, 9), "memory": random.randint(0, 30)}
        ledger.charge(member, used, preemptible=random.random() < 0.5)
    return ledger, members


@pytest.mark.parametrize("seed", range(150))
def test_counting_equal_pods_admits_those_that_are_admitted_one_by_one(seed: int) -> None:
    random = Random(seed)
    ledger, members = quotas_of(random)
    request = {"cpu": random.randint(0, 4), "memory": random.randint(0, 3)}
    runtime_limits, check_ancestors = random.random() < 0.7, random.random() < 0.8
    equal = EqualPods(request, runtime_limits=runtime_limits, check_ancestors=check_ancestors)
    chains = {member: ledger.chain(member) for member in members}
    asked = [(random.choice(members), random.random() < 0.7) for _ in range(60)]
    taken = [equal.admit(chains[member], preemptible=preemptible) for member, preemptible in asked]
    counted = None
    for (member, preemptible), admitted in zip(asked, taken, strict=True):
        chain = ledger.chain(member)
        of_quota = {resource: amount for resource, amount in request.items() if resource in chain[0].max}
        counted = counted if counted is not None else of_quota
        alone = admit(
            request, chain, preemptible=preemptible, runtime_limits=runtime_limits, check_ancestors=check_ancestors
        )
        assert admitted is (alone is None and of_quota == counted)
        if admitted:
            ledger.charge(member, request, preemptible=preemptible)


@pytest.mark.parametrize("seed", range(40))
def test_charging_equal_pods_together_is_charging_each(seed: int) -> None:
    (one, members), (many, _) = quotas_of(Random(seed)), quotas_of(Random(seed))
    random = Random(-seed)
    request = {"cpu": 2, "memory": 3}
    members.append(Membership("unknown", ""))
    for _ in range(3):
        counts: dict[tuple[Membership, bool], int] = {}
        before = {member: many.version_of(member) for member in members}
        for member in members:
            one.chain(member), many.chain(member)
        for _ in range(random.randint(1, 9)):
            key = random.choice(members), random.random() < 0.7
            counts[key] = counts.get(key, 0) + 1
            one.charge(key[0], request, preemptible=key[1])
        many.charge_equal(counts, request)
        for member in members:
            assert many.chain(member) == one.chain(member)
        for member, _ in counts:
            assert member.quota == "unknown" or many.version_of(member) != before[member]


def test_pods_in_many_quotas_cost_no_more_evaluations_than_pods_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is counted, not timed: how often rows are evaluated for one pod, and pods are bound by themselves."""
    work = {"evaluated": 0, "bound": 0}
    update, place = Evaluation._update_row, Binding.place

    def updating(self: Evaluation, row: int) -> None:
        work["evaluated"] += 1
        update(self, row)

    def placing(self: Binding, *args: Any, **more: Any) -> None:
        work["bound"] += 1
        place(self, *args, **more)

    monkeypatch.setattr(Evaluation, "_update_row", updating)
    monkeypatch.setattr(Binding, "place", placing)
    cost = {}
    for quotas in (1, 100):
        story = Story()
        story.nodes(*(node(f"n{i}", cpu="64", memory="256Gi") for i in range(50)))
        for number in range(quotas):
            story.quota(f"q{number}", max={"cpu": 1_000_000, "memory": 1 << 50})
        labels = [{LABEL_QUOTA: f"q{number % quotas}"} for number in range(400)]
        story.pods(*(pod(f"p{number:03}", cpu="100m", memory="64Mi", labels=of) for number, of in enumerate(labels)))
        work.update(evaluated=0, bound=0)
        story.decide()
        assert len(story.placed()) == 400
        cost[quotas] = dict(work)
    assert cost[100] == cost[1] == {"evaluated": 0, "bound": 0}
