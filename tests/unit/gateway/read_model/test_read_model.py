"""The read model: objects are folds, versions are sequences, watches see every change once."""

from __future__ import annotations

import itertools
import json
import random
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from cotenant.api.snapshots import Snapshot
from cotenant.events.configurations import ConfigurationRejected, RejectedSection
from cotenant.events.envelope import Event
from cotenant.events.migrations import Migration
from cotenant.events.node.conditions import NodeCondition, ObservedTaint, ZoneDisruption
from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import EvictionBegun, ExecutorStatus, RunPhase, RunStatus
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.events.placements import Nomination, Placement, PlacementPhase, Waiting
from cotenant.kinds.events import EVENTS
from cotenant.kinds.namespaces import NAMESPACES
from cotenant.kinds.node_columns import LAYOUT
from cotenant.kinds.nodes import DEFINITION, NODES
from cotenant.kinds.pods import PODS, live_placement
from cotenant.model.subjects import (
    condition_subject,
    config_map_subject,
    executor_subject,
    metrics_subject,
    migration_subject,
    object_subject,
    placement_subject,
    pod_subject,
    resources_subject,
    run_subject,
    waiting_subject,
)
from cotenant_gateway.http.watching import seen_change
from cotenant_gateway.planning.budgets import budget_updates
from cotenant_gateway.planning.endings import deletion, endings, registrations
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.read_model.narration import MAX_DEFERRED
from cotenant_gateway.read_model.ring import ChangeRing, TooOld
from tests.unit.gateway.builders_gateway import World, kind, manifest, raw


def test_a_pod_is_its_document_with_placement_and_run() -> None:
    world = World()
    world.create("pods", manifest())
    shown: Any = world.show("pods", "web")
    assert shown["status"]["phase"] == "Pending"
    assert "nodeName" not in shown["spec"]
    world.place("web")
    world.run("web")
    shown = world.show("pods", "web")
    assert shown["spec"]["nodeName"] == "n1"
    assert shown["status"]["phase"] == "Running"
    assert shown["status"]["containerStatuses"][0]["ready"] is True
    assert shown["metadata"]["resourceVersion"] == str(world.sequence)


