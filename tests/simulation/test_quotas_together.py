"""Profiles, over-use and preemption within a quota, through gateway, quota-tree, scheduler, arbiter and nodes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.kinds.elastic_quotas import ELASTIC_QUOTAS
from cotenant.kinds.pods import PODS
from cotenant.simulation import START, World
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_node_executor.simulated.participant import NodeParticipant
from cotenant_verification.simulate.api import SimulatedGateway
from cotenant_verification.simulate.participants import participant
from tests.builders import node_document, pod_document

SECOND = timedelta(seconds=1)
SIZE = NodeSize(16_000, 64 << 30)
PREFIX = "quota.scheduling.koordinator.sh/"
REVOKING = '{"monitor_all_quotas": true, "delay_evict_seconds": 20}'


class Cell:
    """Two nodes of 16 CPUs in zone `a`, one in zone `b`, and a profile that gives half of zone `a` to tree `t1`."""

    def __init__(self, quota_tree: str = "{}") -> None:
        self.world = World(seed=1)
        self.events: list[Event] = []
        self.world.watchers.append(self.events.append)
        self.gateway = SimulatedGateway()
        self.world.add(self.gateway)
        self.world.add(participant("quota-tree", self.gateway, quota_tree))
        for service in ("scheduler", "descheduler-arbiter", "metrics-ingest"):
            self.world.add(participant(service, self.gateway))
        self.world.run_until(START + SECOND)
        for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            self.create(1, node_document(name, labels={"zone": zone}))
            self.world.add(NodeParticipant(simulated_node(name, SIZE)))
        self.create(
            2,
            {
                "apiVersion": "quota.koordinator.sh/v1alpha1",
                "kind": "ElasticQuotaProfile",
                "metadata": {"name": "zone-a", "namespace": "default", "labels": {PREFIX + "tree-id": "t1"}},
                "spec": {
                    "quotaName": "zone-a-root",
                    "nodeSelector": {"matchLabels": {"zone": "a"}},
                    "resourceRatio": "0.5",
                    "quotaLabels": {PREFIX + "is-parent": "true"},
                },
            },
        )

    def create(self, second: float, document: Any) -> None:
        self.gateway.create(START + second * SECOND, document)
        self.world.wake(self.gateway, START + second * SECOND)

    def quota(self, second: float, name: str, cpu: str) -> None:
        """A quota below the profile's, with a min of so many CPUs and a max of all."""
        labels = {PREFIX + "parent": "zone-a-root", PREFIX + "is-parent": "false"}
        everything = {"cpu": "16", "memory": "4611686018427387"}
        document = {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"min": {"cpu": cpu}, "max": everything},
        }
        self.create(second, document)

    def pod(self, second: float, name: str, quota: str, cpu: str, priority: int = 0) -> None:
        wanted = {"cpu": cpu, "memory": "1Gi"}
        labels = {PREFIX + "name": quota}
        document = pod_document(
            name, uid="", labels=labels, requests=wanted, limits=wanted, image="app:1", priority=priority
        )
        self.create(second, document)

    def run(self, until: float) -> None:
        self.world.run_until(START + until * SECOND)

    def shown(self, name: str) -> dict[str, Any]:
        snapshot = self.gateway.core.get(ELASTIC_QUOTAS, "default", name)
        assert snapshot is not None
        shown: dict[str, Any] = json.loads(snapshot.document)
        return shown

    def nodes(self) -> dict[str, str]:
        """Pods that are placed, with their nodes."""
        specs = {pod.address.name: json.loads(pod.document)["spec"] for pod in self.gateway.core.objects(PODS)}
        return {name: spec["nodeName"] for name, spec in specs.items() if spec.get("nodeName")}

    def evicted(self) -> list[str]:
        return [
            event.data.name
            for event in self.events
            if isinstance(event.data, EvictionOutcome) and event.data.reason == "Evicted" and not event.tombstone
        ]


def test_a_profile_makes_a_tree_whose_pods_stay_on_its_nodes() -> None:
    cell = Cell()
    cell.run(20)
    root = cell.shown("zone-a-root")
    assert root["spec"]["min"]["cpu"] == "16"
    assert json.loads(root["metadata"]["annotations"][PREFIX + "total-resource"])["cpu"] == "16"
    cell.quota(21, "team", "4")
    for index in range(4):
        cell.pod(24, f"p{index}", "team", "3")
    cell.run(60)
    assert cell.gateway.refused == []
    assert sorted(cell.nodes()) == ["p0", "p1", "p2", "p3"]
    assert set(cell.nodes().values()) == {"a1", "a2"}
    assert cell.shown("team")["status"]["used"]["cpu"] == "12"


def test_what_a_quota_borrowed_is_taken_back_for_its_owner() -> None:
    cell = Cell(REVOKING)
    cell.run(20)
    cell.quota(21, "borrower", "4")
    cell.quota(21, "owner", "12")
    for index in range(4):
        cell.pod(24, f"b{index}", "borrower", "4")
    cell.run(60)
    assert len(cell.nodes()) == 4
    for index in range(3):
        cell.pod(61, f"o{index}", "owner", "4")
    cell.run(75)
    assert cell.evicted() == []
    cell.run(180)
    assert sorted(cell.evicted()) == ["b0", "b1", "b2"]
    assert {name for name in cell.nodes() if name.startswith("o")} == {"o0", "o1", "o2"}


def test_a_pod_of_higher_priority_takes_its_quotas_place_from_a_lower_one() -> None:
    cell = Cell()
    cell.run(20)
    cell.quota(21, "team", "8")
    cell.quota(21, "other", "8")
    cell.pod(24, "low", "team", "8")
    cell.pod(24, "beside", "other", "8")
    cell.run(60)
    assert sorted(cell.nodes()) == ["beside", "low"]
    cell.pod(61, "high", "team", "4", priority=1000)
    cell.run(120)
    assert cell.evicted() == ["low"]
    assert "high" in cell.nodes()
    assert "beside" in cell.nodes()
