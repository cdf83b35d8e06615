"""Resizes in place on a node: admitted, deferred, refused, and done once the values are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.domain.resizing import stated
from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus, RunPhase, RunStatus
from cotenant.events.placements import PlacementPhase
from cotenant.events.reservations import ReservationShare
from cotenant.events.resizes import PlacementResize, ResizeState, ResizeStatus
from cotenant.model.subjects import executor_subject, reservation_subject, resources_subject, run_subject
from cotenant_node_executor.runtime.interface import EndAttempt, Order, Start
from cotenant_node_executor.sampling.snapshot import ContainerUsage, GroupUsage, PodSample, PressureSet
from cotenant_node_executor.strategies.pod_view import pod_view
from cotenant_node_executor.targets.interface import Knob, RefusedValue, WriteReport
from tests.unit.node_executor.builders_node_executor import GIB, NODE, Bench, batch, pod, snapshot

MIB = 1 << 20


def sized(name: str, cpu: str, memory: str = "1Gi", **more: Any) -> Pod:
    wanted = {"cpu": cpu, "memory": memory}
    return pod(name, "LS", requests=wanted, limits=wanted, **more)


class Node(Bench):
    """A node of 4 CPUs whose pods run."""

    def load(self) -> Node:
        self.store(executor_subject(NODE), ExecutorStatus(node=NODE, boot="boot", allocatable={"cpu": 4000, "memory": 8 * GIB}))
        return self

    def begin(self, entry: Pod, cpu_milli: int) -> None:
        """Place a pod, and let it run."""
        self.place(entry, requests={"cpu": cpu_milli, "memory": GIB})
        self.saw(entry, pid=7, started_at=self.now)
        self.groups.update(pod_view(entry).groups)
        self.cycle()

    def ask(self, was: Pod, wants: Pod, counted_milli: int, **more: Any) -> None:
        """The scheduler stores the placement with a resize."""
        resize = PlacementResize(sequence=self.sequence + 1, admitted=stated(was.spec), counted=stated(wants.spec))
        self.place(wants, requests={"cpu": counted_milli, "memory": GIB}, resize=resize, **more)

    def cycle(self, report: WriteReport | None = None, seconds: float = 1.0) -> None:
        """One cycle, whose writes had this result."""
        self.look(seconds)
        self.core.plan(self.now)
        self.core.wrote(report or WriteReport(), self.now)
        self.report()

    def resize_of(self, name: str) -> ResizeStatus:
        data = self.last[run_subject(NODE, "default", name)].data
        assert isinstance(data, RunStatus)
        assert data.resize is not None
        return data.resize

    def values(self, entry: Pod) -> dict[Knob, str]:
        """The desired values of a pod's container."""
        group = pod_view(entry).groups[1]
        found = {knob: self.core.desired(group, knob) for knob in (Knob.CPU_SHARES, Knob.CPU_QUOTA, Knob.MEMORY_LIMIT)}
        return {knob: desired.value for knob, desired in found.items() if desired is not None}


def using(entry: Pod, memory_bytes: int) -> Mapping[str, PodSample]:
    group = GroupUsage("", 100, memory_bytes, memory_bytes, None, PressureSet())
    uid = entry.metadata.uid
    return {uid: PodSample(uid, "guaranteed", group, (ContainerUsage("main", group),))}


def test_a_resize_that_fits_is_written_and_reported_as_done_in_one_cycle() -> None:
    bench = Node().load()
    small = sized("p", "1")
    bench.begin(small, 1000)
    assert bench.values(small)[Knob.CPU_QUOTA] == "100000"
    large = sized("p", "3", "2Gi")
    bench.ask(small, large, 3000)
    bench.cycle()
    assert bench.values(small) == {Knob.CPU_SHARES: "3072", Knob.CPU_QUOTA: "300000", Knob.MEMORY_LIMIT: str(2 * GIB)}
    status = bench.resize_of("p")
    assert (status.state, status.admitted, status.applied) == (ResizeState.DONE, stated(large.spec), ())


