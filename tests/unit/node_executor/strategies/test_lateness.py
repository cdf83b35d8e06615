"""Services with a latency goal: their own figure, else run delay, and what suppression and spreading make of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.domain.service_latency import LatencyFigures
from cotenant.events.node.resources import CpuIdentity
from cotenant.events.placements import PlacementPhase
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.sampling.latency.readings import AskedService, ServiceReading
from cotenant_node_executor.sampling.threads import ThreadUsage
from cotenant_node_executor.strategies.cpu.protection import spread
from cotenant_node_executor.strategies.cpu.protection.lateness import lateness, worst
from cotenant_node_executor.strategies.cpu.suppression import strategy as suppression
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import StrategyDecision
from cotenant_node_executor.targets.address import Knob, Thread
from cotenant_node_executor.targets.address import ThreadAttribute as On
from cotenant_node_executor.targets.interface import THREADS, KnobSupport
from tests.unit.node_executor.builders_node_executor import Bench, batch, capabilities, service, situation, slo, snapshot

SECOND = 1_000_000_000
GOAL, ENDPOINT = "cotenant.io/latency-goal", "cotenant.io/latency-endpoint"
URL = "http://127.0.0.1:8080/latency"
IDENTITIES = {
    "ls_identity": CpuIdentity(enable=True, group_identity=2),
    "be_identity": CpuIdentity(enable=True, group_identity=-1),
}


def web(goal: str = "20ms", endpoint: str = URL) -> Pod:
    return service("web", annotations={GOAL: goal} | ({ENDPOINT: endpoint} if endpoint else {}))


def says(p99: float | None = None, oldest: float | None = None, problem: str = "") -> ServiceReading:
    return ServiceReading(LatencyFigures(p99, oldest), problem)


def seen(
    pod: Pod,
    reading: ServiceReading | None = None,
    *,
    at: int = 1,
    threads: Mapping[int, tuple[int, int]] | None = None,
    current: Mapping[tuple[str, Knob], str] | None = None,
) -> Situation:
    """`threads`: what each ran and waited, in ms of a second."""
    base = capabilities()
    kernel = replace(base, knobs={**base.knobs, THREADS: KnobSupport(True)})
    sample = replace(snapshot(2000, {"uid-web": 1000}), monotonic_ns=at * SECOND)
    made = situation([pod, batch("job")], node_slo=slo(**IDENTITIES), reading=sample, kernel=kernel, current=current)
    group = next(view.group for view in made.pods.values() if view.name == "web")
    ran = {group: tuple(ThreadUsage(tid, *each) for tid, each in threads.items())} if threads else {}
    return replace(made, services={group: reading} if reading is not None else {}, threads=ran)


@pytest.mark.parametrize(
    ("reading", "late", "text"),
    [
        (says(p99=21.0), True, "default/web: p99 21.0 ms, goal 20 ms"),
        (says(p99=20.0), False, "p99 20.0 ms"),
        (says(oldest=45.0, p99=3.0), True, "oldest request 45.0 ms"),
        (says(oldest=1.0, p99=0.0), False, "oldest request 1.0 ms"),
    ],
)
def test_a_service_is_late_by_the_larger_of_its_figures(reading: ServiceReading, late: bool, text: str) -> None:
    (found,) = lateness(seen(web(), reading, threads={1: (10, 900)}))
    assert (found.late, found.problem) == (late, "")
    assert text in found.text


@pytest.mark.parametrize(
    ("threads", "late"),
    [({1: (100, 60)}, True), ({1: (100, 40)}, False), ({1: (1, 19)}, False), ({1: (30, 10), 2: (30, 25)}, True), (None, False)],
)
def test_run_delay_is_used_while_the_service_does_not_answer(
    threads: Mapping[int, tuple[int, int]] | None, late: bool
) -> None:
    (found,) = lateness(seen(web(), says(problem="no answer within 250 ms"), threads=threads))
    assert found.late is late
    assert found.problem == "no answer within 250 ms; run delay is used"
    (without,) = lateness(seen(web(endpoint=""), threads=threads))
    assert (without.late, without.problem) == (late, "")


def test_a_pod_without_a_goal_is_not_judged_and_one_whose_annotation_cannot_be_read_is_said() -> None:
    assert lateness(seen(service("web"), says(p99=1e6))) == ()
    (found,) = lateness(seen(web(goal="soon"), says(p99=1e6)))
    assert not found.late
    assert "'soon' is not a duration" in found.problem


def test_the_service_that_is_late_by_most_of_its_goal_is_named() -> None:
    (one,) = lateness(seen(web(), says(p99=30.0)))
    other = replace(one, pod="default/other", goal_ms=10.0)
    assert worst((one, other)) is other
    assert worst((replace(one, late=False),)) is None


def quantity(decision: StrategyDecision) -> int:
    memory = decision.memory
    assert isinstance(memory, suppression.Suppression)
    return memory.quantity_milli


def test_a_late_service_takes_a_tenth_of_the_node_with_each_sample_and_gives_it_back_when_it_is_on_time() -> None:
    decided = suppression.decide(seen(web(), says(p99=1.0)), None)
    free = quantity(decided)
    assert free > 2400
    for sample in (2, 3):
        for _ in range(2):  # a sample counts once
            decided = suppression.decide(seen(web(), says(oldest=50.0), at=sample), decided.memory)
        assert quantity(decided) == free - 800 * (sample - 1)
    memory = decided.memory
    assert isinstance(memory, suppression.Suppression)
    assert "1600m for services that are late (default/web: oldest request 50.0 ms, goal 20 ms)" in memory.why
    assert suppression.STRATEGY.figures(memory)["held-back.cpu-milli"] == 1600

    # Ten samples without a late service, of which the last gives back.
    for sample in range(4, 4 + 10 - 1):
        decided = suppression.decide(seen(web(), says(p99=1.0), at=sample), decided.memory)
        assert quantity(decided) == free - 1600
    for left in (800, 0):
        sample += 1
        decided = suppression.decide(seen(web(), says(p99=1.0), at=sample), decided.memory)
        assert quantity(decided) == free - left
    assert "held-back.cpu-milli" not in suppression.STRATEGY.figures(decided.memory)


def test_what_is_held_back_is_never_more_than_there_was_to_take() -> None:
    decided = suppression.decide(seen(web(), says(p99=1.0)), None)
    free = quantity(decided)
    for sample in range(2, 60):
        decided = suppression.decide(seen(web(), says(p99=1e6), at=sample), decided.memory)
    assert quantity(decided) == 0
    for sample in range(60, 60 + 10 + 1):
        decided = suppression.decide(seen(web(), says(p99=0.0), at=sample), decided.memory)
    assert 0 < quantity(decided) < free


def held(decision: StrategyDecision) -> dict[int, str]:
    return {
        place.tid: each.why
        for place, own in decision.values.items()
        if isinstance(place, Thread)
        for each in own
        if each.attribute is On.AFFINITY
    }


def test_threads_are_let_go_where_a_service_is_late_on_cpus_of_its_own() -> None:
    busy = {1: (500, 0), 2: (500, 0)}
    decided = spread.decide(seen(web(), says(p99=1.0), threads=busy), None)
    assert held(decided) == dict.fromkeys(busy, "no two busy latency-sensitive threads share a CPU")
    for sample in range(2, 2 + spread.LATE_SAMPLES):
        decided = spread.decide(seen(web(), says(p99=99.0), threads=busy, at=sample), decided.memory)
    assert held(decided) == dict.fromkeys(busy, "late for 3 samples on CPUs of its own: default/web: p99 99.0 ms, goal 20 ms")
    for sample in range(10, 10 + spread.REST_SAMPLES - 1):
        decided = spread.decide(seen(web(), says(p99=99.0), threads=busy, at=sample), decided.memory)
        assert held(decided) == {}
    decided = spread.decide(seen(web(), says(p99=1.0), threads=busy, at=100), decided.memory)
    assert held(decided).keys() == busy.keys()


def test_a_service_that_does_not_answer_is_one_problem() -> None:
    decided = spread.decide(seen(web(), says(problem="no answer within 250 ms")), None)
    assert decided.problems == ("the own latency of pod default/web: no answer within 250 ms; run delay is used",)


def test_the_core_has_pods_asked_that_offer_their_latency_and_forgets_them_with_their_placement() -> None:
    bench = Bench()
    core: ExecutorCore = bench.core
    bench.place(web())
    (asked,) = core.wanted.services
    assert isinstance(asked, AskedService)
    assert (asked.endpoint.host, asked.endpoint.port, asked.endpoint.path) == ("127.0.0.1", 8080, "/latency")
    bench.slo(**IDENTITIES)
    assert core.wanted.services == (asked,)
    assert core.wanted.threads
    bench.place(web(), PlacementPhase.GONE)
    assert not core.wanted.services
