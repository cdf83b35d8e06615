"""Readiness of nodes: the condition of a node without samples, its NoSchedule taint, and the NoExecute taints of users.

In: metrics, executors, nodes, the conditions so far. Out: a NodeCondition event where one of these changes.

    metric has "unknown since", no executor event after it -> Unknown, taint unreachable:NoSchedule
    metric has "unknown since", the executor restarted after it -> False, taint not-ready:NoSchedule: nothing is measured yet
    metric is known again -> True, no taints

The NoExecute taint of a lost node follows its zone's rate (`tainting`); here it is only removed from a node that is ready
again, and changes its key with the status, from when it was set. `since` is when the status changed. NoExecute taints that a
user or the executor sets are noted with the time of the decision, so that tolerationSeconds do not start again with the next
change of the node or a restart. A node that never reported has no condition; without object and executor it loses it.

Source: Kubernetes node lifecycle (taints not-ready and unreachable).
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.node.conditions import NO_EXECUTE, TAINT_NOT_READY, TAINT_UNREACHABLE, NodeCondition, ObservedTaint
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.runs import ExecutorStatus
from cotenant.model.subjects import condition_subject
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.known import Known, end


def taint_key(status: str) -> str:
    """Return the key of a lost node's taints."""
    return TAINT_NOT_READY if status == "False" else TAINT_UNREACHABLE


def desired_condition(
    node: str, metric: Known[NodeMetricComputed], executor: Known[ExecutorStatus] | None, now: datetime
) -> NodeCondition:
    """Return the node's condition by its metric and executor, without taints."""
    unknown = metric.value.unknown_since
    if unknown is None:
        return NodeCondition(
            node=node, status="True", since=now, reason="ExecutorReady", message="samples arrive from the node"
        )
    since = unknown.isoformat(timespec="seconds")
    if executor is not None and executor.sequence > metric.sequence:
        message = f"the executor is back, no sample since {since}"
        return NodeCondition(node=node, status="False", since=now, reason="ExecutorStarting", message=message)
    message = f"nothing heard from the node since {since}"
    return NodeCondition(node=node, status="Unknown", since=now, reason="NodeStatusUnknown", message=message)


def set_taints(fold: ClusterFold, node: str) -> tuple[tuple[str, str], ...]:
    """Return key and value of the NoExecute taints that the node's object and executor have, each once."""
    known, executor = fold.nodes.get(node), fold.executors.get(node)
    of_object = [(taint.key, taint.value) for taint in known.value.spec.taints if taint.effect == NO_EXECUTE] if known else []
    reported = executor.value.taints if executor is not None else ()
    return tuple(dict.fromkeys((*of_object, *((key, value) for key, value, effect in reported if effect == NO_EXECUTE))))


def _observed(fold: ClusterFold, node: str, known: NodeCondition | None, now: datetime) -> tuple[ObservedTaint, ...]:
    since = {(taint.key, taint.value): taint.since for taint in known.no_execute} if known is not None else {}
    return tuple(
        ObservedTaint(key=key, value=value, since=since.get((key, value), now)) for key, value in set_taints(fold, node)
    )


def _tainted(wanted: NodeCondition, before: NodeCondition | None) -> NodeCondition:
    """Return the desired condition with its taints, and the parts kept from the previous one."""
    taints = () if wanted.ready else ((taint_key(wanted.status), "", "NoSchedule"),)
    if before is None:
        return msgspec.structs.replace(wanted, taints=taints)
    if before.evicts and not wanted.ready:
        taints = (*taints, (taint_key(wanted.status), "", NO_EXECUTE))
    if wanted.status == before.status:
        wanted = msgspec.structs.replace(wanted, since=before.since, reason=before.reason, message=before.message)
    return msgspec.structs.replace(
        wanted,
        taints=taints,
        # A condition of an older version has no time of its own for the taint.
        tainted_at=before.tainted_at or (before.since if before.evicts else None),
        zone=before.zone,
        disruption=None if wanted.ready else before.disruption,
    )


def changed_condition(fold: ClusterFold, node: str, now: datetime) -> Event | None:
    """Return the node's condition event if it changes. An unchanged result is valid until the node's next event."""
    known = fold.conditions.get(node)
    if node not in fold.nodes and node not in fold.executors:
        if known is None:
            return None
        return end(condition_subject(node), known)
    before = known.value if known is not None else None
    metric, executor = fold.metrics.get(node), fold.executors.get(node)
    if metric is not None:
        wanted = desired_condition(node, metric, executor, now)
    elif before is not None:
        wanted = before
    elif executor is not None:
        wanted = NodeCondition(node=node, since=now, reason="ExecutorReady", message="the executor reports")
    else:
        return None
    observed = _observed(fold, node, before, now)
    if before is None and wanted.ready and not observed:
        return None
    wanted = _tainted(msgspec.structs.replace(wanted, no_execute=observed), before)
    if wanted == before:
        return None
    causes = [metric.ref] if metric is not None else []
    if executor is not None and (metric is None or wanted.status == "False"):
        causes.append(executor.ref)
    if node in fold.nodes and observed != (before.no_execute if before is not None else ()):
        causes.append(fold.nodes[node].ref)
    return Event(subject=condition_subject(node), data=wanted, causes=tuple(causes))
