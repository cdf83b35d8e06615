"""A mid pod from the prediction that found room for it to its eviction, through the whole control plane on a simulated node.

A service that has requested two thirds of the machine uses little, then more and more. What it is predicted not to need is
offered as mid resources; a mid pod takes them, is bounded by its control group, and is evicted once its request is more than
the offer, or (where that is not configured) gets what the service leaves. The service must not notice: its usage is compared,
sample by sample, with a run in which there is no mid pod.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from cotenant.events import Event, Execution, RunStatus
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.usage import UsageSample
from cotenant.events.placements import Placement
from cotenant.simulation import START, World, collecting_rarely
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_node_executor.simulated.participant import NodeParticipant
from cotenant_verification.simulate.api import SimulatedGateway
from cotenant_verification.simulate.participants import participant

COLD_START_SECONDS = 600
MID_COMES = START + timedelta(seconds=COLD_START_SECONDS + 100)
END = START + timedelta(hours=1)
SERVICES = ("metrics-ingest", "batch-resource-calculator", "quota-tree", "scheduler", "descheduler-arbiter")
MACHINE = NodeSize(12_000, 32 << 30)
MID_MILLI = 5000
EVICTION = {
    "enable": True,
    "cpuAllocatableEvictThresholdPercent": 100,
    "cpuAllocatableEvictLowerPercent": 95,
    "allocatableEvictPriorityThreshold": 7999,
}


@dataclass(frozen=True)
class Course:
    """What the services use: the first, with two thirds of the machine, and a second one with the rest. What mid requests."""

    web: str
    second: str = ""
    second_comes: datetime = MID_COMES + timedelta(minutes=3)
    mid_milli: int = MID_MILLI


RISING = Course("cpu=500m..7900m,memory=2Gi,period=2h,from=start")
COURSES = {
    "a second service takes its whole request at once": Course("cpu=500m,memory=2Gi", "cpu=4000m,memory=1Gi"),
    "one rises to all that it requested and the other swings": Course(
        "cpu=500m..8000m,memory=2Gi,period=1h,from=start",
        "cpu=0m..1000m,memory=1Gi,period=90s,from=start",
        START + timedelta(seconds=2),
        4000,
    ),
}


@dataclass
class Story:
    """What was stored in one hour."""

    service_milli: dict[datetime, tuple[int, ...]] = field(default_factory=dict)
    """The service's samples by message, and those of a second service after them."""
    mid_milli: list[tuple[int, ...]] = field(default_factory=list)
    offers: list[tuple[datetime, int]] = field(default_factory=list)
    placed_at: datetime | None = None
    group: str = ""
    written: dict[str, str] = field(default_factory=dict)
    """The last value of each file of the mid pod's group."""
    evicted_at: datetime | None = None
    why: str = ""


def manifest(name: str, tier: str, amounts: dict[str, str], usage: str, **labels: str) -> dict[str, Any]:
    resources = {"requests": amounts, "limits": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"koordinator.sh/qosClass": "LS", **labels},
            "annotations": {"cotenant.io/simulated-usage": usage},
        },
        "spec": {"priorityClassName": tier, "containers": [{"name": "main", "image": "simulated", "resources": resources}]},
    }


