"""A node's usage and execution events, and their order."""

from __future__ import annotations

import itertools
from datetime import timedelta

from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.events.envelope import Event
from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.topology import MachineTopology
from cotenant.events.node.usage import UsageSample
from cotenant.events.placements import PlacementPhase
from cotenant.log.contract import EXECUTION, LOG, USAGE
from cotenant.model.subjects import resources_subject
from cotenant_node_executor.core.executions import MAX_CHANGES, NEWEST_USAGE, Executions
from cotenant_node_executor.core.node import Periods
from cotenant_node_executor.core.usage_window import MAX_SAMPLES, UsageWindow
from cotenant_node_executor.runtime.interface import Collect, PodToRun, Start, Stop
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_node_executor.strategies.strategy import Evict
from cotenant_node_executor.targets.interface import Knob, RefusedValue, WriteReport, WrittenValue
from tests.unit.node_executor.builders_node_executor import NODE, START, Bench, batch, pod, service, snapshot


def window(report: float = 3.0) -> UsageWindow:
    return UsageWindow("node-1", "boot", sample_seconds=1.0, report_seconds=report)


def to_run(entry: Pod) -> PodToRun:
    return PodToRun(entry, f"pod{entry.metadata.uid}", NODE)


def second(number: float) -> timedelta:
    return timedelta(seconds=number)


def test_a_message_holds_the_samples_of_its_period_oldest_first() -> None:
    made = window()
    made.add(snapshot(900), START - second(1))
    assert made.due(START - second(1))
    assert made.message({}, START - second(1)).node_usage.cpu_milli == (900,)
    for number in range(3):
        assert not made.due(START + second(number) - second(0.6))
        made.add(snapshot(1000 + number, {"uid-web": 100 + number}), START + second(number))
    assert made.due(START + second(2))
    published = made.message({"uid-web": to_run(service("web"))}, START + second(2))
    assert published.offsets_ms == (-2000, -1000, 0)
    assert published.node_usage.cpu_milli == (1000, 1001, 1002)
    assert published.pods[0].series.cpu_milli == (100, 101, 102)
    assert (published.pods[0].qos, published.pods[0].priority) == ("LS", "koord-prod")
    assert not made.due(START + second(10))


def test_samples_slightly_early_or_late_do_not_change_the_period() -> None:
    made = UsageWindow("node-1", "boot", sample_seconds=5.0, report_seconds=15.0)
    published: list[float] = []
    for number in range(60):
        at = 5 * number + (0.03, -0.04, 0.01)[number % 3]
        made.add(snapshot(1000), START + second(at))
        if made.due(START + second(at)):
            made.message({}, START + second(at))
            published.append(at)
    assert [round(later - earlier) for earlier, later in itertools.pairwise(published)] == [15] * 19


def test_a_new_pod_has_a_shorter_series_and_an_ended_one_has_none() -> None:
    made = window()
    made.add(snapshot(1000, {"uid-old": 5}), START)
    made.add(snapshot(1000, {"uid-new": None}), START + second(1))
    made.add(snapshot(1000, {"uid-new": 7}), START + second(2))
    published = made.message({"uid-old": to_run(batch("old")), "uid-new": to_run(batch("new"))}, START + second(2))
    assert [(entry.name, entry.series.cpu_milli) for entry in published.pods] == [("new", (7,))]


def test_the_first_reading_of_an_incarnation_is_no_sample_and_unpublished_periods_are_bounded() -> None:
    made = window(1.0)
    made.add(snapshot(None), START)
    assert not made.filled
    for number in range(MAX_SAMPLES + 50):
        made.add(snapshot(number), START + second(number))
    published = made.message({}, START + second(MAX_SAMPLES + 50))
    assert len(published.offsets_ms) == MAX_SAMPLES
    assert published.node_usage.cpu_milli[-1] == MAX_SAMPLES + 49


def test_a_changed_quota_is_published_with_figures_and_the_newest_usage_as_its_cause() -> None:
    bench = Bench().load()
    node_slo = bench.slo()
    bench.reading = snapshot(3000, {"uid-web": 2000})
    bench.place(service("web"))
    bench.groups.add("burstable/poduid-web")
    plan = bench.look().core.plan(bench.now)
    report = WriteReport(written=(WrittenValue("besteffort", Knob.CPU_QUOTA, "cpu.max", "-1", "220000"),))
    events = Executions("node-1").of_cycle(bench.core, plan, report, (), bench.now)
    assert [event.subject for event in events] == ["execution.node-1.suppress"]
    published = events[0]
    assert isinstance(published.data, Execution)
    assert published.causes == (NEWEST_USAGE, node_slo.ref)
    assert published.data.changes[0].old == "-1"
    assert published.data.figures["best-effort.cpu-milli"] == 8000 * 65 // 100 - 2000 - 1000
    assert "besteffort cpu.max: -1 -> 220000" in published.data.summary


