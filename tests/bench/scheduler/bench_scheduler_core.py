"""How many pods a second the scheduler's core places: fold the pods, decide in batches, fold back what was stored.

No NATS and no JSON of events: what is measured is the core, with the pods' documents decoded as they arrive. Prints a line
each: name, value, unit. `python tests/bench/scheduler/bench_scheduler_core.py [nodes] [pods]`.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from itertools import count

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.events.placements import Placement
from cotenant.model.subjects import metrics_subject, node_subject, pod_subject
from cotenant_scheduler.core import SchedulerCore
from tests.builders import node_document, pod_document, stored

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
SHAPES = 200
"""Different requests in the run of unequal pods."""


def node_event(i: int, sequence: int) -> Event:
    name, labels = f"node-{i:05}", {"zone": f"zone-{i % 3}"}
    document = node_document(name, labels=labels, allocatable={"cpu": "64", "memory": "256Gi", "pods": "250"})
    return Event(subject=node_subject(name), data=stored(document), sequence=sequence, time=START)


def metric_event(i: int, sequence: int) -> Event:
    usage = Usage(cpu_milli=1000 + i % 5000, memory_bytes=(4 + i % 16) << 30)
    data = NodeMetricComputed(node=f"node-{i:05}", update_time=START, node_usage=usage)
    return Event(subject=metrics_subject(f"node-{i:05}"), data=data, sequence=sequence, time=START)


def pod_event(i: int, shapes: int, sequence: int) -> Event:
    resources = {"cpu": f"{100 + i % shapes}m", "memory": "256Mi"}
    document = pod_document(
        f"pod-{i:06}",
        namespace="bench",
        uid=f"00000000-0000-0000-0000-{i:012}",
        created="2026-01-01T11:00:00Z",
        labels={"app": "bench", "koordinator.sh/qosClass": "LS"},
        image="bench",
        requests=resources,
        limits=resources,
        priority=9500,
    )
    return Event(subject=pod_subject("bench", f"pod-{i:06}"), data=stored(document), sequence=sequence, time=START)


def run(nodes: int, pods: int, shapes: int) -> tuple[float, float, float]:
    """Return seconds to fold the pods, to decide, and to fold back what was decided."""
    core = SchedulerCore()
    numbers = count(1)
    for i in range(nodes):
        core.apply(node_event(i, next(numbers)))
        core.apply(metric_event(i, next(numbers)))
    events = [pod_event(i, shapes, next(numbers)) for i in range(pods)]
    started = time.perf_counter()
    for event in events:
        core.apply(event)
    folding = time.perf_counter() - started
    deciding = storing = 0.0
    placed = 0
    now = START
    while True:
        now += timedelta(milliseconds=10)
        started = time.perf_counter()
        batch = core.decide(now)
        deciding += time.perf_counter() - started
        if not batch:
            break
        placed += sum(isinstance(event.data, Placement) for event in batch)
        stored = [msgspec.structs.replace(event, sequence=next(numbers), time=now) for event in batch]
        started = time.perf_counter()
        for event in stored:
            core.apply(event)
        storing += time.perf_counter() - started
    assert placed == pods, f"{placed} of {pods} placed"
    return folding, deciding, storing


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    pods = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
    folding, deciding, storing = run(nodes, pods, 1)
    print(f"scheduler_core_pods_per_second {pods / (folding + deciding + storing):.0f} pods/s")
    print(f"scheduler_core_decide_us_per_pod {deciding / pods * 1e6:.1f} us")
    print(f"scheduler_core_fold_us_per_pod {folding / pods * 1e6:.1f} us")
    print(f"scheduler_core_fold_back_us_per_pod {storing / pods * 1e6:.1f} us")
    folding, deciding, storing = run(nodes, pods, SHAPES)
    print(f"scheduler_core_{SHAPES}_shapes_pods_per_second {pods / (folding + deciding + storing):.0f} pods/s")


if __name__ == "__main__":
    main()
