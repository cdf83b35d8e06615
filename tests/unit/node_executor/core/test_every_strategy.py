"""Every strategy of the registry: what it does is explained, and as a dry run it is reported and nothing of it is done."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.domain.service_latency import LatencyFigures
from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import CpuIdentity, NodeResources, NodeSLORendered
from cotenant.model.subjects import resources_subject, slo_subject
from cotenant_node_executor.core.executions import Executions
from cotenant_node_executor.core.plan import CyclePlan
from cotenant_node_executor.sampling.latency.readings import ServiceReading
from cotenant_node_executor.sampling.snapshot import PodSample, UsageSnapshot
from cotenant_node_executor.sampling.threads import ThreadUsage
from cotenant_node_executor.strategies.memory import page_cache
from cotenant_node_executor.strategies.registry import strategies_of
from cotenant_node_executor.strategies.sections import QOS, THRESHOLD
from cotenant_node_executor.strategies.situation import ResctrlFacts
from cotenant_node_executor.strategies.strategy import RESTORE, Evict, Reclaim, Strategy
from cotenant_node_executor.targets.address import INITIAL_VALUES, Attribute, Place
from cotenant_node_executor.targets.cgroup.files import BY_DEVICE, unset_text
from cotenant_node_executor.targets.disks import Storage
from cotenant_node_executor.targets.interface import (
    BESTEFFORT,
    RECLAIM,
    SLICES,
    THREADS,
    Knob,
    KnobSupport,
    NodeCapabilities,
    WriteReport,
)
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import (
    GIB,
    NODE,
    Bench,
    batch,
    capabilities,
    facts,
    pod,
    slo,
    snapshot,
)
from tests.unit.node_executor.builders_node_executor import usage as group_usage
from tests.unit.node_executor.imitated_resctrl import WHOLE

GATES = frozenset(("BEMemoryEvict", "BECPUEvict", "CPUEvict", "MemoryEvict", "TCNetworkQoS", "TerwayQoS"))
STRATEGIES = strategies_of(GATES)
BURST, SYSTEM = "cpuBurstStrategy", "systemStrategy"
WEB, JOB = "burstable/poduid-web", "besteffort/poduid-job"
SECOND, STEP = 1_000_000_000, 15


class Case(Struct, frozen=True):
    """What has a strategy act: sections of the node SLO, its fields, knobs of the kernel, annotations of the service."""

    sections: Mapping[str, Any] = {}
    fields: Mapping[str, Any] = {}
    knobs: tuple[Knob | str, ...] = ()
    annotations: Mapping[str, str] = {}


IDENTITIES = {
    "ls_identity": CpuIdentity(enable=True, group_identity=2),
    "be_identity": CpuIdentity(enable=True, group_identity=-1),
}
NETWORK = {"networkQOS": {"enable": True}}
BANDWIDTH = {SYSTEM: {"totalNetworkBandwidth": "1G"}}
EVICT = {"enable": True, "memoryEvictThresholdPercent": 70}
CASES = {
    "suppress": Case({THRESHOLD: {"enable": True}}),
    "core-sched": Case(
        {QOS: {"policies": {"cpuPolicy": "coreSched"}, "lsClass": {"cpuQOS": {"enable": True}}}}, knobs=("core_sched",)
    ),
    "group-identity": Case(fields=IDENTITIES, knobs=(Knob.CPU_BVT,)),
    "idle": Case(fields=IDENTITIES),
    "spread": Case(fields=IDENTITIES, knobs=(THREADS, SLICES)),
    "realtime": Case(fields=IDENTITIES, knobs=(THREADS,), annotations={"cotenant.io/cpu-class": "realtime"}),
    "cpuset": Case(),
    "cpu-burst": Case({BURST: {"policy": "auto"}}, knobs=(Knob.CPU_BURST,)),
    "cpu-normalization": Case(fields={"cpu_suppress_policy": "cpuset"}),
    "cpu-evict": Case({THRESHOLD: {
        "enable": True, "cpuEvictThresholdPercent": 50, "evictEnabledPriorityThreshold": 5999, "memoryEvictThresholdPercent": 99
    }}),
    "batch-values": Case(),
    "pod-values": Case(),
    "memory-qos": Case({QOS: {"lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50}}}}, knobs=(Knob.MEMORY_MIN,)),
    "page-cache": Case(
        {QOS: {"beClass": {"memoryQOS": {"enable": True, "pageCacheLimitEnable": 1, "pageCacheLimitSize": 1 << 20}}}},
        knobs=(RECLAIM,),
    ),
    "oom-scores": Case(annotations={"koordinator.sh/oom-score-adj": "321"}),
    "memory-relief": Case({THRESHOLD: EVICT}, knobs=(Knob.MEMORY_HIGH, RECLAIM)),
    "memory-evict": Case({THRESHOLD: EVICT}),
    "blkio": Case(
        {QOS: {"beClass": {"blkioQOS": {"enable": True, "blocks": [
            {"name": "/dev/sda", "type": "device", "ioCfg": {"readBPS": 1048576}}
        ]}}}},
        knobs=(Knob.BLKIO_READ_BPS, Knob.BLKIO_WRITE_BPS, Knob.BLKIO_READ_IOPS, Knob.BLKIO_WRITE_IOPS),
    ),
    "resctrl": Case({QOS: {"beClass": {"resctrlQOS": {"enable": True, "catRangeEndPercent": 30}}}}),
    "system-config": Case({SYSTEM: {"minFreeKbytesFactor": 100}}),
    "tc": Case({**BANDWIDTH, QOS: {"lsClass": NETWORK}}),
    "terway-qos": Case({**BANDWIDTH, QOS: {"policies": {"netQOSPolicy": "terway-qos"}, "lsClass": NETWORK}}),
}  # fmt: skip


def kernel(case: Case) -> NodeCapabilities:
    found = capabilities()
    names = [each.value if isinstance(each, Knob) else each for each in case.knobs]
    return replace(found, knobs={**found.knobs, **dict.fromkeys(names, KnobSupport(True))})


def reading(at: int) -> UsageSnapshot:
    """Nine tenths of the node's memory and most of its CPU are used; the batch pod has 2 GiB of page cache."""
    found = snapshot(7000, {"uid-web": 1500})
    job = replace(group_usage(JOB, 5000), memory_with_page_cache_bytes=3 * GIB)
    web = found.pods["uid-web"]
    return replace(
        found,
        monotonic_ns=at * SECOND,
        node=replace(found.node, memory_bytes=int(0.9 * 16 * GIB)),
        pods={
            "uid-web": replace(web, usage=replace(web.usage, group=WEB, throttled_ratio=0.5)),
            "uid-job": PodSample("uid-job", BESTEFFORT, job),
        },
        tiers={BESTEFFORT: replace(job, group=BESTEFFORT)},
    )