def test_refusals_of_the_kernel_name_file_value_and_message() -> None:
    bench = Bench().load()
    placed = bench.place(batch("job"))
    plan = bench.look().core.plan(bench.now)
    refused = RefusedValue("besteffort/poduid-job", Knob.CPU_SHARES, "cpu.shares", "1024", 22, "Invalid argument")
    event = Executions("node-1").of_cycle(bench.core, plan, WriteReport(refused=(refused,)), (), bench.now)[0]
    assert isinstance(event.data, Execution)
    assert event.data.topic == "refusals"
    assert event.causes == (placed.ref,)
    assert event.data.changes[0].error == "Invalid argument"
    assert "batch-cpu requests" in event.data.summary


def test_a_pod_that_cannot_run_here_and_a_stop_are_published_once() -> None:
    bench = Bench().load()
    bench.place(pod("odd", "BE", volumes=[{"name": "v"}]))
    plan = bench.look().core.plan(bench.now)
    made = Executions("node-1")
    topics = [
        [event.data.topic for event in made.of_cycle(bench.core, plan, WriteReport(), (Stop("uid-odd", 3),), bench.now)]  # type: ignore[attr-defined]
        for _ in range(3)
    ]
    assert topics == [["runtime", "refusals"], [], []]


def test_a_stop_that_a_placement_orders_is_published_if_the_pod_has_not_ended_a_second_later() -> None:
    bench = Bench().load()
    placed = bench.place(batch("job"), PlacementPhase.TERMINATING)
    plan = bench.look().core.plan(bench.now)
    made = Executions("node-1")

    def published(seconds: float) -> list[Event]:
        return made.of_cycle(bench.core, plan, WriteReport(), (Stop("uid-job", 3),), START + second(seconds))

    assert published(0) == []
    assert published(0.9) == []
    [event] = published(1)
    assert isinstance(event.data, Execution)
    assert event.data.summary == "default/job: stopping, 3 s until SIGKILL"
    assert (event.time, event.causes) == (START, (placed.ref,))
    assert published(2) == []


def test_of_a_pod_that_ended_at_once_no_stop_is_published() -> None:
    bench = Bench().load()
    bench.place(batch("job"), PlacementPhase.TERMINATING)
    plan = bench.look().core.plan(bench.now)
    made = Executions("node-1")
    assert made.of_cycle(bench.core, plan, WriteReport(), (Stop("uid-job", 3),), START) == []
    assert made.of_cycle(bench.core, plan, WriteReport(), (Collect("uid-job"),), START + second(0.1)) == []
    assert made.of_cycle(bench.core, plan, WriteReport(), (), START + second(5)) == []


def test_many_changes_are_counted_in_one_bounded_event() -> None:
    bench = Bench().load()
    for number in range(60):
        bench.place(batch(f"job-{number}"))
    plan = bench.look().core.plan(bench.now)
    written = tuple(
        WrittenValue(group, Knob.CPU_SHARES, Knob.CPU_SHARES.value, "1024", texts[Knob.CPU_SHARES])
        for group, texts in plan.targets.texts.items()
        if Knob.CPU_SHARES in texts
    )
    event = Executions("node-1").of_cycle(bench.core, plan, WriteReport(written=written), (), bench.now)[0]
    assert isinstance(event.data, Execution)
    assert len(event.data.changes) == MAX_CHANGES
    assert f"and {len(written) - 1} more" in event.data.summary


def started(name: str, *containers: str, attempt: int = 0) -> list[Start]:
    here = PodToRun(batch(name), f"besteffort/poduid-{name}", NODE)
    return [Start(here, container, attempt) for container in containers]


def share(group: str, old: str = "1024", new: str = "512") -> WrittenValue:
    return WrittenValue(group, Knob.CPU_SHARES, "cpu.shares", old, new)


def test_what_the_start_of_one_pod_set_is_one_event_of_that_pod() -> None:
    bench = Bench().load()
    placed = bench.place(batch("job"))
    bench.place(batch("other"))
    plan = bench.look().core.plan(bench.now)
    pod_group, neighbour = "besteffort/poduid-job", "besteffort/poduid-other"
    written = (share(pod_group), share(f"{pod_group}/main"), share(neighbour))
    orders = started("job", "main", "side", attempt=1)
    [event] = Executions(NODE).of_cycle(bench.core, plan, WriteReport(written=written), orders, bench.now)
    assert isinstance(event.data, Execution)
    assert (event.data.topic, event.data.namespace, event.data.pod) == ("runtime", "default", "job")
    assert event.causes == (placed.ref,)
    assert [(each.target, each.old, each.new) for each in event.data.changes] == [
        (f"{group}/cpu.shares", "1024", "512") for group in (pod_group, f"{pod_group}/main", neighbour)
    ]
    assert event.data.summary == (
        "default/job: container main started, attempt 1; container side started, attempt 1; "
        f"{pod_group} cpu.shares: 1024 -> 512 and 2 more: batch-cpu requests 1000m"
    )


