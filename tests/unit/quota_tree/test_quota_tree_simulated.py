"""The quota-tree service in a simulated cell: users who change everything, restarts, rivals; every commit recomputed
afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random

import msgspec

from cotenant.domain.quota.names import ROOT
from cotenant.engine.commit import Identity
from cotenant.engine.replay import verify
from cotenant.events.envelope import Event, Payload
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Placement
from cotenant.events.quotas import QuotaRuntime
from cotenant.log.contract import Write
from cotenant.model.subjects import node_subject, object_subject, placement_subject, pod_subject
from cotenant.simulation import ServiceParticipant, World
from cotenant_quota_tree.core import QuotaTreeCore
from cotenant_quota_tree.definition import CORE_VERSION, DEFINITION, QuotaTreeConfig
from tests.builders import node_document, pod_document, stored
from tests.unit.quota_tree.builders_quota_tree import PREFIX, quota_document

NAMES = ("a", "b", "c", "d", "e", "f")


class Users:
    """Declares, changes and deletes nodes, quotas (with any parent, cycles too), pods and placements, by chance."""

    name = "users"
    filters: tuple[str, ...] = ()
    usage_filters: tuple[str, ...] = ()

    def __init__(self, seed: int, steps: int) -> None:
        self.dice = Random(seed)
        self.left = steps

    def publish(self, world: World, subject: str, data: Payload, *, tombstone: bool = False) -> None:
        event = Event(
            subject=subject,
            data=data,
            time=world.now,
            id=f"user/{world.now}/{subject}",
            source="/user",
            tombstone=tombstone,
            ttl_seconds=3600 if tombstone else 0,
        )
        world.append([Write(event=event)])

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        if not self.left:
            return None
        self.left -= 1
        dice = self.dice
        gone = dice.random() < 0.25
        kind = dice.choice(["node", "quota", "quota", "pod", "pod", "placement"])
        if kind == "node":
            name = f"n{dice.randrange(4)}"
            document = node_document(name, allocatable={"cpu": str(dice.randrange(1, 20))})
            subject = node_subject(name)
        elif kind == "quota":
            name = dice.choice(NAMES)
            maximum = dice.randrange(1, 30)
            document = quota_document(
                name,
                parent=dice.choice([ROOT, ROOT, *NAMES]),
                lends=dice.random() < 0.8,
                minimum={"cpu": str(dice.randrange(maximum + 1))},
                maximum={"cpu": str(maximum)},
                namespaces=["web"] if dice.random() < 0.2 else [],
            )
            subject = object_subject("scheduling.sigs.k8s.io", "elasticquotas", "default", name)
        else:
            name = f"p{dice.randrange(12)}"
            namespace = dice.choice(["default", "web"])
            uid = f"{name}-{dice.randrange(2)}"
            if kind == "placement":
                subject = placement_subject(f"n{dice.randrange(4)}", namespace, name)
                placement = Placement(node="n", namespace=namespace, name=name, uid=uid)
                self.publish(world, subject, placement, tombstone=gone)
                return now + timedelta(milliseconds=dice.randrange(1, 400))
            labels = {PREFIX + "name": dice.choice(NAMES)} if namespace == "default" else {}
            requests = {"cpu": str(dice.randrange(1, 9))}
            document = pod_document(name, namespace=namespace, uid=uid, labels=labels, requests=requests)
            subject = pod_subject(namespace, name)
        self.publish(world, subject, ObjectDeleted() if gone else stored(document), tombstone=gone)
        return now + timedelta(milliseconds=dice.randrange(1, 400))


def quota_tree(replica: str) -> ServiceParticipant:
    return ServiceParticipant(DEFINITION, QuotaTreeConfig(), Identity(service="quota-tree", replica=replica, core=CORE_VERSION))


def run(world: World, seconds: float) -> None:
    world.run_until(world.now + timedelta(seconds=seconds))


def last_messages(history: Sequence[Event]) -> list[Event]:
    return sorted({event.subject: event for event in history}.values(), key=lambda event: event.sequence)


def quotas_now(history: Sequence[Event]) -> dict[str, QuotaRuntime]:
    return {
        event.data.quota: event.data
        for event in last_messages(history)
        if isinstance(event.data, QuotaRuntime) and not event.tombstone
    }


def test_restarts_and_second_instances_lose_nothing_and_replay_recomputes_every_commit() -> None:
    for seed in range(6):
        world = World(seed=seed, keep_history=True)
        world.add(Users(seed, 150))
        rival = quota_tree("rival")
        for life in range(5):
            mine = quota_tree(f"life-{life}")
            world.add(mine)
            if life == 2:
                world.add(rival)
            run(world, 6 + 0.1 * life)
            world.remove(mine)
        world.remove(rival)
        world.add(quota_tree("last"))
        run(world, 30)
        assert world.history is not None
        report = verify(world.history, {"quota-tree": DEFINITION})
        assert report.ok, report.first_difference
        assert report.verified == report.commits
        fresh = QuotaTreeCore()
        for event in last_messages(world.history):
            fresh.apply(event)
        assert fresh.decide(world.now) == []


def test_after_any_history_runtimes_do_not_exceed_the_total() -> None:
    for seed in range(10, 16):
        world = World(seed=seed, keep_history=True)
        world.add(Users(seed, 120))
        world.add(quota_tree("only"))
        run(world, 60)
        assert world.history is not None
        quotas = quotas_now(world.history)
        for name, quota in quotas.items():
            children = [child for child in quotas.values() if child.parent == name and child.quota in NAMES]
            given_out = sum(child.runtime.get("cpu", 0) for child in children)
            assert given_out <= max(quota.runtime.get("cpu", 0), 0)
            if name in NAMES:
                assert quota.runtime["cpu"] <= quota.max["cpu"]
                assert quota.parent == ROOT or quota.parent in quotas


def test_equal_seeds_give_equal_histories() -> None:
    def once() -> list[bytes]:
        world = World(seed=3, keep_history=True)
        world.add(Users(3, 80))
        world.add(quota_tree("only"))
        run(world, 40)
        assert world.history is not None
        return [msgspec.json.encode(event.data) for event in world.history]

    assert once() == once()
