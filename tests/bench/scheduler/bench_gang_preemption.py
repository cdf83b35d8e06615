"""What it costs to decide who makes room for a gang on a full cluster.

1,000 nodes of eight GPUs are full of pods of one GPU; a gang of 100 pods of four GPUs and a higher priority comes. Printed: the
CPU time of the decision that nominates it; of those that follow while its victims end, of which nothing comes; and of a
decision that places 100 single pods on the same cluster while it is empty, as the yardstick.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, Waiting
from cotenant.model.subjects import pod_subject
from cotenant.runtime.process import GC_THRESHOLDS
from cotenant_scheduler.core import SchedulerCore
from cotenant_verification.bench.core_only import START
from cotenant_verification.bench.workload import (
    NAMESPACE,
    NVIDIA_GPU,
    BenchWorkload,
    node_events,
    pod_document,
    pod_event,
    quota_events,
)

NODES, GPUS, GANG = 1000, 8, 100
LOOKS = 20


class Log:
    """A log with one scheduler on it."""

    def __init__(self) -> None:
        self.core = SchedulerCore()
        self.last = 0
        self.now: datetime = START

    def store(self, events: Iterable[Event]) -> None:
        """Store and fold."""
        for event in events:
            self.last += 1
            self.core.apply(msgspec.structs.replace(event, sequence=self.last, time=self.now))
        self.core.settle()

    def decide(self) -> tuple[list[Event], float]:
        """Decide a moment later; return the decision, which is stored, and what it cost in milliseconds of CPU."""
        self.now += timedelta(milliseconds=10)
        started = time.process_time()
        decided = list(self.core.decide(self.now))
        cost = (time.process_time() - started) * 1e3
        self.store(decided)
        return decided, cost


def large(workload: BenchWorkload, index: int) -> Event:
    """A member of the gang."""
    document = msgspec.json.decode(pod_document(workload, index, START))
    document["spec"]["priority"] = 9900
    name = document["metadata"]["name"] = document["metadata"]["uid"] = f"large-{index}"
    data = ObjectStored(object=msgspec.Raw(msgspec.json.encode(document)))
    return msgspec.structs.replace(pod_event(workload, index, START), subject=pod_subject(NAMESPACE, name), data=data)


def main() -> None:
    """Fill the cluster, then let the gang come; the garbage collector as a service's process sets it."""
    gc.set_threshold(*GC_THRESHOLDS)
    node, pod = (
        {"cpu": "64", "memory": "256Gi", "pods": "250", NVIDIA_GPU: str(GPUS)},
        {"cpu": "1", "memory": "1Gi", NVIDIA_GPU: "1"},
    )
    small = BenchWorkload(NODES, NODES * GPUS, (node,), (pod,))
    gang = msgspec.structs.replace(small, pods=GANG, gang=GANG, pod_kinds=({**pod, NVIDIA_GPU: "4"},))
    log = Log()
    log.store([*node_events(small, START), *quota_events(small, START)])
    log.store(pod_event(small, index, START) for index in range(GANG))
    _, single = log.decide()
    log.store(pod_event(small, index, START) for index in range(GANG, small.pods))
    while any(isinstance(event.data, Placement) for event in log.decide()[0]):
        pass
    log.store(large(gang, index) for index in range(GANG))
    decided, cost = log.decide()
    nominated = [e.data for e in decided if isinstance(e.data, Waiting) and e.data.nomination is not None]
    assert len(nominated) == GANG, decided[:1]
    looks = sorted(log.decide()[1] for _ in range(LOOKS))
    print(f"gang_preemption_decision {cost:.1f} ms")
    print(f"gang_preemption_look_while_victims_end {looks[LOOKS // 2]:.1f} ms")
    print(f"gang_preemption_victims {sum(len(data.nomination.victims) for data in nominated if data.nomination)} pods")
    print(f"gang_preemption_placing_as_many_single_pods {single:.1f} ms")


if __name__ == "__main__":
    main()
