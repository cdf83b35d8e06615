"""One pod of kubelet's: the placement and the groups of its containers in; its report and, for an eviction, a request out.

The executor starts and ends nothing on such a node, and reports only what it observes:

| placement | containers | report |
|---|---|---|
| bound | none has been seen | pending |
| bound | a group exists | running; a container without one waits |
| bound, kubelet's status in the manifest is Succeeded or Failed | none exists | that phase |
| bound, evicted by a strategy | as before | as before; the order requests an eviction until the pod is gone |
| terminating | the pod's group is gone | stopped |

A terminal phase is final, as for the executor's own pods (`pod_lifecycle`).
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from cotenant.events.node.runs import ContainerRun, RunPhase, RunStatus
from cotenant.events.placements import Placement, PlacementPhase
from cotenant_node_executor.core.pod_lifecycle import RUNNING, WAITING, PodStep, States
from cotenant_node_executor.runtime.interface import REASON_CREATING, AskEviction, ContainerState, Order, PodToRun
from cotenant_node_executor.strategies.strategy import Evict

REASON_NO_GROUP = "NoControlGroup"
_TERMINATING = PlacementPhase.TERMINATING
KUBELETS_END = {"Succeeded": RunPhase.SUCCEEDED, "Failed": RunPhase.FAILED}
"""The phases of a pod's status that are final, as kubelet writes them."""


def kubelet_step(
    to_run: PodToRun, placement: Placement, last: RunStatus | None, states: States | None, now: datetime,
    evict: Evict | None = None,
) -> PodStep:
    """Compute one cycle of a pod. `states`: None where the pod has no group."""
    base = last or RunStatus(
        node=placement.node, namespace=placement.namespace, name=placement.name, uid=placement.uid, phase=RunPhase.PENDING
    )
    if base.phase.terminal:
        return PodStep((), base, steady=True)
    if states is None and placement.phase is _TERMINATING:
        return PodStep((), replace(base, phase=RunPhase.STOPPED, reason=placement.reason, finished_at=now))
    ended = KUBELETS_END.get(to_run.pod.status.phase)
    if ended is not None and not states:
        return PodStep((), replace(base, phase=ended, finished_at=now))
    reported = {entry.name: entry for entry in base.containers}
    containers = tuple([
        _container((states or {}).get(each.name), each.name, reported.get(each.name)) for each in to_run.pod.spec.containers
    ])
    started_at = base.started_at or min((each.started_at for each in containers if each.started_at), default=None)
    phase = RunPhase.RUNNING if started_at is not None else base.phase
    orders: tuple[Order, ...] = ()
    if evict is not None and placement.phase is not _TERMINATING:
        orders = (AskEviction(placement.uid, placement.namespace, placement.name, evict.why, evict.grace_seconds),)
    running = sum(each.state == RUNNING for each in containers)
    report = replace(base, containers=containers, started_at=started_at, phase=phase)
    return PodStep(orders, report, steady=not orders and running == len(containers) and placement.phase is not _TERMINATING)


def _container(state: ContainerState | None, name: str, last: ContainerRun | None) -> ContainerRun:
    if state is not None:
        return ContainerRun(
            name=name, state=RUNNING, ready=True, restarts=state.attempt, pid=state.pid, started_at=state.started_at
        )
    if last is None or (last.state == WAITING and last.started_at is None):
        return ContainerRun(name=name, reason=REASON_CREATING)
    return replace(last, state=WAITING, ready=False, pid=0, reason=REASON_NO_GROUP)
