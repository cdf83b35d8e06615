"""The life of pods on a node, through apply, observe, plan and decide."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from cotenant.api.objects.pod import Pod
from cotenant.events.node.runs import ContainerRun, ExecutorStatus, RunPhase, RunStatus
from cotenant.events.placements import PlacementPhase
from cotenant.log.contract import TOMBSTONE_TTL_SECONDS
from cotenant.model.subjects import executor_subject, run_subject
from cotenant_node_executor.core import pod_lifecycle
from cotenant_node_executor.core.plan import CyclePlan
from cotenant_node_executor.runtime.interface import Collect, Forget, PodToRun, Start, Stop
from cotenant_node_executor.strategies.registry import STRATEGIES
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Input, Strategy, StrategyDecision
from tests.unit.node_executor.builders_node_executor import NODE, START, Bench, batch, pod


def orders(bench: Bench) -> list[tuple[str, Any]]:
    """What is asked of the runtime, in short."""
    found: list[tuple[str, Any]] = []
    for order in bench.core.plan(bench.now).orders:
        match order:
            case Start():
                found.append(("start", order.attempt))
            case Stop():
                found.append(("stop", order.grace_seconds))
            case Collect():
                found.append(("collect", order.uid))
            case Forget():
                found.append(("forget", order.uid))
    return found


def last(bench: Bench) -> RunStatus:
    """The only report that was just decided."""
    events = bench.report()
    assert len(events) == 1, events
    assert isinstance(events[0].data, RunStatus)
    return events[0].data


def running(bench: Bench, entry: Pod, **more: Any) -> RunStatus:
    """Let it be seen running, and report it."""
    bench.groups.update((f"besteffort/pod{entry.metadata.uid}", f"besteffort/pod{entry.metadata.uid}/main"))
    bench.saw(entry, pid=100, started_at=bench.now, **more)
    return last(bench.look())


def test_nothing_happens_before_the_start_marker_is_delivered() -> None:
    bench = Bench()
    bench.place(batch("job"))
    bench.look()
    assert orders(bench) == []
    assert bench.report() == []
    bench.store(executor_subject(NODE), ExecutorStatus(node=NODE, boot="an earlier incarnation"))
    assert orders(bench) == []
    bench.load()
    assert orders(bench) == [("start", 0)]


def test_pods_stay_supervised_after_the_node_and_the_start_marker_are_removed() -> None:
    bench = Bench().load()
    bench.place(batch("job"))
    bench.look()
    bench.store(executor_subject(NODE), ExecutorStatus(node=NODE, boot="boot"), tombstone=True)
    assert orders(bench) == [("start", 0)]


def test_a_placed_pod_is_started_with_its_groups_and_values_and_reported_with_its_placement_as_cause() -> None:
    bench = Bench().load()
    placed = bench.place(batch("job"))
    bench.look()
    plan = bench.core.plan(bench.now)
    assert plan.groups == ("besteffort/poduid-job", "besteffort/poduid-job/main")
    assert set(plan.targets.texts) >= set(plan.groups)
    assert bench.core.decide(bench.now) == []
    assert bench.core.holds_reports
    assert bench.look(0.499).core.decide(bench.now) == []
    assert not bench.core.holds_reports
    assert bench.look(0.001).core.decide(bench.now)[0].causes == (placed.ref,)
    assert last(bench).phase is RunPhase.PENDING
    assert bench.core.decide(bench.now) == []
    report = running(bench, batch("job"))
    assert report.phase is RunPhase.RUNNING
    assert report.containers[0].ready
    assert orders(bench) == []


def test_a_pod_that_runs_within_half_a_second_is_reported_once() -> None:
    bench = Bench().load()
    bench.place(batch("job"))
    assert orders(bench.look()) == [("start", 0)]
    assert bench.report() == []
    assert bench.look(0.4).report() == []
    assert running(bench, batch("job")).phase is RunPhase.RUNNING
    assert bench.report() == []


def test_an_outdated_report_is_corrected_and_a_current_one_is_not_repeated() -> None:
    bench = Bench().load()
    job = batch("job")
    bench.place(job)
    bench.saw(job, pid=100, started_at=bench.now)
    (decided,) = bench.look().core.decide(bench.now)
    assert isinstance(decided.data, RunStatus)
    bench.store(decided.subject, msgspec.structs.replace(decided.data, containers=()))
    (corrected,) = bench.core.decide(bench.now)
    bench.store(corrected.subject, corrected.data)
    bench.core.plan(bench.now)
    assert not bench.core.decide(bench.now)
    assert not bench.core.has_work


@pytest.mark.parametrize(("code", "phase"), [(0, RunPhase.SUCCEEDED), (3, RunPhase.FAILED)])
def test_a_pod_that_is_never_restarted_ends_with_its_exit_code(code: int, phase: RunPhase) -> None:
    bench = Bench().load()
    job = batch("job", restartPolicy="Never")
    bench.place(job)
    running(bench, job)
    bench.saw(job, started_at=START, finished_at=START, exit_code=code)
    report = last(bench.look())
    assert (report.phase, report.containers[0].exit_code) == (phase, code)
    assert orders(bench) == [("collect", "uid-job")]
    bench.groups -= {"besteffort/poduid-job", "besteffort/poduid-job/main"}
    assert orders(bench.look()) == []


def test_the_first_restart_is_immediate_and_the_following_back_off() -> None:
    bench = Bench().load()
    job = batch("job", restartPolicy="OnFailure")
    bench.place(job)
    bench.look()
    wait = 0
    for attempt, expected in enumerate((0, 10, 20, 40, 80, 160, 300, 300)):
        bench.saw(job, attempt=attempt, started_at=bench.now, finished_at=bench.now, exit_code=1, backoff_seconds=wait)
        bench.look()
        if expected:
            report = last(bench)
            assert report.containers[0].reason == "CrashLoopBackOff"
            assert report.containers[0].backoff_seconds == expected
            assert orders(bench.look(expected - 1)) == []
            bench.look(1)
        assert orders(bench) == [("start", attempt + 1)]
        wait = expected


def test_a_long_run_resets_the_back_off() -> None:
    bench = Bench().load()
    job = batch("job", restartPolicy="Always")
    bench.place(job)
    bench.saw(
        job, attempt=6, started_at=START, finished_at=START + timedelta(minutes=10), exit_code=0, backoff_seconds=160
    )
    assert orders(bench.look(600)) == [("start", 7)]


def test_a_terminating_pod_is_stopped_with_its_grace_and_then_reported_stopped() -> None:
    bench = Bench().load()
    job = batch("job")
    bench.place(job)
    running(bench, job)
    bench.place(job, PlacementPhase.TERMINATING, grace=7, reason="deleted")
    assert orders(bench.look()) == [("stop", 7)]
    assert bench.report() == []
    bench.saw(job, started_at=START, finished_at=START, exit_code=143)
    report = last(bench.look())
    assert (report.phase, report.reason, report.containers[0].exit_code) == (RunPhase.STOPPED, "deleted", 143)


@pytest.mark.parametrize(("age", "replaces"), [(4, False), (5, True)])
def test_the_report_of_an_end_replaces_earlier_ones_that_are_old_enough(age: int, replaces: bool) -> None:
    bench = Bench().load()
    job = batch("job", restartPolicy="Never")
    bench.place(job)
    running(bench, job)
    bench.saw(job, started_at=START, finished_at=START, exit_code=1)
    [event] = bench.look(age).core.decide(bench.now)
    assert isinstance(event.data, RunStatus)
    assert (event.data.phase, event.replaces, event.tombstone) == (RunPhase.FAILED, replaces, False)


def stopped(bench: Bench, job: Pod) -> None:
    """The pod runs, is ended, and its stop is reported."""
    bench.place(job)
    running(bench, job)
    bench.place(job, PlacementPhase.TERMINATING)
    bench.saw(job, started_at=START, finished_at=START, exit_code=143)
    assert last(bench.look()).phase is RunPhase.STOPPED


def test_that_a_pod_was_stopped_is_the_last_message_of_its_run_and_not_repeated() -> None:
    bench = Bench().load()
    job = batch("job")
    stopped(bench, job)
    event = bench.last[run_subject(NODE, "default", "job")]
    assert event.tombstone
    assert orders(bench.look(1)) == [("collect", "uid-job")]
    bench.groups = {group for group in bench.groups if "uid-job" not in group}
    assert orders(bench.look(1)) == []
    assert bench.report() == []
    assert not bench.core.has_work, "nothing is left to do until the placement is gone"
    bench.place(job, PlacementPhase.GONE)
    assert orders(bench.look(1)) == [("forget", "uid-job")]
    del bench.states["uid-job"]
    assert orders(bench.look(1)) == []
    assert bench.report() == []
    assert not bench.core.has_work


def test_a_stop_has_the_lifetime_of_a_tombstone() -> None:
    bench = Bench().load()
    bench.place(batch("job"), PlacementPhase.TERMINATING)
    [event] = bench.look().core.decide(bench.now)
    assert (event.tombstone, event.replaces, event.ttl_seconds) == (True, False, TOMBSTONE_TTL_SECONDS)


def test_a_restarted_executor_does_not_report_a_stop_again() -> None:
    bench = Bench().load()
    stopped(bench, batch("job"))
    bench.restarted().look()
    assert bench.report() == []


def test_an_executor_that_no_longer_finds_its_report_of_a_stop_repeats_it() -> None:
    bench = Bench().load()
    stopped(bench, batch("job"))
    del bench.last[run_subject(NODE, "default", "job")]
    bench.states.clear()
    assert last(bench.restarted().look()).phase is RunPhase.STOPPED


def test_a_stopped_pod_that_is_placed_again_is_started_again() -> None:
    bench = Bench().load()
    job = batch("job")
    stopped(bench, job)
    bench.place(job, PlacementPhase.GONE)
    bench.states.clear()
    bench.look(1)
    bench.place(job)
    assert orders(bench.look(1)) == [("start", 0)]


def test_a_stop_is_reported_again_to_a_placement_that_was_stored_after_it() -> None:
    bench = Bench().load()
    job = batch("job")
    stopped(bench, job)
    bench.place(job, PlacementPhase.TERMINATING, object_sequence=7)
    assert last(bench.look(1)).phase is RunPhase.STOPPED
    assert bench.look(1).report() == []


def test_a_load_may_bring_a_stop_before_the_placement_that_it_is_about() -> None:
    bench = Bench().load()
    stopped(bench, batch("job"))
    bench.last = dict(sorted(bench.last.items(), key=lambda item: ".run." not in item[0]))
    bench.restarted().look()
    assert bench.report() == []


def test_a_pod_that_never_started_is_stopped_at_once() -> None:
    bench = Bench().load()
    bench.place(batch("job"), PlacementPhase.TERMINATING)
    report = last(bench.look())
    assert report.phase is RunPhase.STOPPED
    assert orders(bench) == []


def test_an_ended_pod_is_never_started_again() -> None:
    bench = Bench().load()
    job = batch("job", restartPolicy="Always")
    bench.place(job)
    ended = RunStatus(node=NODE, namespace="default", name="job", uid="uid-job", phase=RunPhase.EVICTED)
    bench.store(run_subject(NODE, "default", "job"), ended)
    assert orders(bench.look()) == []
    assert bench.report() == []


def test_a_pod_past_its_active_deadline_is_stopped_and_has_failed() -> None:
    bench = Bench().load()
    job = batch("job", activeDeadlineSeconds=60, terminationGracePeriodSeconds=3)
    bench.place(job)
    running(bench, job)
    assert orders(bench.look(59)) == []
    assert orders(bench.look(1)) == [("stop", 3)]
    bench.saw(job, started_at=START, finished_at=bench.now, exit_code=143)
    report = last(bench.look())
    assert (report.phase, report.reason) == (RunPhase.FAILED, "DeadlineExceeded")


def test_a_container_without_files_ended_with_an_unknown_code_and_its_policy_decides() -> None:
    bench = Bench().load()
    lost = ContainerRun(name="main", state="running", ready=True, restarts=2, started_at=START)
    for name, policy in (("again", "Always"), ("once", "Never")):
        bench.place(batch(name, restartPolicy=policy))
        status = RunStatus(
            node=NODE, namespace="default", name=name, uid=f"uid-{name}", phase=RunPhase.RUNNING, containers=(lost,)
        )
        bench.store(run_subject(NODE, "default", name), status)
    bench.look(1000)
    assert orders(bench) == [("start", 3)]
    reports = {event.data.name: event.data for event in bench.report() if isinstance(event.data, RunStatus)}
    assert reports["once"].phase is RunPhase.FAILED
    assert reports["once"].containers[0].reason == "ContainerStatusUnknown"


def test_an_orphaned_pod_is_stopped_and_then_forgotten() -> None:
    bench = Bench().load()
    job = batch("job")
    bench.saw(job, started_at=START, pid=5)
    assert orders(bench.look()) == [("stop", 30)]
    bench.saw(job, started_at=START, finished_at=START, exit_code=143)
    assert orders(bench.look()) == [("forget", "uid-job")]


def test_when_a_placement_is_gone_its_report_ends_with_a_tombstone() -> None:
    bench = Bench().load()
    job = batch("job")
    bench.place(job)
    bench.look()
    assert bench.report() == []
    bench.look(0.5)
    assert last(bench).phase is RunPhase.PENDING
    bench.place(job, PlacementPhase.GONE)
    event = bench.core.decide(bench.now)[0]
    bench.report()
    assert event.tombstone
    assert event.ttl_seconds == TOMBSTONE_TTL_SECONDS
    assert bench.report() == []


def test_a_new_pod_of_the_same_name_replaces_the_former_ones_processes_and_report() -> None:
    bench = Bench().load()
    old = batch("job")
    bench.place(old)
    running(bench, old)
    new = pod("job", "BE")
    new = msgspec.structs.replace(new, metadata=msgspec.structs.replace(new.metadata, uid="uid-second"))
    bench.place(new)
    assert sorted(orders(bench.look())) == [("start", 0), ("stop", 30)]
    assert bench.report() == []
    bench.look(0.5)
    assert last(bench).uid == "uid-second"


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({"volumes": [{"name": "data", "emptyDir": {}}]}, "volumes"),
        ({"containers": [{"name": "main", "image": "nginx"}]}, "command"),
        ({"containers": [{"name": "../../etc", "command": ["x"]}]}, "cannot name a folder"),
        ({"containers": []}, "unique names"),
    ],
)
def test_a_pod_that_cannot_run_as_processes_fails_with_the_reason(manifest: dict[str, Any], message: str) -> None:
    bench = Bench().load()
    bench.place(pod("odd", "BE", **manifest))
    report = last(bench.look())
    assert (report.phase, report.reason) == (RunPhase.FAILED, "UnsupportedPod")
    assert message in report.message
    assert orders(bench) == []


def test_a_uid_that_would_leave_its_folder_is_refused() -> None:
    bench = Bench().load()
    bad = batch("job")
    bench.place(msgspec.structs.replace(bad, metadata=msgspec.structs.replace(bad.metadata, uid="../../x")))
    assert "cannot name a folder" in last(bench.look()).message


def asked(bench: Bench) -> CyclePlan:
    """What a core asks for, whatever it asked for before."""
    plan = bench.core.plan(bench.now)
    return msgspec.structs.replace(plan, targets=msgspec.structs.replace(plan.targets, changed=()))


def test_a_core_that_loads_only_the_last_messages_ends_up_equal_in_any_order() -> None:
    bench = Bench().load()
    for name in ("a", "b", "c"):
        job = batch(name, restartPolicy="Never")
        bench.place(job)
        bench.look()
        bench.report()
    bench.slo()
    bench.slo(cpu_suppress_threshold_percent=40)
    bench.place(batch("b"), PlacementPhase.TERMINATING)
    bench.place(batch("c"), PlacementPhase.GONE)
    bench.report()
    for events in (list(bench.last.values()), list(reversed(bench.last.values()))):
        fresh = Bench()
        for event in (*events, *events):
            fresh.core.apply(event)
        fresh.states, fresh.groups, fresh.now = bench.states, bench.groups, bench.now
        fresh.look()
        bench.look()
        assert asked(fresh) == asked(bench)
        assert list(fresh.core.decide(bench.now)) == list(bench.core.decide(bench.now))
        for subject in bench.last:
            assert fresh.core.last_sequence(subject) == bench.core.last_sequence(subject)


def test_an_outdated_message_changes_nothing() -> None:
    bench = Bench().load()
    first = bench.place(batch("job"))
    bench.place(batch("job"), PlacementPhase.TERMINATING)
    bench.core.apply(first)
    assert bench.core.placed[("default", "job")].placement.phase is PlacementPhase.TERMINATING


def test_an_expectation_that_the_server_corrected_holds_until_the_next_message() -> None:
    bench = Bench().load()
    subject = run_subject(NODE, "default", "job")
    bench.core.correct_sequence(subject, 40)
    assert bench.core.last_sequence(subject) == 40
    status = RunStatus(node=NODE, namespace="default", name="job", uid="uid-job", phase=RunPhase.PENDING)
    bench.sequence = 39
    bench.store(subject, status)
    assert bench.core.last_sequence(subject) == 40
    assert bench.core.runs()["uid-job"] == status


# -- what raises is set aside ----------------------------------------------------------------------------------------


def test_a_pod_whose_step_raises_is_set_aside_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(to_run: PodToRun, *others: Any) -> pod_lifecycle.PodStep:
        if to_run.pod.metadata.name == "bad":
            raise OverflowError("a number too large")
        return pod_lifecycle.pod_step(to_run, *others)

    monkeypatch.setattr("cotenant_node_executor.core.pod_steps.pod_step", step)
    bench = Bench().load()
    placed = bench.place(batch("bad"))
    bench.place(batch("good"))
    for _ in range(3):
        assert orders(bench.look(1)) == [("start", 0)]
        assert all(isinstance(event.data, RunStatus) and event.data.name == "good" for event in bench.report())
    (finding,) = bench.core.findings
    assert (finding.event.subject, finding.event.sequence) == (placed.subject, placed.sequence)
    assert finding.reason == "OverflowError: a number too large"
    monkeypatch.undo()
    bench.place(batch("bad"))
    assert len(orders(bench.look(1))) == 2


def test_a_strategy_that_raises_keeps_its_last_values_and_is_reported_once_by_policy() -> None:
    def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
        if situation.slo is not None and situation.slo.cpu_suppress_threshold_percent == 99:
            raise ZeroDivisionError("no capacity")
        return StrategyDecision(memory=memory)

    strategy = Strategy("fragile", "fragile", (), decide=decide, inputs=lambda _policy: frozenset({Input.CYCLE}))
    bench = Bench(strategies=(strategy, *STRATEGIES)).load()
    bench.place(batch("job"))
    bench.slo(cpu_suppress_threshold_percent=65)
    bench.look(1).core.plan(bench.now)
    slo = bench.slo(cpu_suppress_threshold_percent=99)
    for _ in range(3):
        assert orders(bench.look(1)) == [("start", 0)]
    (finding,) = bench.core.findings
    assert (finding.event.subject, finding.event.sequence) == (slo.subject, slo.sequence)
    assert finding.reason == "strategy fragile: ZeroDivisionError: no capacity"
    bench.slo(cpu_suppress_threshold_percent=65)
    bench.look(1).core.plan(bench.now)
    assert len(bench.core.findings) == 1
