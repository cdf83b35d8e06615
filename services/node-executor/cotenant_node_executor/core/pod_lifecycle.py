"""One pod's lifecycle on its node: the placement and the observed containers in; orders and its report out.

In: the placement, the last report, the containers' states, the time. Out: orders (repeated every cycle until they have taken
effect) and the current report.

| placement | containers | order | phase |
|---|---|---|---|
| bound | not started, or exited and the policy restarts it and the back-off is over | start | pending, running |
| bound | all exited, none restarts | collect | succeeded if all codes are 0, else failed |
| bound, past activeDeadlineSeconds | some not exited | stop | running, then failed |
| bound, evicted by a strategy | some not exited | stop | running, then failed |
| terminating | some not exited | stop | running, then stopped |

A terminal phase is final: nothing is started again. Source: kubelet's pod lifecycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from cotenant.events.node.runs import ContainerRun, RunPhase, RunStatus
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.bounds import saturated_seconds
from cotenant.model.values import Value
from cotenant_node_executor.runtime.interface import (
    REASON_COMPLETED,
    REASON_CREATING,
    REASON_UNKNOWN,
    UNKNOWN_EXIT,
    Collect,
    ContainerState,
    Order,
    PodToRun,
    Start,
    Stop,
)
from cotenant_node_executor.runtime.restart import backoff_seconds, restarts
from cotenant_node_executor.strategies.strategy import Evict

WAITING = "waiting"
RUNNING = "running"
TERMINATED = "terminated"
REASON_BACKOFF = "CrashLoopBackOff"
REASON_EVICTED = "Evicted"
REASON_DEADLINE = "DeadlineExceeded"

States = Mapping[str, ContainerState]

_RUN_PENDING, _RUN_RUNNING = RunPhase.PENDING, RunPhase.RUNNING
_TERMINATING = PlacementPhase.TERMINATING


class PodStep(Value, frozen=True):
    """The result of one cycle for one pod."""

    orders: tuple[Order, ...]
    report: RunStatus
    steady: bool = False
    """All containers run, so equal placement, report and states give the same step at any later time."""


def pod_step(
    to_run: PodToRun, placement: Placement, last: RunStatus | None, states: States, now: datetime,
    evict: Evict | None = None,
) -> PodStep:
    """Compute one cycle of a pod with a valid manifest. `last`: the last report of the same uid; `evict`: a strategy's order to
    end it."""
    base = last or RunStatus(
        node=placement.node, namespace=placement.namespace, name=placement.name, uid=placement.uid, phase=_RUN_PENDING
    )
    if base.phase.terminal:
        ending: Order = Stop(placement.uid, 0) if any_unfinished(states) else Collect(placement.uid)
        return PodStep((ending,), base)
    if placement.phase is _TERMINATING:
        return _ending(to_run, base, states, placement.grace_period_seconds, RunPhase.STOPPED, placement.reason)
    if evict is not None:
        step = _ending(to_run, base, states, evict.grace_seconds, RunPhase.FAILED, REASON_EVICTED)
        return replace(step, report=replace(step.report, message=evict.why)) if step.report.phase.terminal else step
    deadline = to_run.pod.spec.active_deadline_seconds
    lived = now - base.started_at if base.started_at is not None else timedelta()
    if deadline is not None and lived >= timedelta(seconds=saturated_seconds(deadline)) and base.started_at is not None:
        grace = to_run.pod.spec.termination_grace_period_seconds
        grace = placement.grace_period_seconds if grace is None else saturated_seconds(grace)
        return _ending(to_run, base, states, grace, RunPhase.FAILED, REASON_DEADLINE)
    return _running(to_run, base, states, now)


def any_unfinished(states: States) -> bool:
    """Whether any of these containers has not exited."""
    return any(not state.exited for state in states.values())


def _ending(to_run: PodToRun, base: RunStatus, states: States, grace: int, phase: RunPhase, reason: str) -> PodStep:
    containers = tuple([_seen(last.name, states.get(last.name), last) for last in _last(to_run, base)])
    if any_unfinished(states):
        return PodStep((Stop(base.uid, grace),), replace(base, containers=containers))
    report = replace(base, containers=containers, phase=phase, reason=reason, finished_at=_latest(containers))
    return PodStep((Collect(base.uid),), report)


def _running(to_run: PodToRun, base: RunStatus, states: States, now: datetime) -> PodStep:
    orders: list[Order] = []
    containers: list[ContainerRun] = []
    started_at = base.started_at
    running = terminated = 0
    for last in _last(to_run, base):
        order, container = _container(to_run, last.name, states.get(last.name), last, now)
        containers.append(container)
        if order is not None:
            orders.append(order)
        if container.state == RUNNING:
            running += 1
        elif container.state == TERMINATED:
            terminated += 1
        begun = container.started_at
        if begun is not None and base.started_at is None and (started_at is None or begun < started_at):
            started_at = begun
    phase = base.phase if started_at is None else _RUN_RUNNING
    report = replace(base, containers=tuple(containers), started_at=started_at, phase=phase)
    if 0 < terminated == len(containers):
        failed = next((container for container in containers if container.exit_code != 0), None)
        return PodStep(
            (Collect(base.uid),),
            replace(
                report,
                phase=RunPhase.SUCCEEDED if failed is None else RunPhase.FAILED,
                finished_at=_latest(containers),
                reason="" if failed is None else failed.reason,
                message="" if failed is None else f"container {failed.name} ended with exit code {failed.exit_code}",
            ),
        )
    lasting = phase is _RUN_RUNNING and to_run.pod.spec.active_deadline_seconds is None
    return PodStep(tuple(orders), report, steady=lasting and running == len(containers))


def _container(
    to_run: PodToRun, name: str, state: ContainerState | None, last: ContainerRun, now: datetime
) -> tuple[Order | None, ContainerRun]:
    if state is None:
        if last.state == WAITING and not last.restarts and last.started_at is None:
            return Start(to_run, name, 0), replace(last, reason=REASON_CREATING)
        # Its files and processes are gone, for example after a reboot: it ended with an unknown exit code.
        state = ContainerState(
            name, last.restarts, started_at=last.started_at, finished_at=last.finished_at or now,
            exit_code=last.exit_code if last.exit_code is not None else UNKNOWN_EXIT,
            reason=last.reason if last.exit_code is not None else REASON_UNKNOWN,
        )
    seen = _seen(name, state, last)
    if state.exit_code is None or not restarts(to_run.pod.spec.restart_policy, state.exit_code):
        return None, seen
    ended = state.finished_at or now
    ran = (ended - state.started_at).total_seconds() if state.started_at is not None else 0.0
    wait = backoff_seconds(state.attempt, state.backoff_seconds, ran)
    waiting = replace(
        seen,
        state=WAITING,
        reason=REASON_BACKOFF if wait else seen.reason,
        message=f"back-off {wait}s before the next start" if wait else seen.message,
        backoff_seconds=wait,
    )
    if now < ended + timedelta(seconds=wait):
        return None, waiting
    return Start(to_run, name, state.attempt + 1, wait), waiting


def _seen(name: str, state: ContainerState | None, last: ContainerRun) -> ContainerRun:
    """A container's report as observed, before the restart policy is applied."""
    if state is None:
        return last
    if state.exit_code is not None:
        return ContainerRun(
            name=name,
            state=TERMINATED,
            restarts=state.attempt,
            started_at=state.started_at,
            finished_at=state.finished_at,
            exit_code=state.exit_code,
            reason=state.reason or REASON_COMPLETED,
            message=state.message,
        )
    if state.started_at is None:
        return ContainerRun(name=name, restarts=state.attempt, reason=state.reason)
    return ContainerRun(
        name=name,
        state=RUNNING,
        ready=True,
        restarts=state.attempt,
        pid=state.pid,
        started_at=state.started_at,
    )


def _last(to_run: PodToRun, base: RunStatus) -> list[ContainerRun]:
    """Each container as last reported, in the manifest's order."""
    wanted = to_run.pod.spec.containers
    if not base.containers:
        return [ContainerRun(name=container.name) for container in wanted]
    reported = {entry.name: entry for entry in base.containers}
    return [reported.get(container.name) or ContainerRun(name=container.name) for container in wanted]


def _latest(containers: Sequence[ContainerRun]) -> datetime | None:
    return max((c.finished_at for c in containers if c.finished_at is not None), default=None)