def test_a_resize_without_room_is_deferred_until_another_pod_ends() -> None:
    bench = Node().load()
    small, other = sized("p", "1"), sized("q", "2")
    bench.begin(small, 1000)
    bench.begin(other, 2000)
    bench.ask(small, sized("p", "3"), 3000)
    bench.cycle()
    deferred = bench.resize_of("p")
    assert deferred.state is ResizeState.DEFERRED
    assert deferred.message == "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
    assert deferred.admitted == stated(small.spec)
    assert bench.values(small)[Knob.CPU_QUOTA] == "100000"
    bench.place(other, PlacementPhase.GONE)
    bench.states.pop("uid-q")
    bench.cycle()
    assert bench.resize_of("p").state is ResizeState.DONE
    assert bench.values(small)[Knob.CPU_QUOTA] == "300000"


def test_a_resize_above_the_node_is_infeasible_for_good() -> None:
    bench = Node().load()
    small = sized("p", "1")
    bench.begin(small, 1000)
    bench.ask(small, sized("p", "5"), 5000)
    bench.cycle()
    refused = bench.resize_of("p")
    assert refused.state is ResizeState.INFEASIBLE
    assert refused.message == "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000"
    bench.store(executor_subject(NODE), ExecutorStatus(node=NODE, boot="boot", allocatable={"cpu": 9000, "memory": 8 * GIB}))
    bench.cycle()
    assert bench.resize_of("p") == refused
    assert bench.values(small)[Knob.CPU_QUOTA] == "100000"


def test_a_shrink_that_the_kernel_refuses_is_in_progress_until_it_is_written() -> None:
    """Until then other pods cannot have its room."""
    bench = Node().load()
    large, other = sized("p", "3"), sized("q", "1")
    bench.begin(large, 3000)
    bench.begin(other, 1000)
    small = sized("p", "1")
    bench.ask(large, small, 3000)
    bench.ask(other, sized("q", "2"), 2000)
    group = pod_view(small).groups[1]
    refused = RefusedValue(group, Knob.CPU_QUOTA, "cpu.cfs_quota_us", "100000", 22, "no")
    bench.cycle(WriteReport(refused=(refused,)))
    assert bench.resize_of("p").state is ResizeState.IN_PROGRESS
    assert bench.resize_of("p").applied == stated(large.spec)
    assert bench.resize_of("q").state is ResizeState.DEFERRED
    bench.cycle(WriteReport(still_refused=1))
    assert bench.resize_of("p").state is ResizeState.IN_PROGRESS
    bench.cycle()
    assert bench.resize_of("p").state is ResizeState.DONE
    bench.cycle()
    assert bench.resize_of("q").state is ResizeState.DONE


def test_a_memory_limit_below_what_is_used_waits() -> None:
    bench = Node().load()
    large = sized("p", "1", "1Gi")
    bench.begin(large, 1000)
    small = sized("p", "1", "512Mi")
    bench.ask(large, small, 1000)
    bench.reading = replace(snapshot(100), pods=dict(using(large, 700 * MIB)))
    bench.cycle()
    waits = bench.resize_of("p")
    assert waits.state is ResizeState.IN_PROGRESS
    assert waits.message == f"memory limit 512Mi of container main is below the {700 * MIB} bytes in use"
    assert bench.values(small)[Knob.MEMORY_LIMIT] == str(GIB)
    bench.reading = replace(snapshot(100), pods=dict(using(large, 300 * MIB)))
    bench.cycle()
    assert bench.values(small)[Knob.MEMORY_LIMIT] == str(512 * MIB)
    assert bench.resize_of("p").state is ResizeState.DONE