def running(name: str, *dry: str) -> Bench:
    """A node on which the strategy acts; `dry`: the path of the section, or part, that is a dry run."""
    case = CASES[name]
    node = replace(facts(), resctrl=ResctrlFacts(WHOLE, "7ff", "GenuineIntel"), network_device="eth9")
    bench = Bench(strategies=STRATEGIES, of=node, kernel=kernel(case)).load()
    bench.store(slo_subject(NODE), node_slo(case, *dry))
    bench.store(resources_subject(NODE), NodeResources(node=NODE, batch_cpu_milli=4000, cpu_normalization_ratio=1.5))
    for entry in pods(case):
        bench.place(entry)
    for group in (WEB, JOB, "poduid-db"):
        bench.groups.update((group, f"{group}/main"))
    return bench


def node_slo(case: Case, *dry: str) -> NodeSLORendered:
    """The node SLO of a case; `dry`: the path of the section, or part, that is a dry run."""
    sections = copy.deepcopy(dict(case.sections))
    inner = sections
    for name in filter(None, dry):
        inner = inner.setdefault(name, {})
    if inner is not sections:
        inner["dryRun"] = True
    return slo(**case.fields, spec=encoded(sections))


def pods(case: Case) -> list[Pod]:
    bound = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"6-7"}'}
    amounts = {"cpu": "2", "memory": "1Gi"}
    willing = {"koordinator.sh/eviction-enabled": "true"}
    return [
        pod("web", "LS", requests={"cpu": "1", "memory": "1Gi"}, limits=amounts, annotations=dict(case.annotations)),
        pod("db", "LSR", requests=amounts, limits=amounts, annotations=bound),
        batch("job", 2000, priority=5500, more_labels=willing),
    ]