def test_a_deleted_pod_that_finalizers_keep_shows_how_it_was_stopped() -> None:
    world = World()
    document = manifest()
    document["metadata"]["finalizers"] = ["example.com/wait"]
    world.create("pods", document)
    world.place("web")
    world.run("web")
    snapshot = world.core.get(PODS, "default", "web")
    assert snapshot is not None
    world.store(deletion(snapshot, world.now, None))
    before = world.sequence
    world.run("web", RunPhase.STOPPED, exit_code=143)
    world.place("web", phase=PlacementPhase.GONE)
    shown: Any = world.show("pods", "web")
    assert shown["status"]["phase"] == "Failed"
    assert shown["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    ring = world.core.ring
    changes = [change for change in ring.read(ring.position_after(before), 100) if change.kind is PODS]
    assert [change.version for change in changes] == [before + 1, before + 2]


def test_a_pod_that_was_stopped_to_be_placed_elsewhere_is_pending() -> None:
    world = World()
    world.create("pods", manifest())
    world.place("web")
    world.run("web")
    world.run("web", RunPhase.STOPPED, exit_code=143)
    world.place("web", phase=PlacementPhase.GONE)
    assert world.show("pods", "web")["status"]["phase"] == "Pending"


def test_a_stop_is_narrated_once() -> None:
    world = World()
    world.create("pods", manifest())
    world.place("web")
    world.run("web", RunPhase.STOPPED, as_tombstone=False)
    world.run("web", RunPhase.STOPPED)
    (event,) = [each for each in narrated(world) if each["reason"] == "Killed"]
    assert (event["count"], event["message"]) == (1, "Stopped on n1")


def test_a_waiting_pod_says_why() -> None:
    world = World()
    world.create("pods", manifest())
    waiting = Waiting(namespace="default", name="web", uid=world.uid_of("web"), message="0/2 nodes are available")
    world.put(waiting_subject("default", "web"), waiting)
    shown: Any = world.show("pods", "web")
    condition = shown["status"]["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == "0/2 nodes are available"


def test_a_waiting_pod_shows_the_node_that_others_make_room_on() -> None:
    world = World()
    world.create("pods", manifest())
    nomination = Nomination(node="n1", at=world.now)
    waiting = Waiting(namespace="default", name="web", uid=world.uid_of("web"), message="full", nomination=nomination)
    world.put(waiting_subject("default", "web"), waiting)
    assert world.show("pods", "web")["status"]["nominatedNodeName"] == "n1"
    world.place("web")
    assert "nominatedNodeName" not in world.show("pods", "web")["status"]


def test_parts_of_another_uid_are_ignored() -> None:
    world = World()
    world.create("pods", manifest())
    before = world.show("pods", "web")
    world.place("web", uid="another")
    assert world.show("pods", "web") == before


def test_a_node_shows_executor_resources_and_condition() -> None:
    world = World()
    status = ExecutorStatus(
        node="n1",
        capacity={"cpu": 4000, "memory": 8 << 30},
        labels={"zone": "a"},
        taints=(("cotenant.io/runtime", "process", "NoSchedule"),),
    )
    world.put(executor_subject("n1"), status)
    (plan,) = registrations(world.core)
    world.store(plan)
    world.put(resources_subject("n1"), NodeResources(node="n1", batch_cpu_milli=1500, batch_memory_bytes=1 << 30))
    world.put(
        condition_subject("n1"),
        NodeCondition(
            node="n1", status="Unknown", reason="Silent", taints=(("node.kubernetes.io/unreachable", "", "NoExecute"),)
        ),
    )
    shown: Any = world.show("nodes", "n1")
    assert shown["metadata"]["labels"]["zone"] == "a"
    assert shown["status"]["capacity"] == {
        "cpu": "4",
        "memory": "8Gi",
        "kubernetes.io/batch-cpu": "1500",
        "kubernetes.io/batch-memory": "1Gi",
        "kubernetes.io/mid-cpu": "0",
        "kubernetes.io/mid-memory": "0",
    }
    assert [taint["key"] for taint in shown["spec"]["taints"]] == ["cotenant.io/runtime", "node.kubernetes.io/unreachable"]
    assert shown["status"]["conditions"][0]["status"] == "Unknown"


def test_a_node_whose_resources_are_withdrawn_shows_none_and_one_that_offers_nothing_shows_zeros() -> None:
    world = World()
    world.put(executor_subject("n1"), ExecutorStatus(node="n1", capacity={"cpu": 4000}, allocatable={"cpu": 4000}))
    (plan,) = registrations(world.core)
    world.store(plan)

    def cells() -> tuple[object, ...]:
        snapshot = world.core.get(NODES, "", "n1")
        assert snapshot is not None
        return tuple(LAYOUT.cells(snapshot, world.now))[9:13]

    world.put(resources_subject("n1"), NodeResources(node="n1"))
    assert cells() == ("0", "0", "0", "0")
    world.put(resources_subject("n1"), NodeResources(node="n1", withdrawn=True))
    assert cells() == ("<none>",) * 4


def narrated(world: World) -> list[Any]:
    """The Event objects, in their order."""
    return [json.loads(snapshot.document) for snapshot in world.core.objects(EVENTS)]


def test_a_node_whose_memory_is_short_says_so() -> None:
    world = World()
    taints = (("node.kubernetes.io/memory-pressure", "", "NoSchedule"),)
    world.put(executor_subject("n1"), ExecutorStatus(node="n1", memory_pressure="node memory 66% used", taints=taints))
    for plan in registrations(world.core):
        world.store(plan)
    shown: Any = world.show("nodes", "n1")
    (found,) = [each for each in shown["status"]["conditions"] if each["type"] == "MemoryPressure"]
    assert (found["status"], found["message"]) == ("True", "node memory 66% used")
    assert [taint["key"] for taint in shown["spec"]["taints"]] == ["node.kubernetes.io/memory-pressure"]


def test_a_lost_node_of_a_disrupted_zone_says_so() -> None:
    world = World()
    world.put(executor_subject("n1"), ExecutorStatus(node="n1"))
    for plan in registrations(world.core):
        world.store(plan)
    since = datetime(2026, 1, 1, tzinfo=UTC)
    disruption = ZoneDisruption(state="PartialDisruption", lost=30, nodes=31, since=since)
    said = NodeCondition(node="n1", status="Unknown", since=since, reason="Silent", message="silent", disruption=disruption)
    world.put(condition_subject("n1"), said)
    shown: Any = world.show("nodes", "n1")
    assert shown["status"]["conditions"][1] == {
        "type": "ZoneDisrupted",
        "status": "True",
        "reason": "PartialDisruption",
        "message": "30 of the 31 nodes of its zone are not ready: no further node loses its pods",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    snapshot = world.core.get(NODES, "", "n1")
    assert snapshot is not None
    assert DEFINITION.layout is not None
    assert DEFINITION.layout.cells(snapshot, since)[1] == "NotReady,ZoneDisrupted"
    (event,) = [each for each in narrated(world) if each["involvedObject"]["kind"] == "Node"]
    assert event["message"] == "silent; 30 of the 31 nodes of its zone are not ready: no further node loses its pods"


def test_a_ready_node_with_a_taint_that_evicts_says_so() -> None:
    world = World()
    taint = ObservedTaint(key="maintenance", since=datetime(2026, 1, 1, tzinfo=UTC))
    world.put(condition_subject("n1"), NodeCondition(node="n1", no_execute=(taint,)))
    (event,) = narrated(world)
    assert (event["reason"], event["message"]) == ("NodeTainted", "pods that do not tolerate maintenance are evicted")


def test_an_eviction_by_the_node_is_a_warning_of_its_pod_from_its_beginning() -> None:
    world = World()
    begun = EvictionBegun(strategy="memory-evict", at=world.now, why="node memory 71% used", grace_seconds=30)
    run = RunStatus(node="n1", namespace="default", name="job", uid="u", phase=RunPhase.RUNNING, eviction=begun)
    world.put(run_subject("n1", "default", "job"), run)
    (event,) = narrated(world)
    assert (event["type"], event["reason"], event["involvedObject"]["name"]) == ("Warning", "Evicted", "job")
    assert event["message"] == "Evicted by memory-evict of n1, 30 s until SIGKILL: node memory 71% used"
    ended = msgspec.structs.replace(run, phase=RunPhase.FAILED, reason="Evicted", message=begun.why)
    world.put(run_subject("n1", "default", "job"), ended)
    _, last = narrated(world)
    assert (last["reason"], last["message"]) == ("Failed", "Failed on n1: node memory 71% used")


def test_an_eviction_by_taint_that_was_called_off_is_an_event_of_its_pod() -> None:
    world = World()
    job = Migration(job="web-1", namespace="default", pod="web", uid="u", taint="node.kubernetes.io/unreachable")
    world.put(migration_subject("web-1"), job)
    assert narrated(world) == []
    ended = msgspec.structs.replace(job, phase="Aborted", reason="NodeReady", message="node n1 is Ready again")
    world.put(migration_subject("web-1"), ended)
    (event,) = narrated(world)
    assert (event["involvedObject"]["name"], event["reason"]) == ("web", "TaintManagerEviction")
    assert event["message"] == "Cancelling deletion of Pod default/web: node n1 is Ready again"


def with_a_deleted_node() -> World:
    """A log on which the node n1 was registered by its executor's report, and deleted."""
    world = World()
    world.put(executor_subject("n1"), ExecutorStatus(node="n1"))
    for plan in registrations(world.core):
        world.store(plan)
    node = world.core.get(NODES, "", "n1")
    assert node is not None
    world.store(deletion(node, world.now, None))
    return world


def test_a_deleted_node_is_not_registered_again_by_its_old_report() -> None:
    world = with_a_deleted_node()
    assert list(registrations(world.core)) == []
    world.put(executor_subject("n1"), ExecutorStatus(node="n1", boot="2"))
    assert len(list(registrations(world.core))) == 1


def test_a_deleted_node_is_not_registered_by_a_gateway_that_comes_after_its_tombstone() -> None:
    """Seed 7 of 10 min, tombstones of 5 min: a gateway that loaded 5 min after a rename made the old node again, and a pod that
    names it was placed there for good."""
    world = with_a_deleted_node()
    later = World()
    for event in world.standing():
        later.core.apply(event)
    later.core.loaded()
    assert list(registrations(later.core)) == []


def test_a_node_metric_needs_no_document_and_counts_versions() -> None:
    world = World()
    world.put(metrics_subject("n1"), NodeMetricComputed(node="n1", node_usage=Usage(cpu_milli=1500, memory_bytes=1000)))
    shown: Any = world.show("nodemetrics", "n1")
    assert shown["status"]["nodeMetric"]["nodeUsage"]["resources"] == {"cpu": "1500m", "memory": "1k"}
    assert shown["metadata"]["resourceVersion"] == str(world.sequence)


def test_a_node_that_was_never_measured_does_not_look_idle() -> None:
    world = World()
    silent = NodeMetricComputed(node="n1", unknown_since=world.now, durations_seconds=(300,))
    world.put(metrics_subject("n1"), silent)
    shown: Any = world.show("nodemetrics", "n1")
    assert "status" not in shown
    assert shown["spec"]["metricCollectPolicy"]["nodeAggregatePolicy"] == {"durations": ["5m0s"]}
    assert "cotenant.io/unknown-since" in shown["metadata"]["annotations"]
    usage = Usage(cpu_milli=1500, memory_bytes=1000)
    world.put(metrics_subject("n1"), msgspec.structs.replace(silent, update_time=world.now, node_usage=usage))
    assert world.show("nodemetrics", "n1")["status"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == "1500m"


def test_a_placed_pod_ends_when_its_placement_is_gone() -> None:
    world = World()
    world.create("pods", manifest())
    world.place("web")
    pod = world.core.get(PODS, "default", "web")
    assert pod is not None
    world.store(deletion(pod, world.now, 5))
    assert list(endings(world.core, world.now)) == []
    world.place("web", phase=PlacementPhase.TERMINATING)
    assert list(endings(world.core, world.now)) == []
    world.place("web", phase=PlacementPhase.GONE)
    (plan,) = endings(world.core, world.now)
    world.store(plan)
    assert world.core.get(PODS, "default", "web") is None


def test_a_pod_that_was_never_placed_or_is_forced_ends_at_once() -> None:
    world = World()
    world.create("pods", manifest("a"))
    world.create("pods", manifest("b"))
    world.place("b")
    for name, grace in (("a", None), ("b", 0)):
        pod = world.core.get(PODS, "default", name)
        assert pod is not None
        plan = deletion(pod, world.now, grace)
        assert plan is not None
        assert plan.writes[0].tombstone


def test_a_finalizer_keeps_an_object_until_it_is_removed() -> None:
    world = World()
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": ["example.com/keep"]}}
    world.create("configmaps", document)
    found = world.core.get(kind("configmaps"), "default", "c")
    assert found is not None
    plan = deletion(found, world.now, None)
    assert plan is not None
    assert not plan.writes[0].tombstone
    world.store(plan)
    assert list(endings(world.core, world.now)) == []


def test_a_namespace_ends_after_what_is_in_it() -> None:
    world = World()
    world.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    world.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}, namespace="team")
    namespace = world.core.get(kind("namespaces"), "", "team")
    assert namespace is not None
    world.store(deletion(namespace, world.now, None))
    (first,) = endings(world.core, world.now)
    assert first.writes[0].subject == "objects.core.configmaps.team.c"
    world.store(first)
    (second,) = endings(world.core, world.now)
    assert second.writes[0].subject == "objects.core.namespaces._.team"


def test_what_another_gateway_stored_in_a_namespace_that_has_ended_ends_too() -> None:
    """Found by `cotenant simulate --chaos` (a gap at gateway-b over the end of a namespace): the pods stayed for good."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    pod = ObjectStored(object=raw({**manifest(), "metadata": {"name": "web", "namespace": "team", "uid": "uid-web"}}))
    subject, home = object_subject("", "pods", "team", "web"), object_subject("", "namespaces", "", "team")
    for first, second in (("pod", "end"), ("end", "pod")):
        world = World()
        world.create("namespaces", namespace)
        for happens in (first, second):
            if happens == "pod":
                world.put(subject, pod)
            else:
                world.put(home, ObjectDeleted(uid="uid-team"), tombstone=True)
        (plan,) = endings(world.core, world.now)
        assert (plan.writes[0].subject, plan.writes[0].tombstone) == (subject, True)
        world.store(plan)
        assert list(endings(world.core, world.now)) == []
        world.put(subject, pod)
        world.create("namespaces", namespace)
        assert list(endings(world.core, world.now)) == [], "it is in a namespace that exists"


def test_after_deletion_no_part_raises_modified() -> None:
    world = World()
    world.create("pods", manifest())
    placed = world.place("web")
    uid = world.uid_of("web")
    pod = world.core.get(PODS, "default", "web")
    assert pod is not None
    world.store(deletion(pod, world.now, 0))
    deleted_at = world.core.ring.end
    world.place("web", phase=PlacementPhase.GONE, uid=uid)
    late = [change for change in world.core.ring.read(deleted_at, 10) if change.kind is PODS]
    assert late == []
    assert placed.sequence < world.sequence


def test_an_object_that_leaves_a_selection_is_deleted_in_it_and_one_that_enters_added() -> None:
    world = World()
    start = world.core.ring.end
    world.create("pods", manifest())
    world.place("web")
    changes = [change for change in world.core.ring.read(start, 10) if change.kind is PODS]

    def unplaced(snapshot: object) -> bool:
        return bool(getattr(snapshot, "fields")["spec.nodeName"] == "")  # noqa: B009

    seen = [seen_change(change, PODS, unplaced) for change in changes]
    assert [found[0] for found in seen if found is not None] == ["ADDED", "DELETED"]


def test_the_ring_refuses_versions_below_what_it_holds() -> None:
    world = World()
    world.core.ring = ChangeRing(capacity=3)
    world.core.ring.restart(world.sequence)
    for number in range(6):
        world.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}})
    with pytest.raises(TooOld):
        world.core.ring.position_after(world.sequence - 4)
    assert len(world.core.ring.read(world.core.ring.position_after(world.sequence - 3), 10)) == 3
    with pytest.raises(TooOld):
        world.core.ring.read(0, 1)


@pytest.mark.parametrize(("age", "replaces"), [(4, False), (5, True)])
def test_the_mark_of_a_deletion_replaces_a_document_that_is_old_enough(age: float, replaces: bool) -> None:
    world = World()
    world.create("pods", manifest())
    world.place("web")
    world.pass_seconds(age)
    pod = world.core.get(PODS, "default", "web")
    assert pod is not None
    plan = deletion(pod, world.now, None)
    assert plan is not None
    assert [write.replaces for write in plan.writes] == [replaces]


def test_watches_end_where_a_tombstone_removed_a_version_that_was_never_seen() -> None:
    """A gateway that lags may find an object ended before it has read the last version of it."""
    core = GatewayCore()
    core.loaded()
    subject = object_subject("", "configmaps", "default", "c")
    first = Event(subject=subject, data=ObjectStored(object=raw(manifest("c"))), sequence=4)
    core.apply(first)
    seen = core.ring.end
    seen_all = Event(subject=subject, data=ObjectDeleted(), sequence=5, tombstone=True, follows=4)
    core.apply(seen_all)
    assert len(core.ring.read(seen, 10)) == 1
    core.apply(msgspec.structs.replace(first, sequence=6))
    position = core.ring.end
    core.apply(msgspec.structs.replace(seen_all, sequence=9, follows=8))
    with pytest.raises(TooOld):
        core.ring.read(position, 10)
    with pytest.raises(TooOld):
        core.ring.position_after(8)
    assert core.ring.read(core.ring.position_after(9), 10) == []


@pytest.mark.parametrize("document", [b"3", b'"text"', b'{"metadata":{"labels":7}}', b'{"spec":{"containers":{}}}'])
def test_a_document_that_is_no_object_counts_as_none_and_stops_nothing(document: bytes) -> None:
    world = World()
    world.put("objects.core.pods.default.odd", ObjectStored(object=msgspec.Raw(document)))
    assert world.core.get(PODS, "default", "odd") is None
    (finding,) = world.core.unreadable.take()
    assert finding.event.subject == "objects.core.pods.default.odd"
    assert finding.reason.startswith("not a valid Pod: Expected `")
    assert world.core.unreadable.take() == []
    world.put("objects.policy.poddisruptionbudgets.default.b", ObjectStored(object=msgspec.Raw(b'{"spec":{"selector":3}}')))
    assert list(budget_updates(world.core, world.now)) == []
    world.create("pods", manifest("odd"))
    assert world.core.get(PODS, "default", "odd") is not None


def lifecycle() -> World:
    """A world in which most kinds of facts happen."""
    world = World()
    world.create("pods", manifest("a"))
    world.create("pods", manifest("b"))
    waiting = Waiting(namespace="default", name="a", uid=world.uid_of("a"), message="full")
    world.put(waiting_subject("default", "a"), waiting)
    world.place("a")
    world.put(waiting_subject("default", "a"), waiting, tombstone=True)
    world.run("a")
    world.put(executor_subject("n1"), ExecutorStatus(node="n1"))
    for plan in registrations(world.core):
        world.store(plan)
    world.place("b", node="n2")
    world.run("b", RunPhase.FAILED, node="n2", exit_code=3)
    pod = world.core.get(PODS, "default", "b")
    assert pod is not None
    world.store(deletion(pod, world.now, 0))
    return world


def everything(core: GatewayCore) -> list[str]:
    """All objects but the narrated events, which count repetitions."""
    return [
        snapshot.document.decode()
        for collection in core.collections.values()
        if collection.kind.plural != "events"
        for snapshot in core.objects(collection.kind)
    ]


def test_the_last_message_per_subject_gives_the_same_objects_in_any_order() -> None:
    world = lifecycle()
    last = {event.subject: event for event in world.events}
    for seed in range(10):
        shuffled = list(last.values())
        random.Random(seed).shuffle(shuffled)
        core = GatewayCore()
        for event in itertools.chain(shuffled, shuffled[:5]):
            core.apply(event)
        assert everything(core) == everything(world.core)
        assert core.folded == world.core.folded


def test_events_say_the_same_whether_they_are_told_at_once_or_when_somebody_reads() -> None:
    world = lifecycle()
    told = [snapshot.document for snapshot in world.core.objects(EVENTS)]
    late = GatewayCore()
    for event in world.events:
        late.apply(event)
    assert told
    assert [snapshot.document for snapshot in late.objects(EVENTS)] == told
    for event in world.events:
        world.core.apply(event)
    assert [snapshot.document for snapshot in world.core.objects(EVENTS)] == told


def test_each_rejected_section_of_the_node_configuration_is_an_event_of_the_config_map() -> None:
    world = World()
    subject = config_map_subject("koordinator-system", "slo-controller-config")
    burst = RejectedSection(key="cpu-burst-config", reason="SLOCfgUnmarshalFailed", message="cpu-burst-config: not JSON")
    qos = RejectedSection(key="resource-qos-config", reason="SLOCfgUnmarshalFailed", message="resource-qos-config: not JSON")

    def rejected(*sections: RejectedSection) -> ConfigurationRejected:
        return ConfigurationRejected(namespace="koordinator-system", name="slo-controller-config", uid="u1", sections=sections)

    world.put(subject, rejected(burst, qos))
    world.put(subject, rejected(qos))
    world.put(subject, rejected(qos), tombstone=True)
    told = {event["metadata"]["name"]: event for event in narrated(world)}
    assert [(event["message"].split(":")[0], event["count"]) for event in told.values()] == [
        ("cpu-burst-config", 1),
        ("resource-qos-config", 2),
    ]
    event = told["slo-controller-config.u1.slocfgunmarshalfailed.cpu-burst-config"]
    assert event["involvedObject"] == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "namespace": "koordinator-system",
        "name": "slo-controller-config",
        "uid": "u1",
    }
    assert (event["type"], event["reason"]) == ("Warning", "SLOCfgUnmarshalFailed")
    assert event["message"] == "cpu-burst-config: not JSON; the previous value of cpu-burst-config stays in force"
    assert event["source"] == {"component": "batch-resource-calculator"}
    late = GatewayCore()
    for fact in world.events:
        late.apply(fact)
    assert sorted(json.loads(found.document)["metadata"]["name"] for found in late.objects(EVENTS)) == sorted(told)


def test_what_ended_of_a_pod_counts_also_where_a_load_brings_it_before_the_pod() -> None:
    world = World()
    world.create("pods", manifest())
    world.place("web")
    world.place("web", phase=PlacementPhase.GONE)
    last = list({event.subject: event for event in world.events}.values())
    ends = set()
    for order in (last, last[::-1]):
        core = GatewayCore()
        for event in order:
            core.apply(event)
        core.loaded()
        shown = core.get(PODS, "default", "web")
        assert shown is not None
        assert shown.version == world.sequence
        plan = deletion(shown, world.now, 0)
        assert plan is not None
        ends.add(plan.writes[0].causes)
    assert ends == {(f"LOG:{world.sequence - 2}", f"LOG:{world.sequence}")}


def test_facts_before_the_load_is_complete_are_told_before_those_that_follow() -> None:
    world = lifecycle()
    core = GatewayCore()
    half = len(world.events) // 2
    for event in world.events[:half]:
        core.apply(event)
    core.loaded()
    for event in world.events[half:]:
        core.apply(event)
    assert [snapshot.document for snapshot in core.objects(EVENTS)] == [
        snapshot.document for snapshot in world.core.objects(EVENTS)
    ]
    shown = [change.after for change in core.ring.read(core.ring.position_after(core.ring.oldest), 100)]
    assert core.get(PODS, "default", "a") in shown


def test_all_facts_are_counted_however_long_nobody_reads() -> None:
    core = GatewayCore()
    waiting = Waiting(namespace="default", name="a", uid="uid-a", message="full")
    placed = Placement(node="n1", namespace="default", name="b", uid="uid-b")
    core.apply(Event(subject=placement_subject("n1", "default", "b"), data=placed, sequence=1))
    times = 2 * MAX_DEFERRED + 10
    for sequence in range(2, times + 2):
        core.apply(Event(subject=waiting_subject("default", "a"), data=waiting, sequence=sequence))
    told = [json.loads(snapshot.document) for snapshot in core.objects(EVENTS)]
    assert {event["involvedObject"]["name"]: event["count"] for event in told} == {"a": times, "b": 1}


def test_events_are_told_and_counted() -> None:
    world = lifecycle()
    told = [json.loads(snapshot.document) for snapshot in world.core.objects(kind("events"), "default")]
    reasons = {(event["involvedObject"]["name"], event["reason"]) for event in told}
    assert {("a", "FailedScheduling"), ("a", "Scheduled"), ("a", "Started"), ("b", "Failed")} <= reasons
    names = {event["metadata"]["name"] for event in told}
    assert f"a.{world.uid_of('a')}.failedscheduling" in names
    assert len(names) == len(told)


def test_of_many_that_are_ending_only_those_that_changed_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand pods may wait for their executors; a look must not cost a thousand looks."""
    world = World()
    names = [f"p{number}" for number in range(50)]
    for name in names:
        world.create(PODS, manifest(name))
        world.place(name)
        snapshot = world.core.get(PODS, "default", name)
        assert snapshot is not None
        world.store(deletion(snapshot, world.now, None))
    looked: list[str] = []

    def counted(snapshot: Snapshot) -> Event | None:
        looked.append(snapshot.address.name)
        return live_placement(snapshot)

    monkeypatch.setattr("cotenant_gateway.planning.endings.live_placement", counted)
    assert list(endings(world.core, world.now)) == []
    assert sorted(looked) == sorted(names)
    looked.clear()
    assert list(endings(world.core, world.now)) == []
    assert looked == []
    world.place("p7", phase=PlacementPhase.GONE)
    for _ in range(2):
        # A plan that was refused, or that nobody answered, comes again.
        (plan,) = endings(world.core, world.now)
        assert plan.writes[0].subject == pod_subject("default", "p7")
    assert set(looked) == {"p7"}
    world.store(plan)
    assert list(endings(world.core, world.now)) == []


def test_a_full_namespace_ends_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_gateway.planning.endings.MAX_PLANS", 3)
    world = World()
    world.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "full"}})
    for number in range(7):
        world.create(
            "configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}}, namespace="full"
        )
    namespace = world.core.get(NAMESPACES, "", "full")
    assert namespace is not None
    world.store(deletion(namespace, world.now, None))
    ended = 0
    while plans := list(endings(world.core, world.now)):
        assert len(plans) <= 3
        for plan in plans:
            world.store(plan)
        ended += len(plans)
    assert ended == 8
    assert world.core.get(NAMESPACES, "", "full") is None