@pytest.mark.parametrize(("cpu", "state"), [("4", ResizeState.DEFERRED), ("5", ResizeState.INFEASIBLE)])
def test_a_memory_limit_waits_also_while_a_further_resize_is_not_admitted(cpu: str, state: ResizeState) -> None:
    """Otherwise the kernel would kill the container at the limit that was admitted before."""
    bench = Node().load()
    large, small = sized("p", "1", "1Gi"), sized("p", "1", "512Mi")
    bench.begin(large, 1000)
    bench.begin(sized("q", "1"), 1000)
    bench.ask(large, small, 1000)
    bench.reading = replace(snapshot(100), pods=dict(using(large, 700 * MIB)))
    bench.cycle()
    bench.ask(small, sized("p", cpu, "1Gi"), 4000)
    for _ in range(2):
        bench.cycle()
        status = bench.resize_of("p")
        assert (status.state, status.admitted, status.applied) == (state, stated(small.spec), stated(large.spec))
        assert bench.values(small)[Knob.MEMORY_LIMIT] == str(GIB)
        bench.restarted()
    bench.reading = replace(snapshot(100), pods=dict(using(large, 300 * MIB)))
    bench.cycle()
    status = bench.resize_of("p")
    assert (status.state, status.admitted, status.applied) == (state, stated(small.spec), ())
    assert bench.values(small)[Knob.MEMORY_LIMIT] == str(512 * MIB)


def test_a_refused_value_counts_also_while_a_further_resize_is_not_admitted() -> None:
    bench = Node().load()
    large, small = sized("p", "3"), sized("p", "1")
    bench.begin(large, 3000)
    bench.ask(large, small, 3000)
    refused = RefusedValue(pod_view(small).groups[1], Knob.CPU_QUOTA, "cpu.cfs_quota_us", "100000", 22, "no")
    bench.cycle(WriteReport(refused=(refused,)))
    bench.ask(small, sized("p", "5"), 5000)
    bench.cycle(WriteReport(still_refused=1))
    assert bench.resize_of("p").applied == stated(large.spec)
    bench.cycle()
    assert (bench.resize_of("p").state, bench.resize_of("p").applied) == (ResizeState.INFEASIBLE, ())


def test_what_waits_never_moves_a_pod_to_another_class() -> None:
    """The new CPU beside the old memory would be a guaranteed pod, whose control group is another one: all of it waits."""

    def entry(cpu: str, memory: str, limit: str) -> Pod:
        return pod("p", "LS", requests={"cpu": cpu, "memory": memory}, limits={"cpu": "2", "memory": limit})

    bench = Node().load()
    large = entry("1", "1Gi", "1Gi")
    bench.begin(large, 1000)
    small = entry("2", "256Mi", "512Mi")
    bench.ask(large, small, 2000)
    bench.reading = replace(snapshot(100), pods=dict(using(large, 700 * MIB)))
    bench.cycle()
    assert bench.resize_of("p").state is ResizeState.IN_PROGRESS
    assert bench.values(small)[Knob.CPU_SHARES] == "1024"
    bench.reading = None
    bench.cycle()
    assert bench.resize_of("p").state is ResizeState.DONE
    assert bench.values(small)[Knob.CPU_SHARES] == "2048"


def test_the_room_goes_by_priority_and_then_by_age() -> None:
    bench = Node().load()
    for name, priority in (("a", None), ("b", 9000), ("c", 9000)):
        bench.begin(sized(name, "1", priority=priority), 1000)
    for name, priority in (("a", None), ("c", 9000), ("b", 9000)):
        bench.ask(sized(name, "1", priority=priority), sized(name, "2", priority=priority), 2000)
    bench.cycle()
    states = {name: bench.resize_of(name).state for name in "abc"}
    assert states == {"a": ResizeState.DEFERRED, "b": ResizeState.DEFERRED, "c": ResizeState.DONE}


def test_a_batch_pod_is_resized_within_the_batch_resources() -> None:
    bench = Node().load()
    bench.store(resources_subject(NODE), NodeResources(node=NODE, batch_cpu_milli=3000, batch_memory_bytes=8 * GIB))
    small = batch("b", 1000)
    bench.begin(small, 0)
    bench.ask(small, batch("b", 4000), 0)
    bench.cycle()
    assert bench.resize_of("b").state is ResizeState.INFEASIBLE
    bench.ask(small, batch("b", 2000), 0)
    bench.cycle()
    assert bench.resize_of("b").state is ResizeState.DONE
    assert bench.values(small)[Knob.CPU_QUOTA] == "200000"