def cycles(bench: Bench) -> list[CyclePlan]:
    """A few cycles, a sample each, beyond the cool-down of a start; the service's threads are busy."""
    plans: list[CyclePlan] = []
    for at in range(1, 4 * STEP, STEP):
        bench.reading = reading(at)
        bench.look(
            STEP,
            storage=Storage({"/dev/sda": "8:0"}, {}, {}),
            threads={WEB: (ThreadUsage(7, 700), ThreadUsage(8, 600))},
            services={WEB: ServiceReading(LatencyFigures(5.0, None))},
        )
        plans.append(bench.core.plan(bench.now))
    return plans


def done_by(name: str, plan: CyclePlan) -> list[str]:
    """What a strategy does, each with its reason."""
    values = [each.why for own in plan.targets.desired.values() for each in own.values() if each.strategy == name]
    orders: list[tuple[str, Evict | Reclaim]] = [(strategy, order) for _, strategy, order in plan.evictions]
    return values + [order.why for strategy, order in [*orders, *plan.reclaims] if strategy == name]


def test_the_table_has_every_strategy() -> None:
    assert [*CASES] == [each.name for each in STRATEGIES]


@pytest.mark.parametrize("name", CASES)
def test_what_a_strategy_does_has_a_reason(name: str) -> None:
    found = [why for plan in cycles(running(name)) for why in done_by(name, plan)]
    assert found, "the case has it act"
    assert all(found)


DRY: list[tuple[Strategy, tuple[str, ...]]] = [(each, (each.section,)) for each in STRATEGIES if each.section]
DRY += [(each, (each.section, "beClass", each.part)) for each in STRATEGIES if each.part]
"""Strategies with the paths of what makes them a dry run."""
PATHS = [f"{each.name}-{'.'.join(path)}" for each, path in DRY]


@pytest.mark.parametrize(("strategy", "path"), DRY, ids=PATHS)
def test_as_a_dry_run_it_reports_what_it_would_do_and_does_nothing(strategy: Strategy, path: tuple[str, ...]) -> None:
    bench = running(strategy.name, *path)
    plans, executions = cycles(bench), Executions(NODE)
    assert [why for plan in plans for why in done_by(strategy.name, plan)] == []
    events = [event for plan in plans for event in executions.of_cycle(bench.core, plan, WriteReport(), (), bench.now)]
    said = [event.data for event in events if isinstance(event.data, Execution) and event.data.topic == strategy.topic]
    words = [each.summary for each in said if each.summary.startswith(f"dry run of {strategy.name}, not done: ")]
    assert words
    assert not words[0].endswith(": ")


@pytest.mark.parametrize("name", CASES)
def test_a_dry_run_of_one_section_leaves_the_strategies_of_the_others_alone(name: str) -> None:
    own = next(each.section for each in STRATEGIES if each.name == name)
    other = THRESHOLD if own == QOS else QOS
    found = [why for plan in cycles(running(name, other)) for why in done_by(name, plan)]
    assert found


@pytest.mark.parametrize("name", CASES)
def test_a_dry_run_of_one_part_leaves_the_strategies_of_the_others_alone(name: str) -> None:
    own = next(each.part for each in STRATEGIES if each.name == name)
    for part in {each.part for each in STRATEGIES} - {own, ""}:
        assert [why for plan in cycles(running(name, QOS, "beClass", part)) for why in done_by(name, plan)], part


