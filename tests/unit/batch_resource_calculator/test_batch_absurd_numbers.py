"""Numbers that no user means: the calculator folds and decides with them, its events stay within the bounds."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from cotenant.events.envelope import decode_event, encode_event
from cotenant.events.node.metrics import Usage
from cotenant.model.bounds import MAX_AMOUNT
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import ENABLED, Bench, used

HUGE = ("9e18", "9223372036854775807", "1e99", "-9e18")
NODE = "node.koordinator.sh/"

SETTINGS = (
    "cpuReclaimThresholdPercent",
    "memoryReclaimThresholdPercent",
    "degradeTimeMinutes",
    "updateTimeThresholdSeconds",
    "resourceDiffThreshold",
    "metricReportIntervalSeconds",
    "batchCPUThresholdPercent",
    "midCPUThresholdPercent",
    "midMemoryThresholdPercent",
    "midUnallocatedPercent",
    "midStaticCPUReservedPercent",
)
LARGEST = Usage(cpu_milli=MAX_AMOUNT, memory_bytes=MAX_AMOUNT)


def reservation(text: str) -> dict[str, str]:
    return {f"{NODE}reservation": json.dumps({"resources": {"cpu": text, "memory": text}})}


def third_party(text: str) -> dict[str, str]:
    resources = {"kubernetes.io/batch-cpu": text, "kubernetes.io/batch-memory": text}
    allocation = {"name": "hadoop-yarn", "priority": "koord-batch", "resources": resources}
    return {f"{NODE}thirdPartyAllocations": json.dumps({"allocations": [allocation]})}


FACTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"ratio {text}": ("node", {"annotations": {f"{NODE}cpu-normalization-ratio": text}})
        for text in ("1e308", "1e309", "nan", "-1e308", "inf", "1e18")
    },
    **{f"node {text}": ("node", {"cpu": text, "memory": text}) for text in HUGE},
    **{f"pod {text}": ("place", {"pod": "huge", "cpu": text, "memory": text}) for text in HUGE},
    **{f"reservation {text}": ("node", {"annotations": reservation(text)}) for text in HUGE},
    **{f"third party {text}": ("node", {"annotations": third_party(text)}) for text in HUGE},
    **{
        f"{field} {value}": ("configure", {"colocation": json.dumps({**json.loads(ENABLED), field: value})})
        for field in SETTINGS
        for value in (10**18, 10**30, -1, -(10**30), 1e308)
    },
    "usage": ("metric", {"system": LARGEST, "pods": {"huge": LARGEST}}),
    "prediction": ("metric", {"prod_reclaimable": LARGEST, "prod_peak": LARGEST}),
    "yarn": ("yarn", {"used": LARGEST}),
}
"""By name, the fact: the builder's method and its arguments."""


@pytest.mark.parametrize("name", FACTS)
def test_absurd_numbers_leave_the_other_nodes_theirs(name: str) -> None:
    bench = Bench()
    bench.configure()
    for node in ("a", "b"):
        bench.node(node)
        bench.metric(node, system=used(10, 10), pods={})
    bench.decide()
    method, arguments = FACTS[name]
    getattr(bench, method)(**arguments)
    bench.place("plain", node="b", cpu="1")
    for _ in range(3):
        for event in bench.decide():
            stamped = msgspec.structs.replace(event, id="test", source="/test")
            decode_event(encode_event(stamped), subject=event.subject, stream="LOG", sequence=1, tombstone=event.tombstone)
    assert bench.resources("b").batch_cpu_milli >= 0