def configuration(*, evicting: bool) -> dict[str, Any]:
    data = {"colocation-config": json.dumps({"enable": True, "midCPUThresholdPercent": 100, "midMemoryThresholdPercent": 100})}
    if evicting:
        data["resource-threshold-config"] = json.dumps({"clusterStrategy": EVICTION})
    metadata = {
        "name": "slo-controller-config",
        "namespace": "koordinator-system",
        "labels": {"koordinator.sh/configmap-type": "slo-controller-config"},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def told(*, mid: bool, evicting: bool = True, course: Course = RISING, end: datetime = END) -> Story:
    world, gateway, story = World(seed=1), SimulatedGateway(), Story()

    def watch(event: Event) -> None:
        data, at = event.data, world.now
        if isinstance(data, UsageSample):
            used = {pod.name: pod.series.cpu_milli for pod in data.pods}
            if "web" in used:
                story.service_milli[at] = (*used["web"], *used.get("second", ()))
            if "mid" in used:
                story.mid_milli.append(used["mid"])
        elif isinstance(data, NodeResources):
            story.offers.append((at, data.mid_cpu_milli))
        elif isinstance(data, Placement) and data.name == "mid" and story.placed_at is None:
            story.placed_at, story.group = at, f"pod{data.uid}"
        elif isinstance(data, RunStatus) and data.name == "mid" and data.reason == "Evicted":
            story.evicted_at, story.why = at, data.message
        elif isinstance(data, Execution) and story.group:
            places = [(change.target.rpartition("/"), change.new) for change in data.changes]
            story.written |= {file: new for (group, _, file), new in places if group.rpartition("/")[2] == story.group}

    world.watchers.append(watch)
    world.add(gateway)
    gateway.create(START + timedelta(milliseconds=100), configuration(evicting=evicting))
    for service in SERVICES:
        given = {"prediction_cold_start_seconds": COLD_START_SECONDS} if service == "metrics-ingest" else {}
        world.add(participant(service, gateway, json.dumps(given)))
    world.run_until(START + timedelta(seconds=1))
    world.add(NodeParticipant(simulated_node("n1", MACHINE, seed=1)))
    gateway.create(START + timedelta(seconds=2), manifest("web", "koord-prod", {"cpu": "8", "memory": "8Gi"}, course.web))
    if course.second:
        gateway.create(course.second_comes, manifest("second", "koord-prod", {"cpu": "4", "memory": "4Gi"}, course.second))
    if mid:
        amounts = {"kubernetes.io/mid-cpu": str(course.mid_milli), "kubernetes.io/mid-memory": "2Gi"}
        greedy = {"koordinator.sh/eviction-enabled": "true"}
        # It would use more than it has requested, all the time.
        gateway.create(MID_COMES, manifest("mid", "koord-mid", amounts, "cpu=9000m,memory=1Gi", **greedy))
    with collecting_rarely():
        world.run_until(end)
    assert not gateway.refused
    return story


def test_a_mid_pod_takes_what_prediction_found_and_is_evicted_before_the_service_suffers() -> None:
    story, alone = told(mid=True), told(mid=False)
    assert story.placed_at is not None
    offer = next(amount for at, amount in reversed(story.offers) if at <= story.placed_at)
    assert MID_MILLI <= offer < 8000
    assert story.written["cpu.cfs_quota_us"] == "500000"
    assert story.written["cpu.shares"] == str(MID_MILLI * 1024 // 1000)
    assert story.written["memory.limit_in_bytes"] == str(2 << 30)
    assert story.evicted_at is not None
    assert f"CPUAllocatableEvict: {MID_MILLI}m of mid-cpu requested" in story.why
    assert story.service_milli == alone.service_milli


@pytest.mark.parametrize("name", COURSES)
@pytest.mark.parametrize("evicting", [True, False])
def test_services_never_get_less_than_they_request_because_of_mid(name: str, evicting: bool) -> None:
    end = MID_COMES + timedelta(minutes=19)
    story = told(mid=True, evicting=evicting, course=COURSES[name], end=end)
    alone = told(mid=False, evicting=evicting, course=COURSES[name], end=end)
    assert max(map(max, story.mid_milli)) > 0
    both = story.service_milli.keys() & alone.service_milli.keys()
    assert max(both) > end - timedelta(minutes=1)
    assert {at: story.service_milli[at] for at in both} == {at: alone.service_milli[at] for at in both}


def test_a_mid_pod_that_is_not_evicted_is_throttled_instead_of_the_service() -> None:
    story, alone = told(mid=True, evicting=False), told(mid=False, evicting=False)
    assert story.evicted_at is None
    # First what its quota allows, at last what the service leaves: the machine is full.
    assert max(map(max, story.mid_milli)) == MID_MILLI
    assert min(story.mid_milli[-1]) < MID_MILLI - 1000
    both = story.service_milli.keys() & alone.service_milli.keys()
    assert max(both) > END - timedelta(minutes=1)
    assert {at: story.service_milli[at] for at in both} == {at: alone.service_milli[at] for at in both}