def test_a_pod_grows_into_its_reservation_and_not_into_that_of_others() -> None:
    bench = Node().load()
    share = ReservationShare(node=NODE, name="r", uid="uid-r", allocatable={"cpu": 2000})
    bench.store(reservation_subject(NODE, "r"), share)
    bench.begin(sized("p", "1"), 1000)
    bench.ask(sized("p", "1"), sized("p", "3"), 3000)
    bench.cycle()
    assert bench.resize_of("p").state is ResizeState.DEFERRED
    mine = Allocation(reservation=ReservationUsed(name="r", uid="uid-r"))
    bench.ask(sized("p", "1"), sized("p", "4"), 4000, allocation=mine)
    bench.cycle()
    assert bench.resize_of("p").state is ResizeState.DONE
    bench.store(reservation_subject(NODE, "r"), share, tombstone=True)
    bench.cycle()


def restarting(cpu: str, memory: str) -> Pod:
    """A pod whose container is restarted when its memory changes, and not when its CPU does."""
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    wanted = {"cpu": cpu, "memory": memory}
    main = {"name": "main", "command": ["run"], "resources": {"requests": wanted, "limits": wanted}, "resizePolicy": policy}
    return pod("p", "LS", containers=[main])


def orders_of(bench: Node) -> list[Order]:
    """What the next cycle orders; its writes are in force."""
    bench.look()
    orders = list(bench.core.plan(bench.now).orders)
    bench.core.wrote(WriteReport(), bench.now)
    bench.report()
    return orders


def test_a_container_is_restarted_for_a_resource_of_which_its_policy_says_so() -> None:
    bench = Node().load()
    small = restarting("1", "2Gi")
    bench.begin(small, 1000)
    bench.ask(small, restarting("2", "2Gi"), 2000)
    bench.cycle()
    assert bench.resize_of("p").state is ResizeState.DONE
    assert orders_of(bench) == []

    small, wants = restarting("2", "2Gi"), restarting("2", "1Gi")
    bench.ask(small, wants, 2000)
    assert orders_of(bench) == []  # before its report is stored, nothing is ended
    asked = bench.resize_of("p")
    assert (asked.state, asked.restarts, asked.message) == (
        ResizeState.IN_PROGRESS, {"main": 0}, "restarted for it: container main"
    )  # fmt: skip
    for _ in range(2):
        assert orders_of(bench) == [EndAttempt("uid-p", "main", 0, 30)]
        assert bench.values(small)[Knob.MEMORY_LIMIT] == str(2 * GIB)

    bench.saw(small, pid=7, started_at=bench.now, finished_at=bench.now, exit_code=0)
    bench.reading = replace(snapshot(100), pods=dict(using(small, 2 * GIB)))
    (start,) = orders_of(bench)
    assert isinstance(start, Start)
    assert (start.container, start.attempt, start.backoff_seconds) == ("main", 1, 0)
    assert bench.values(small)[Knob.MEMORY_LIMIT] == str(GIB)
    report = bench.last[run_subject(NODE, "default", "p")].data
    assert isinstance(report, RunStatus)
    assert (report.phase, report.containers[0].state, report.resize and report.resize.state) == (
        RunPhase.RUNNING, "waiting", ResizeState.IN_PROGRESS
    )  # fmt: skip

    bench.saw(small, attempt=1, pid=8, started_at=bench.now)
    assert orders_of(bench) == []
    done = bench.resize_of("p")
    assert (done.state, done.restarts, done.applied, done.message) == (ResizeState.DONE, {}, (), "")
    assert orders_of(bench) == []