def test_each_has_a_section_of_the_docs_with_its_arguments_and_its_topic_in_the_table() -> None:
    docs = (Path(__file__).parents[4] / "docs" / "node-executor.md").read_text()
    sections = re.findall(r"^### ([a-z-]+)(?:: [^\n]*)?\n\*Arguments\*", docs, re.MULTILINE)
    assert [each.name for each in STRATEGIES if each.name not in sections] == []
    topics = next(line for line in docs.splitlines() if line.startswith("| `execution.<node>.<topic>`"))
    assert [each.topic for each in STRATEGIES if f"`{each.topic}`" not in topics] == []


def values_of(name: str, bench: Bench) -> dict[tuple[Place, Attribute], str]:
    """What a strategy has in force after the last cycle."""
    plan = bench.core.plan(bench.now)
    return {
        (place, attribute): each.value
        for place, own in plan.targets.desired.items()
        for attribute, each in own.items()
        if each.strategy == name
    }


@pytest.mark.parametrize(("strategy", "path"), DRY, ids=PATHS)
def test_a_dry_run_that_begins_takes_back_what_was_done(strategy: Strategy, path: tuple[str, ...]) -> None:
    bench = running(strategy.name)
    cycles(bench)
    before = values_of(strategy.name, bench)
    # On this kernel page-cache orders reclaim instead.
    assert before or not strategy.sets or strategy.name == page_cache.NAME, "the case sets nothing"
    bench.store(slo_subject(NODE), node_slo(CASES[strategy.name], *path))
    cycles(bench)
    assert values_of(strategy.name, bench) == {}
    targets = bench.core.plan(bench.now).targets
    for (place, attribute), text in before.items():
        if isinstance(attribute, Knob) and not is_initial(attribute, text):
            now = targets.winner(place, attribute)
            assert now is not None, f"{attribute.value} of {place} stays {text}"
            assert now.strategy != RESTORE.name or is_initial(attribute, now.value)


def is_initial(knob: Knob, text: str) -> bool:
    """Whether a file that nobody sets has this value; what is no file is restored elsewhere (targets.other.held)."""
    if knob in BY_DEVICE:
        return text == unset_text(knob, text)
    return text == ("0-7" if knob is Knob.CPUSET_CPUS else INITIAL_VALUES[knob])


def objects(document: Mapping[str, Any], *path: str) -> Iterator[tuple[str, ...]]:
    """The paths of all objects."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield (*path, name)
            yield from objects(value, *path, name)


BROKEN = [(name, path) for name, case in CASES.items() for path in objects(case.sections)]


@pytest.mark.parametrize(("name", "path"), BROKEN, ids=[f"{name}-{'.'.join(path)}" for name, path in BROKEN])
def test_a_part_that_is_no_object_is_reported_and_its_strategy_goes_on_with_the_last(name: str, path: tuple[str, ...]) -> None:
    bench = running(name)
    document = json.loads(bytes(node_slo(CASES[name]).spec))
    inner = document
    for each in path[:-1]:
        inner = inner[each]
    inner[path[-1]] = "half"
    wrong = replace(node_slo(CASES[name]), spec=msgspec.Raw(json.dumps(document).encode()))
    bench.store(slo_subject(NODE), wrong)
    plans = cycles(bench)
    assert [why for plan in plans for why in done_by(name, plan)]
    texts = [text for plan in plans for each in plan.problems for text in each.texts if path[-1] in text]
    assert texts == [f"{'.'.join(path)}: expected an object, got str: the last valid value stays"]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: each.name)
def test_what_a_strategy_reads_lies_in_its_section(strategy: Strategy) -> None:
    """Dry runs of the section cover what its strategies read; the total bandwidth is the node's."""
    sections = {shape.path[0] for shape in strategy.reads}
    assert sections <= {strategy.section, SYSTEM if strategy.section == QOS else strategy.section}
