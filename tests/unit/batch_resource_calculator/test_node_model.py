"""The calculator sees a node as every service does (`cotenant.domain.node`)."""

from __future__ import annotations

from cotenant.events.node.runs import ExecutorStatus
from cotenant.model.subjects import executor_subject, node_subject
from tests.builders import node_document
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import GIB, Bench

BY_POOL = """{"enable": true, "nodeConfigs": [
    {"nodeSelector": {"matchLabels": {"pool": "declared"}}, "cpuReclaimThresholdPercent": 50},
    {"nodeSelector": {"matchLabels": {"pool": "reported"}}, "cpuReclaimThresholdPercent": 40}]}"""


def test_a_label_of_the_object_wins_over_the_executors() -> None:
    bench = Bench()
    bench.configure(BY_POOL)
    bench.node("a", labels={"pool": "declared"})
    bench.node("b")
    for name in "ab":
        bench.store(executor_subject(name), ExecutorStatus(node=name, labels={"pool": "reported"}))
        bench.metric(name)
    bench.decide()
    assert bench.resources("a").batch_cpu_milli == 50_000
    assert bench.resources("b").batch_cpu_milli == 40_000


def test_a_node_without_an_allocatable_is_explained_by_its_capacity() -> None:
    bench = Bench()
    bench.configure(resource_amplification_config='{"enable": true, "resourceAmplificationRatio": {"cpu": 1.5}}')
    capacity = {"cpu": "100", "memory": "100Gi"}
    bench.store_object(node_subject("a"), node_document("a", capacity=capacity, allocatable={}))
    bench.metric("a")
    bench.decide()
    terms = {each.name: each for each in bench.resources("a").terms}
    # What the scheduler places on, and what amplification starts from.
    assert terms["allocatable"].cpu_milli == 100_000
    assert terms["amplified"].cpu_milli == 150_000
    assert terms["allocatable"].memory_bytes == 100 * GIB
    assert terms["kubelet-reserved"].cpu_milli == 0