def test_an_executor_that_starts_between_both_attempts_starts_the_next_one() -> None:
    bench = Node().load()
    small, wants = restarting("1", "1Gi"), restarting("1", "2Gi")
    bench.begin(small, 1000)
    bench.ask(small, wants, 1000)
    bench.cycle()
    bench.cycle()
    bench.restarted()
    bench.saw(small, pid=7, started_at=bench.now, finished_at=bench.now, exit_code=0)
    (start,) = orders_of(bench)
    assert isinstance(start, Start)
    assert start.attempt == 1


def test_a_container_that_does_not_run_is_not_ended_for_a_resize() -> None:
    bench = Node().load()
    small = restarting("1", "1Gi")
    bench.begin(small, 1000)
    bench.saw(small, attempt=3, started_at=bench.now, finished_at=bench.now, exit_code=1, backoff_seconds=10)
    bench.cycle()
    bench.ask(small, restarting("1", "2Gi"), 1000)
    bench.cycle()
    assert (bench.resize_of("p").state, bench.resize_of("p").restarts) == (ResizeState.DONE, {})


def test_a_restart_goes_on_although_a_further_resize_is_refused() -> None:
    bench = Node().load()
    small, wants = restarting("1", "2Gi"), restarting("1", "1Gi")
    bench.begin(small, 1000)
    bench.ask(small, wants, 1000)
    bench.cycle()
    bench.ask(wants, restarting("9", "1Gi"), 1000)
    bench.cycle()
    refused = bench.resize_of("p")
    assert (refused.state, refused.restarts) == (ResizeState.INFEASIBLE, {"main": 0})
    assert orders_of(bench) == [EndAttempt("uid-p", "main", 0, 30)]
    bench.saw(small, attempt=1, pid=8, started_at=bench.now)
    bench.cycle()
    bench.cycle()
    assert (bench.resize_of("p").state, bench.resize_of("p").restarts) == (ResizeState.INFEASIBLE, {})
    assert bench.values(small)[Knob.MEMORY_LIMIT] == str(GIB)


def test_an_executor_that_starts_goes_on_from_what_was_reported() -> None:
    """Killed after a resize was deferred, after one was refused a value, and before anything of one was reported."""
    bench = Node().load()
    for name in "pqr":
        bench.begin(sized(name, "1"), 1000)
    bench.ask(sized("p", "1"), sized("p", "3"), 3000)
    bench.cycle()
    assert bench.resize_of("p").state is ResizeState.DEFERRED
    was, shrinks = sized("q", "1"), sized("q", "500m")
    bench.ask(was, shrinks, 1000)
    refused = RefusedValue(pod_view(shrinks).groups[1], Knob.CPU_QUOTA, "cpu.cfs_quota_us", "50000", 22, "no")
    bench.cycle(WriteReport(refused=(refused,)))
    assert bench.resize_of("q").state is ResizeState.IN_PROGRESS
    was, grows = sized("r", "1"), sized("r", "1500m")
    bench.ask(was, grows, 1500)
    bench.restarted()
    bench.look(1)
    bench.core.plan(bench.now)
    assert bench.values(sized("p", "1"))[Knob.CPU_QUOTA] == "100000"
    assert bench.values(shrinks)[Knob.CPU_QUOTA] == "50000"
    assert bench.values(grows)[Knob.CPU_QUOTA] == "150000"
    bench.core.wrote(WriteReport(), bench.now)
    bench.report()
    states = {name: bench.resize_of(name).state for name in "pqr"}
    assert states == {"p": ResizeState.DEFERRED, "q": ResizeState.DONE, "r": ResizeState.DONE}


def test_a_second_resize_starts_from_what_the_first_was_admitted_with() -> None:
    bench = Node().load()
    bench.begin(sized("p", "1"), 1000)
    bench.begin(sized("q", "1"), 1000)
    bench.ask(sized("p", "1"), sized("p", "3"), 3000)
    bench.cycle()
    bench.ask(sized("p", "1"), sized("p", "5"), 5000)
    bench.cycle()
    status = bench.resize_of("p")
    assert status.state is ResizeState.INFEASIBLE
    assert status.admitted == stated(sized("p", "3").spec)
    assert bench.values(sized("p", "1"))[Knob.CPU_QUOTA] == "300000"
