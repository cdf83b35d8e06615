"""Numbers that no user means: the executor decides with them, and runs its other pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.api.objects.pod import Pod
from cotenant.model.bounds import MAX_SECONDS
from cotenant_node_executor.runtime.interface import Start, Stop
from tests.unit.node_executor.builders_node_executor import START, Bench, batch, pod

HUGE = (10**12, 9 * 10**18)

PODS: dict[str, dict[str, Any]] = {
    **{f"deadline, grace {huge}": {"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": huge} for huge in HUGE},
    **{f"deadline {huge}": {"activeDeadlineSeconds": huge} for huge in (*HUGE, -1, -(10**12))},
    "deadline, negative grace": {"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": -(10**12)},
    **{
        f"cpu and memory {text}": {"requests": {"cpu": text, "memory": text}, "limits": {"cpu": text, "memory": text}}
        for text in ("9e18", "1e99", "9223372036854775807")
    },
    "overhead": {"overhead": {"cpu": "9e18", "memory": "1e99"}},
}


def absurd_pod(fields: dict[str, Any]) -> Pod:
    return pod("absurd", "LS", **fields)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_with_absurd_numbers_leaves_the_others_running(name: str) -> None:
    bench = Bench().load()
    bench.slo()
    absurd = absurd_pod(PODS[name])
    bench.place(absurd)
    bench.saw(absurd, started_at=START, pid=5)
    for _ in range(3):
        bench.look(10)
        bench.core.plan(bench.now)
        bench.report()
    bench.place(batch("plain"))
    bench.look(1)
    assert [order.pod.pod.metadata.name for order in bench.core.plan(bench.now).orders if isinstance(order, Start)] == ["plain"]
    bench.report()


def test_the_grace_of_a_pod_past_its_deadline_is_saturated() -> None:
    bench = Bench().load()
    job = batch("job", activeDeadlineSeconds=1, terminationGracePeriodSeconds=10**12)
    bench.place(job)
    bench.saw(job, started_at=START, pid=5)
    bench.look()
    bench.report()
    bench.look(10)
    assert [order.grace_seconds for order in bench.core.plan(bench.now).orders if isinstance(order, Stop)] == [MAX_SECONDS]


SECTIONS = {"resourceUsedThresholdWithBE": "cpuEvictTimeWindowSeconds", "cpuBurstStrategy": "cpuBurstPercent"}


@pytest.mark.parametrize("value", ["1.5", '"60"', "[]", "{}", "true", "1e300", "4294967296"])
@pytest.mark.parametrize("section", SECTIONS)
def test_an_absurd_value_is_reported_with_its_field_and_counts_as_absent(section: str, value: str) -> None:
    field = SECTIONS[section]
    bench = Bench().load()
    bench.slo(enable=True, spec=msgspec.Raw(f'{{"{section}": {{"enable": true, "{field}": {value}}}}}'.encode()))
    bench.place(batch("plain"))
    problems = bench.look(1).core.plan(bench.now).problems
    own = [text for each in problems for text in each.texts]
    assert len(own) == 1
    assert own[0].startswith(f"{section}.{field}: Expected ")
    assert own[0].endswith(": it counts as absent")
    assert bench.look(1).core.plan(bench.now).problems == (), "reported once"


def test_a_policy_of_cpu_burst_that_is_none_is_reported() -> None:
    bench = Bench().load()
    bench.slo(enable=True, spec=msgspec.Raw(b'{"cpuBurstStrategy": {"policy": "always"}}'))
    bench.place(batch("plain"))
    problems = [each.texts for each in bench.look(1).core.plan(bench.now).problems if each.strategy == "cpu-burst"]
    assert problems == [(
        "cpuBurstStrategy: policy 'always' is unknown, "
        "expected one of none, auto, cpuBurstOnly, cfsQuotaBurstOnly: none is used",
    )]
