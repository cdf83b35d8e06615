"""Readiness of nodes: the condition and taints of a node without samples.

In: metrics, executors, the conditions so far. Out: a NodeCondition event where readiness changes.

    metric has "unknown since", no executor event after it -> Unknown, taints unreachable NoSchedule and NoExecute
    metric has "unknown since", the executor restarted after it -> False, taints not-ready: nothing is measured yet
    metric is known again -> True, no taints

`since` is the time of the decision: pods get their full tolerationSeconds from the time of the taint, however long this
service was down. A node that never had a metric has no condition. A node without object and executor loses its condition.

Source: Kubernetes node lifecycle (taints not-ready and unreachable).
"""

from __future__ import annotations

from datetime import datetime

from cotenant.events.conditions import TAINT_NOT_READY, TAINT_UNREACHABLE, NodeCondition
from cotenant.events.envelope import Event
from cotenant.events.metrics import NodeMetricComputed
from cotenant.events.runs import ExecutorStatus
from cotenant.model.subjects import condition_subject
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.known import Known, end


def _taints(key: str) -> tuple[tuple[str, str, str], ...]:
    return (key, "", "NoSchedule"), (key, "", "NoExecute")


def desired_condition(
    node: str, metric: Known[NodeMetricComputed], executor: Known[ExecutorStatus] | None, now: datetime
) -> NodeCondition:
    """Return the node's condition by its metric and executor."""
    unknown = metric.value.unknown_since
    if unknown is None:
        return NodeCondition(
            node=node, status="True", since=now, reason="ExecutorReady", message="samples arrive from the node"
        )
    since = unknown.isoformat(timespec="seconds")
    if executor is not None and executor.sequence > metric.sequence:
        return NodeCondition(
            node=node,
            status="False",
            since=now,
            reason="ExecutorStarting",
            message=f"the executor is back, no sample since {since}",
            taints=_taints(TAINT_NOT_READY),
        )
    return NodeCondition(
        node=node,
        status="Unknown",
        since=now,
        reason="NodeStatusUnknown",
        message=f"nothing heard from the node since {since}",
        taints=_taints(TAINT_UNREACHABLE),
    )


def changed_condition(fold: ClusterFold, node: str, now: datetime) -> Event | None:
    """Return the node's condition event if it changes. An unchanged result is valid until the node's next event."""
    known = fold.conditions.get(node)
    if node not in fold.nodes and node not in fold.executors:
        if known is None:
            return None
        return end(condition_subject(node), known)
    metric = fold.metrics.get(node)
    if metric is None:
        return None
    executor = fold.executors.get(node)
    wanted = desired_condition(node, metric, executor, now)
    if known is None and wanted.ready:
        return None
    if known is not None and (known.value.status, known.value.taints) == (wanted.status, wanted.taints):
        return None
    causes = (metric.ref, *((executor.ref,) if executor is not None and wanted.status == "False" else ()))
    return Event(subject=condition_subject(node), data=wanted, causes=causes)
