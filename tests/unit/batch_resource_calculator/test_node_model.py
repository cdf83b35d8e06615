"""The calculator sees a node as every service does (`cotenant.domain.node`)."""

from __future__ import annotations

from cotenant.events.node.runs import ExecutorStatus
from cotenant.model.subjects import executor_subject
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import Bench

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
