"""A node as the scheduler counts it: the fields of Koordinator's debug API."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from cotenant.events.node.metrics import NodeMetricComputed, PodMetric, Usage
from cotenant.events.requests import DebugAnswer, SchedulerQuestion
from cotenant.model.subjects import metrics_subject
from cotenant_scheduler.debugging import answer
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import Story, node, pod


def ask(story: Story, about: str, name: str) -> dict[str, Any]:
    question = msgspec.json.encode(SchedulerQuestion(about=about, name=name))
    (body,) = [found for found in answer(story.core, story.now, question) if found is not None]
    found: dict[str, Any] = json.loads(msgspec.json.decode(body, type=DebugAnswer).text)
    return found


def names(pods: list[dict[str, Any]]) -> list[str]:
    return [each["Pod"]["metadata"]["name"] for each in pods]


def test_a_node_says_what_it_offers_what_is_requested_and_what_is_left() -> None:
    story = Story()
    taint = {"key": "team", "value": "a", "effect": "PreferNoSchedule"}
    story.node(node("n1", cpu="8", memory="16Gi", labels={"zone": "z1"}, taints=[taint]))
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "none"}}, "topologyKey": "zone"}
    ]}}
    story.pods(pod("web", cpu="2", memory="1Gi", affinity=apart), pod("job", cpu="500m", memory="512Mi", nodeName="n1"))
    story.settle()
    shown = ask(story, "node", "n1")
    assert shown["node"]["metadata"] == {"name": "n1", "labels": {"zone": "z1"}}
    assert shown["node"]["spec"]["taints"][0]["key"] == "team"
    assert names(shown["pods"]) == ["job", "web"]
    assert shown["pods"][1]["Pod"]["metadata"] == {"namespace": "default", "name": "web", "uid": "uid-web"}
    assert names(shown["podsWithAffinity"]) == names(shown["podsWithRequiredAntiAffinity"]) == ["web"]
    assert (shown["allocatable"]["MilliCPU"], shown["allocatable"]["Memory"]) == (8000, 16 << 30)
    assert (shown["requested"]["MilliCPU"], shown["requested"]["Memory"]) == (2500, 1536 << 20)
    assert (shown["remaining"]["MilliCPU"], shown["remaining"]["Memory"]) == (5500, (16 << 30) - (1536 << 20))
    assert shown["remaining"]["AllowedPodNumber"] == shown["allocatable"]["AllowedPodNumber"] - 2
    assert not {"usedPorts", "imageStates", "pvcRefCounts"} & set(shown)


def test_a_node_names_ports_images_and_claims_in_use() -> None:
    story = Story()
    story.nodes(
        node("n1", images={"web:1": 30}),
        node("n2", images={"web:1": 30}),
    )
    ports = [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]
    document = pod("web", nodeName="n1")
    document["spec"]["containers"][0]["ports"] = ports
    document["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "own"}}]
    story.pod(document)
    story.settle()
    shown = ask(story, "node", "n1")
    assert shown["usedPorts"] == {"0.0.0.0": [{"Protocol": "TCP", "Port": 8080}]}
    (state,) = shown["imageStates"].values()
    assert state == {"Size": 30 << 20, "NumNodes": 2}
    assert shown["pvcRefCounts"] == {"default/own": 1}


def test_a_reservation_on_a_node_is_a_pod_of_its_own_name() -> None:
    story = ReservedStory()
    story.node(node("n1", cpu="8"))
    story.reservation(reservation("r", cpu="3"))
    story.settle()
    shown = ask(story, "node", "n1")
    assert shown["pods"] == [{"Pod": {"metadata": {"name": "r", "uid": "uid-r"}}}]
    assert shown["requested"]["MilliCPU"] == 3000
    assert "pods" not in ask(story, "load", "n1"), "its room is not assigned to a pod"


def test_the_load_of_a_node_is_what_its_pods_use_beyond_what_is_measured() -> None:
    story = Story()
    story.node(node("n1", cpu="8"))
    prod = {"koordinator.sh/priority-class": "koord-prod"}
    story.pods(pod("old", cpu="2", memory="1Gi", labels=prod), pod("new", cpu="1", memory="1Gi", labels=prod))
    story.settle()
    before = ask(story, "load", "n1")
    assert [each["pod"]["metadata"]["name"] for each in before["pods"]] == ["new", "old"]
    assert before["pods"][0]["timestamp"].startswith("2026-01-01T12:")
    assert before["nodeDeltaPods"] == before["nodeEstimatedPods"] == ["default/new", "default/old"]
    # The estimate is 85 % of requested cpu and 70 % of requested memory.
    assert before["nodeEstimated"]["cpu"] == before["nodeDelta"]["cpu"] == "2550m"
    assert before["prodUsage"] == {"cpu": "0", "memory": "0"}
    story.later(120)
    usage = Usage(cpu_milli=900, memory_bytes=1 << 30)
    measured = NodeMetricComputed(
        node="n1",
        update_time=story.now,
        node_usage=usage,
        pods=(PodMetric(namespace="default", name="old", usage=usage, priority="koord-prod"),),
    )
    story.say(metrics_subject("n1"), measured)
    after = ask(story, "load", "n1")
    assert after["prodUsage"]["cpu"] == "900m"
    assert after["nodeDeltaPods"] == ["default/new"]
    assert (after["nodeDelta"]["cpu"], after["nodeEstimated"]["cpu"]) == ("850m", "2550m")


def test_the_load_of_a_node_that_nobody_knows_is_empty() -> None:
    assert ask(Story(), "load", "nobody") == {}
