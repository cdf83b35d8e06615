"""Simulated nodes: the same core on an imitated machine, under a clock that the test moves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.events.envelope import Event, Payload, encode_payload
from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import NodeSLORendered
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.node.usage import UsageSample
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.log.contract import Stored, Write
from cotenant.model.subjects import placement_subject, run_subject, slo_subject
from cotenant.simulation import World
from cotenant_node_executor.core.node import Periods
from cotenant_node_executor.core.pod_lifecycle import any_unfinished
from cotenant_node_executor.simulated.containers import parse_duration
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_node_executor.simulated.participant import NodeParticipant
from cotenant_node_executor.simulated.usage import Curve, share_out, wanted_usage
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import batch, pod, service

NODE = "sim-1"
SIZE = NodeSize(cpu_milli=8000, memory_bytes=32 << 30)


def store(world: World, subject: str, data: Payload, **fields: Any) -> None:
    assert isinstance(world.append([Write(event=Event(subject=subject, data=data, time=world.now, **fields))]), Stored)


def place(world: World, document: dict[str, Any], phase: PlacementPhase = PlacementPhase.BOUND) -> None:
    name = document["metadata"]["name"]
    placement = Placement(
        node=NODE,
        namespace="default",
        name=name,
        uid=f"uid-{name}",
        phase=phase,
        pod=encoded(document),
    )
    store(world, placement_subject(NODE, "default", name), placement)


def document(name: str, qos: str, resource: str, amount: str, **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": {"koordinator.sh/qosClass": qos},
            "annotations": {f"cotenant.io/simulated-{key}": value for key, value in annotations.items()},
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "resources": {"requests": {resource: amount}, "limits": {"kubernetes.io/batch-cpu": amount}}}
                if qos == "BE"
                else {"name": "main", "resources": {"requests": {resource: amount}}}
            ],
        },
    }


def world_with_node(seed: int = 0, *, periodic: bool = True) -> tuple[World, NodeParticipant]:
    world = World(seed=seed, keep_history=True)
    node = simulated_node(NODE, SIZE, seed=seed, periods=Periods(report_seconds=5))
    participant = NodeParticipant(node, periodic=periodic)
    world.add(participant)
    return world, participant


def run_of(world: World, name: str) -> RunStatus:
    event = world.streams.log.event(world.streams.log.last_of(run_subject(NODE, "default", name)))
    assert event is not None
    assert isinstance(event.data, RunStatus)
    return event.data


def executions(world: World, topic: str) -> list[Execution]:
    stream = world.streams.execution
    found = [stream.event(sequence) for sequence in stream.after(0, [f"execution.{NODE}.{topic}"], 10_000)]
    return [event.data for event in found if event is not None and isinstance(event.data, Execution)]


def test_a_job_runs_for_its_stated_time_and_succeeds() -> None:
    world, _ = world_with_node()
    world.run_until(world.now + timedelta(seconds=5))
    began = world.now
    place(world, document("job", "BE", "kubernetes.io/batch-cpu", "2000", duration="30s"))
    world.run_until(began + timedelta(seconds=20))
    assert run_of(world, "job").phase is RunPhase.RUNNING
    world.run_until(began + timedelta(seconds=40))
    run = run_of(world, "job")
    assert run.phase is RunPhase.SUCCEEDED
    assert run.started_at is not None
    assert run.finished_at == run.started_at + timedelta(seconds=30)


def test_without_periodic_samples_a_job_of_months_ends_on_time() -> None:
    world, _ = world_with_node(periodic=False)
    place(world, document("job", "BE", "kubernetes.io/batch-cpu", "2000", duration="90d"))
    world.run_until(world.now + timedelta(days=91))
    assert run_of(world, "job").phase is RunPhase.SUCCEEDED
    assert world.steps < 50
    assert world.streams.usage.last_sequence == 0


@pytest.mark.parametrize("answers_lost", [0, 1])
def test_a_node_wakes_for_its_own_report_only_if_its_write_was_not_acknowledged(answers_lost: int) -> None:
    world, participant = world_with_node(periodic=False)
    world.run_until(world.now + timedelta(seconds=2))
    link, before = world.trouble(participant.name), world.steps
    assert link is not None
    link.answers_lost = answers_lost
    place(world, document("web", "LS", "cpu", "1"))
    world.run_until(world.now + timedelta(seconds=2))
    assert run_of(world, "web").phase is RunPhase.RUNNING
    assert world.steps - before == 2 + answers_lost


def test_a_node_is_idle_between_its_samples_until_its_placements_or_policy_change() -> None:
    world, participant = world_with_node()
    manifest = document("web", "LS", "cpu", "1")
    world.run_until(world.now + timedelta(seconds=2))
    assert not participant.node.due(world.now)
    place(world, manifest)
    world.run_until(world.now + timedelta(milliseconds=100))
    assert run_of(world, "web").phase is RunPhase.RUNNING
    assert not participant.node.due(world.now)
    others: tuple[tuple[str, Payload], ...] = (
        (slo_subject(NODE), NodeSLORendered(node=NODE)),
        (run_subject(NODE, "default", "web"), run_of(world, "web")),
    )
    for subject, data in others:
        participant.node.apply(Event(subject=subject, data=data, time=world.now, sequence=world.streams.log.last_sequence + 1))
        assert participant.node.due(world.now)
        # The first cycle may write files, the second observes their new values.
        for _ in range(2):
            participant.node.step(world.now, sample=False)
        assert not participant.node.due(world.now)


def test_a_stopped_pod_ends_and_its_report_gets_a_tombstone_with_its_placement() -> None:
    world, _ = world_with_node()
    manifest = document("web", "LS", "cpu", "1")
    place(world, manifest)
    world.run_until(world.now + timedelta(seconds=3))
    place(world, manifest, PlacementPhase.TERMINATING)
    world.run_until(world.now + timedelta(seconds=3))
    assert run_of(world, "web").phase is RunPhase.STOPPED


def test_a_restarted_executor_continues_from_the_last_reports() -> None:
    world, first = world_with_node()
    place(world, document("job", "BE", "kubernetes.io/batch-cpu", "2000", duration="60s"))
    world.run_until(world.now + timedelta(seconds=10))
    started = run_of(world, "job").started_at
    world.remove(first)
    world.run_until(world.now + timedelta(seconds=10))
    world.add(NodeParticipant(simulated_node(NODE, SIZE, boot="second")))
    world.run_until(world.now + timedelta(seconds=60))
    run = run_of(world, "job")
    assert (run.phase, run.started_at) == (RunPhase.SUCCEEDED, started)
    assert run.containers[0].restarts == 0


def test_on_a_machine_that_was_lost_everything_starts_again() -> None:
    """Seeds 143 and 155: a new machine had the old one's pods, without limits, as its files had no values yet."""
    world, first = world_with_node()
    place(world, document("web", "LS", "cpu", "1") | {"spec": {"containers": [{"name": "main"}]}})
    place(world, document("job", "BE", "kubernetes.io/batch-cpu", "2000", duration="60s"))
    world.run_until(world.now + timedelta(seconds=10))
    world.remove(first)
    world.run_until(world.now + timedelta(seconds=10))
    returned = world.now
    machine = simulated_node(NODE, SIZE, boot="second", outlived=False)
    world.add(NodeParticipant(machine))
    world.run_until(world.now + timedelta(seconds=30))
    job, web = run_of(world, "job"), run_of(world, "web")
    assert (job.phase, job.containers[0].reason) == (RunPhase.FAILED, "ContainerStatusUnknown")
    assert (web.phase, web.containers[0].restarts) == (RunPhase.RUNNING, 1)
    assert web.containers[0].started_at is not None
    assert web.containers[0].started_at >= returned
    assert [uid for uid, states in machine.machine.runtime.poll(world.now).items() if any_unfinished(states)] == ["uid-web"]


