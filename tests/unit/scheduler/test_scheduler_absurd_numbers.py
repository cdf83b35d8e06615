"""Numbers that no user means: the scheduler folds and decides with them, and places what else there is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cotenant.events.envelope import Payload
from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.events.placements import Placement
from cotenant.model.bounds import MAX_AMOUNT, MAX_SECONDS
from cotenant.model.subjects import metrics_subject
from tests.unit.scheduler.builders_scheduler import NOW, Story, node, pod

SELECTED = {"matchLabels": {"app": "web"}}
AFFINITY = {"labelSelector": SELECTED, "topologyKey": "zone"}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
EXPRESSION = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
HUGE = (9 * 10**18, 10**30)
TEXTS = ("9e18", "9223372036854775807", "1e99")


def spread(**fields: Any) -> dict[str, Any]:
    return {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTED, **fields}


def preferred(weight: int) -> list[dict[str, Any]]:
    return [
        {"nodeAffinity": {PREFERRED: [{"weight": weight, "preference": EXPRESSION}]}},
        {"podAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": AFFINITY}]}},
        {"podAntiAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": AFFINITY}]}},
    ]


PODS: dict[str, dict[str, Any]] = {
    **{f"cpu {text}": {"cpu": text} for text in TEXTS},
    **{f"memory {text}": {"memory": text} for text in TEXTS},
    **{f"overhead {text}": {"overhead": {"cpu": text, "memory": text}} for text in TEXTS},
    **{f"unknown resource {text}": {"requests": {"example.com/card": text}} for text in TEXTS},
    **{f"maxSkew {huge}": {"topologySpreadConstraints": [spread(maxSkew=huge)]} for huge in (10**15, *HUGE)},
    **{f"minDomains {huge}": {"topologySpreadConstraints": [spread(maxSkew=1, minDomains=huge)]} for huge in HUGE},
    **{
        f"soft maxSkew {huge}": {"topologySpreadConstraints": [spread(maxSkew=huge, whenUnsatisfiable="ScheduleAnyway")]}
        for huge in (2**31 - 1, *HUGE)
    },
    **{
        f"weight {huge} of {next(iter(affinity))}": {"affinity": affinity}
        for huge in (2**31 - 1, -(2**31), *HUGE)
        for affinity in preferred(huge)
    },
    **{f"priority {huge}": {"priority": huge} for huge in (*HUGE, -(10**30))},
    **{f"grace {huge}": {"terminationGracePeriodSeconds": huge} for huge in (*HUGE, -1)},
    **{f"toleration {huge}": {"tolerations": [{"operator": "Exists", "tolerationSeconds": huge}]} for huge in HUGE},
    **{
        f"estimate {text}": {
            "annotations": {
                "scheduling.koordinator.sh/load-estimated-scaling-factors": json.dumps({"cpu": 10**30}),
                "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled": text,
            }
        }
        for text in ("1" * 30, "1e99")
    },
}

NODES: dict[str, dict[str, Any]] = {
    **{f"cpu {text}": {"cpu": text, "memory": text, "pods": text} for text in TEXTS},
    **{f"image {huge}": {"images": {"web:1": huge}} for huge in HUGE},
    **{
        f"{annotation} {value}"[:60]: {"annotations": {annotation: value}}
        for annotation, value in (
            ("scheduling.koordinator.sh/usage-thresholds", json.dumps({"usageThresholds": {"cpu": 10**30}})),
            ("scheduling.koordinator.sh/usage-thresholds", json.dumps({"prodUsageThresholds": {"cpu": 2**31 - 1}})),
            (
                "scheduling.koordinator.sh/usage-thresholds",
                json.dumps(
                    {
                        "aggregatedUsage": {
                            "usageThresholds": {"cpu": 2**31 - 1},
                            "usageAggregationType": "p95",
                            "usageAggregatedDuration": "9" * 400 + "h",
                        }
                    }
                ),
            ),
            ("node.koordinator.sh/raw-allocatable", json.dumps({"cpu": "9e18", "memory": 10**30})),
            ("node.koordinator.sh/reservation", json.dumps({"resources": {"cpu": "9e18", "memory": "1e99"}})),
            ("node.koordinator.sh/reservation", json.dumps({"resources": {"cpu": "-9e18", "memory": "-1e99"}})),
        )
    },
}


def places_others(story: Story) -> None:
    """A pod and a node like any other are a match."""
    story.node(node("plain", cpu="64"))
    story.pod(pod("plain", node_name="", nodeSelector={"kubernetes.io/hostname": "plain"}))
    story.pod(pod("other", requests={"cpu": "1"}))
    story.settle()
    assert story.placement("other") is not None


@pytest.mark.parametrize("name", PODS)
def test_a_pod_with_absurd_numbers_leaves_the_others_theirs(name: str) -> None:
    story = Story()
    story.node(node("first", labels={"zone": "a"}))
    story.pod(pod("absurd", image="web:1", labels={"app": "web"}, **PODS[name]))
    story.settle()
    places_others(story)
    story.reloaded().decide(NOW)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_with_absurd_numbers_that_has_its_node_ends(name: str) -> None:
    story = Story()
    story.node(node("first", labels={"zone": "a"}))
    for copy in ("absurd", "again"):
        story.pod(pod(copy, labels={"app": "web"}, nodeName="first", **PODS[name]))
    story.settle()
    places_others(story)
    story.pod(pod("absurd", labels={"app": "web"}, nodeName="first", deleting=True, **PODS[name]))
    story.settle()
    story.pod_deleted("absurd")
    story.settle()
    story.reloaded().decide(NOW)


@pytest.mark.parametrize("name", NODES)
def test_a_node_with_absurd_numbers_leaves_the_others_theirs(name: str) -> None:
    story = Story()
    story.node(node("absurd", **NODES[name]))
    story.metric("absurd", 1000, 1 << 30)
    story.pod(pod("first", image="web:1"))
    story.settle()
    places_others(story)
    story.reloaded().decide(NOW)


def test_many_of_the_largest_requests_on_one_node_are_a_sum() -> None:
    story = Story()
    story.node(node("first"))
    for number in range(200):
        story.pod(pod(f"huge-{number}", memory="5e18", nodeName="first"))
    story.settle()
    story.pod(pod("last"))
    story.settle()
    assert story.placement("last") is None
    assert story.placement("huge-1") is not None


def test_requests_and_graces_are_saturated() -> None:
    story = Story()
    story.node(node("first"))
    story.pod(pod("huge", cpu="9e18", nodeName="first", terminationGracePeriodSeconds=10**18))
    story.settle()
    placement = story.placement("huge")
    assert isinstance(placement, Placement)
    assert placement.requests["cpu"] == MAX_AMOUNT
    assert placement.grace_period_seconds == MAX_SECONDS


def test_the_largest_usage_is_a_load() -> None:
    story = Story()
    story.node(node("first"))
    used = Usage(cpu_milli=MAX_AMOUNT, memory_bytes=MAX_AMOUNT)
    data: Payload = NodeMetricComputed(node="first", update_time=story.now, node_usage=used, system_usage=used)
    story.say(metrics_subject("first"), data)
    story.pod(pod("one"))
    story.settle()
    places_others(story)