def test_of_several_pods_that_start_each_event_has_its_own_values_and_others_keep_their_topic() -> None:
    bench = Bench().load()
    placed = {name: bench.place(batch(name)) for name in ("a", "b", "there")}
    plan = bench.look().core.plan(bench.now)
    groups = {name: f"besteffort/poduid-{name}" for name in placed}
    quota = WrittenValue("besteffort", Knob.CPU_QUOTA, "cpu.max", "-1", "220000")
    written = (share(f"{groups['a']}/main"), share(groups["b"]), share(groups["there"]), quota)
    orders = [*started("a", "main"), *started("b", "main")]
    events = Executions(NODE).of_cycle(bench.core, plan, WriteReport(written=written), orders, bench.now)
    told = [(event.data.topic, event.data.pod, event.causes) for event in events if isinstance(event.data, Execution)]
    assert told[:2] == [("batch-values", "", (placed["there"].ref,)), ("restored", "", ())]
    assert told[2:] == [("runtime", name, (placed[name].ref,)) for name in ("a", "b")]
    targets = [[each.target for each in event.data.changes] for event in events if isinstance(event.data, Execution)]
    assert targets[2:] == [[f"{groups['a']}/main/cpu.shares"], [f"{groups['b']}/cpu.shares"]]


def test_usage_is_stored_before_the_events_that_it_causes() -> None:
    node = simulated_node("sim", NodeSize(), periods=Periods(report_seconds=2))
    marker = node.start_marker(START)
    node.apply(Event(subject=marker.subject, data=marker.data, sequence=1))
    events = [event for number in range(8) for event in node.step(START + second(number))]
    assert USAGE in [event.stream for event in events]
    assert {type(event.data) for event in events if event.stream == LOG} <= {MachineTopology}
    execution = Execution(node="sim", topic="suppress", summary="")
    published = Event(subject="execution.sim.suppress", data=execution, stream=EXECUTION)
    named = Event(subject=published.subject, data=published.data, stream=EXECUTION, causes=(NEWEST_USAGE, "LOG:5"))
    assert node.refer(published) is published
    assert node.refer(named).causes == ("LOG:5",)
    node.usage_stored("USAGE:9")
    assert node.refer(named).causes == ("USAGE:9", "LOG:5")


def test_samples_of_a_simulated_node_are_numbered_within_its_incarnation() -> None:
    node = simulated_node("sim", NodeSize(), boot="incarnation", periods=Periods(report_seconds=2))
    marker = node.start_marker(START)
    node.apply(Event(subject=marker.subject, data=marker.data, sequence=1))
    published = [event.data for number in range(9) for event in node.step(START + second(number)) if event.stream == USAGE]
    assert [sample.counter for sample in published if isinstance(sample, UsageSample)] == list(range(1, len(published) + 1))
    assert {sample.boot for sample in published if isinstance(sample, UsageSample)} == {"incarnation"}


def test_an_eviction_by_what_the_node_offers_has_that_event_as_a_cause() -> None:
    bench = Bench().load()
    node_slo = bench.slo()
    bench.store(resources_subject(NODE), NodeResources(node=NODE, batch_cpu_milli=1000))
    less = bench.store(resources_subject(NODE), NodeResources(node=NODE, batch_cpu_milli=500))
    placed = {name: bench.place(batch(name)) for name in ("offer", "usage")}
    plan = bench.look().core.plan(bench.now)
    orders = [Evict("uid-offer", "500m offered", by_offer=True), Evict("uid-usage", "too much")]
    ordered = [("cpu-evict", order) for order in orders]
    begun = bench.core.evictions.begin(ordered, bench.core.pods, {}, bench.now + second(60), bench.core.resources_ref)
    events = Executions(NODE).of_cycle(bench.core, replace(plan, evictions=begun), WriteReport(), (), bench.now)
    of_pods = {event.data.pod: event.causes for event in events if isinstance(event.data, Execution) and event.data.pod}
    assert of_pods == {
        "offer": (placed["offer"].ref, NEWEST_USAGE, node_slo.ref, less.ref),
        "usage": (placed["usage"].ref, NEWEST_USAGE, node_slo.ref),
    }