def test_batch_gives_way_when_a_service_wants_more_and_constant_load_settles() -> None:
    world, _ = world_with_node()
    store(
        world,
        slo_subject(NODE),
        NodeSLORendered(node=NODE, enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_percent=65),
    )
    place(world, document("job", "BE", "kubernetes.io/batch-cpu", "6000"))
    place(world, document("steady", "LS", "cpu", "1", usage="cpu=500m"))
    world.run_until(world.now + timedelta(seconds=30))
    before = len(executions(world, "suppress"))
    world.run_until(world.now + timedelta(seconds=120))
    assert len(executions(world, "suppress")) == before
    place(world, document("busy", "LS", "cpu", "4", usage="cpu=3"))
    world.run_until(world.now + timedelta(seconds=4))
    published = executions(world, "suppress")[before:]
    assert published
    assert int(published[-1].changes[0].new) == 8000 * 65 - 100 * (500 + 3000 + 240)
    assert published[-1].figures["services.cpu-milli"] == 3500


def test_usage_is_published_once_per_report_period_without_gaps() -> None:
    world, _ = world_with_node()
    place(world, document("web", "LS", "cpu", "1", usage="cpu=500m..1500m,period=10m"))
    world.run_until(world.now + timedelta(seconds=31))
    stream = world.streams.usage
    events = [stream.event(sequence) for sequence in stream.after(0, [f"usage.{NODE}"], 100)]
    samples = [event.data for event in events if event is not None and isinstance(event.data, UsageSample)]
    assert [sample.counter for sample in samples] == sorted(sample.counter for sample in samples)
    assert all(len(sample.offsets_ms) == 5 for sample in samples)
    assert all(500 <= cpu <= 1500 for sample in samples for pod_ in sample.pods for cpu in pod_.series.cpu_milli)
    assert samples[-1].pods[0].qos == "LS"


