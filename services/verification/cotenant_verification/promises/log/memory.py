"""Promise 18: when memory runs out, pods above their limit or request are killed; they restart in time, and it is reported."""

from __future__ import annotations

from datetime import timedelta

from cotenant.api.objects.pod import decode_pod
from cotenant.events.envelope import Event
from cotenant.events.node.runs import ContainerRun, RunPhase, RunStatus
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.subjects import run_subject
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.oom_kills import MIB, memory_limit

KILLED = 137
"""128 and SIGKILL."""
LEAST_WAIT = timedelta(seconds=10)
LONG_RUN = timedelta(minutes=10)
"""A container that ran this long restarts at once."""
LEFT_ALONE = timedelta(minutes=2)


def kills_hit_pods_beyond_limits(moment: Moment) -> Wrong:
    """A kernel kills a pod that holds more than its limit, which a resize in place does not lower below what is used. If the
    machine lacks memory it kills no pod within its request while another pod runs that is beyond its own."""
    yield from moment.oom_kills.wrong


def nobody_holds_more_than_its_limit(moment: Moment) -> Wrong:
    """No running pod holds more than the limit in its manifest: the executor has written it. (A resize in place that lowers the
    limit is in force once its placement says no resize.)"""
    for name, node in sorted(moment.harness.nodes.items()):
        snapshot = node.simulated.snapshot
        if snapshot is None:
            continue
        for uid, placement in moment.oom_kills.placements(name).items():
            usage = snapshot.pods.get(uid)
            held = (usage.usage.memory_bytes or 0) if usage is not None else 0
            limit = memory_limit(decode_pod(placement.pod)) if held and placement.resize is None else None
            if limit is not None and held > limit:
                yield (
                    run_subject(name, placement.namespace, placement.name),
                    f"{placement.name} on {name} uses {held // MIB} MiB, its limit is {limit // MIB} MiB",
                )


def restarts_wait(view: LogView, event: Event) -> Wrong:
    """From the second restart on a container starts LEAST_WAIT after it ended, or later, unless it ran for LONG_RUN; by the
    clock of its node.
    """
    data, before = event.data, view.before(event)
    if not isinstance(data, RunStatus) or before is None or not isinstance(before.data, RunStatus):
        return
    for new, old in zip(data.containers, before.data.containers, strict=False):
        if before.data.uid == data.uid and new.restarts == old.restarts + 1 >= 2 and _hurried(new, old):
            yield event.subject, (
                f"{event.ref}: container {new.name} ended at {old.finished_at} and restarted at "
                f"{new.started_at}"
            )


def _hurried(new: ContainerRun, old: ContainerRun) -> bool:
    if new.started_at is None or old.finished_at is None or old.started_at is None:
        return False
    return new.started_at - old.finished_at < LEAST_WAIT and old.finished_at - old.started_at < LONG_RUN


def policies_are_kept(view: LogView, event: Event) -> Wrong:
    """A pod whose containers are to be restarted does not end because one of them did."""
    data = event.data
    if not isinstance(data, RunStatus) or data.phase not in (RunPhase.SUCCEEDED, RunPhase.FAILED) or event.tombstone:
        return
    placed = view.placed[data.node].get((data.namespace, data.name))
    if placed is None or not isinstance(placed.data, Placement) or placed.data.uid != data.uid:
        return
    policy = decode_pod(placed.data.pod).spec.restart_policy
    if policy == "Always" or (policy == "OnFailure" and data.phase is RunPhase.FAILED):
        yield event.subject, f"{event.ref}: {data.namespace}/{data.name} {data.phase} although its restartPolicy is {policy}"


def kills_are_reported(moment: Moment) -> Wrong:
    """The executor reports every placed pod that a kernel killed: it has ended with exit code 137, or has been restarted as
    often."""
    for (name, boot, uid), times in sorted(moment.oom_kills.times.items()):
        node = moment.harness.nodes.get(name)
        placement = moment.oom_kills.placements(name).get(uid)
        if node is None or node.boot != boot or placement is None:
            continue
        subject = run_subject(name, placement.namespace, placement.name)
        report = moment.view.last.get(subject)
        run = report.data if report is not None else None
        reported = isinstance(run, RunStatus) and run.uid == uid and any(_reports(each, times) for each in run.containers)
        if not reported:
            text = f"{placement.namespace}/{placement.name} on {name} was OOM-killed {times} times, which is not reported"
            yield subject, text


def _reports(container: ContainerRun, times: int) -> bool:
    return container.restarts >= times or (container.restarts == times - 1 and container.exit_code == KILLED)


def what_may_start_starts(moment: Moment) -> Wrong:
    """No container of a pod that should run waits for long beyond its back-off."""
    for name, node in sorted(moment.harness.nodes.items()):
        local = moment.now + node.inner.offset
        for placement in moment.oom_kills.placements(name).values():
            subject = run_subject(name, placement.namespace, placement.name)
            report = moment.view.last.get(subject)
            run = report.data if report is not None else None
            if placement.phase is not PlacementPhase.BOUND or not isinstance(run, RunStatus) or run.uid != placement.uid:
                continue
            for container in run.containers if not run.phase.terminal else ():
                wait = timedelta(seconds=container.backoff_seconds) + LEFT_ALONE
                if container.finished_at is not None and local - container.finished_at > wait:
                    yield subject, f"{container.name} on {name} ended at {container.finished_at} and still waits at {local}"