def test_the_same_seed_gives_the_same_events_and_another_seed_another_phase() -> None:
    def history(seed: int) -> list[bytes]:
        world, _ = world_with_node(seed)
        place(world, document("web", "LS", "cpu", "1", usage="cpu=100m..4,period=1m"))
        seen: list[bytes] = []
        world.watchers.append(lambda event: seen.append(event.id.encode() + encode_payload(event.data)))
        world.run_until(world.now + timedelta(seconds=40))
        return seen

    assert history(1) == history(1)
    assert history(1) != history(2)


@pytest.mark.parametrize("text", ["", "30", "s", "-5s", "5 s", "1h30"])
def test_a_malformed_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["cpu", "cpu=", "disk=5", "cpu=a..b", "cpu=1,period=5"])
def test_a_malformed_usage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"annotation|duration"):
        wanted_usage(service("web", annotations={"cotenant.io/simulated-usage": text}), 0)


def test_without_an_annotation_a_pod_uses_part_of_its_request_and_a_batch_pod_all_of_it() -> None:
    assert wanted_usage(service("web", "2"), 0).cpu == Curve(1200, 1200)
    assert wanted_usage(batch("job", 1500), 0).cpu == Curve(1500, 1500)
    assert wanted_usage(pod("small"), 0).cpu == Curve(100, 100)


@given(low=st.integers(0, 10_000), span=st.integers(0, 10_000), period=st.integers(2, 10**9), at=st.integers(0, 10**12))
def test_a_curve_stays_between_its_values_and_repeats(low: int, span: int, period: int, at: int) -> None:
    curve = Curve(low, low + span, period)
    assert low <= curve.at(at) <= low + span
    assert curve.at(at) == curve.at(at + 2 * (period // 2))


@given(
    capacity=st.integers(0, 100_000),
    pods=st.dictionaries(st.text("abc", min_size=1, max_size=4), st.tuples(st.integers(0, 50_000), st.integers(2, 262_144))),
)
def test_shares_never_exceed_demand_or_capacity_and_serve_all_where_there_is_enough(
    capacity: int, pods: dict[str, tuple[int, int]]
) -> None:
    wanted = {name: wants for name, (wants, _) in pods.items()}
    given_ = share_out(capacity, wanted, {name: weight for name, (_, weight) in pods.items()})
    assert all(given_[name] <= wanted[name] for name in wanted)
    assert sum(given_.values()) <= capacity
    if sum(wanted.values()) <= capacity:
        assert given_ == wanted


def test_an_executor_that_starts_without_a_log_works_once_it_is_reachable() -> None:
    """Found by `cotenant simulate --chaos --seed 20 --nodes 4 --for 4m`: the simulated one lost its start marker for good."""
    world, first = world_with_node()
    world.remove(first)
    second = NodeParticipant(simulated_node(NODE, SIZE, boot="second"))
    world.add(second)
    link = world.trouble(second.name)
    assert link is not None
    link.severed_until = world.now + timedelta(seconds=5)
    place(world, document("web", "LS", "cpu", "1"))
    world.run_until(world.now + timedelta(seconds=10))
    assert run_of(world, "web").phase is RunPhase.RUNNING
