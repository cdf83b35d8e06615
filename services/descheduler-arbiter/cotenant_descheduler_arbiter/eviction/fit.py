"""Whether a pod would fit on a node: the check before a pod is moved.

In: pod, node, the requests of the node's pods. Out: None, or the first reason why not. Conditions: the node is schedulable;
nodeSelector and required node affinity match; taints with effect NoSchedule or NoExecute are tolerated; every requested
resource fits into allocatable minus present requests; a pod slot is free. On the pod's own node only the first three count.

Unlike koord-descheduler's LowNodeLoad the slot is checked: a pod without a free slot would stay pending.

Source: koord-descheduler NodeFit; Kubernetes taints and node affinity.
"""

from __future__ import annotations

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.selectors import any_node_term_holds
from cotenant.domain.tolerations import untolerated
from cotenant.model.names import RESOURCE_PODS
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts


def affinity_mismatch(pod: Pod, node: NodeFacts) -> str | None:
    """Return why the pod's node selector or required affinity excludes the node, or None."""
    for key, value in sorted(pod.spec.node_selector.items()):
        if node.labels.get(key) != value:
            return f"node selector {key}={value} does not match"
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if (
        affinity is not None
        and affinity.required is not None
        and not any_node_term_holds(affinity.required.node_selector_terms, node.name, node.labels)
    ):
        return "required node affinity does not match"
    return None


def misfit(facts: PodFacts, node: NodeFacts) -> str | None:
    """Return why the pod does not fit the node, or None if it does."""
    if node.unschedulable:
        return "the node is unschedulable"
    mismatch = affinity_mismatch(facts.pod, node)
    if mismatch is not None:
        return mismatch
    taint = untolerated(node.taints, facts.pod.spec.tolerations)
    if taint is not None:
        return f"taint {taint.key}:{taint.effect} is not tolerated"
    if facts.node == node.name:
        return None
    for name, wanted in sorted(facts.amounts):
        free = node.allocatable.get(name, 0) - node.requested.get(name, 0)
        if wanted > 0 and wanted > free:
            return f"requests {wanted} of {name}, {max(free, 0)} free"
    slots = node.allocatable.get(RESOURCE_PODS)
    if slots is not None and node.pod_count >= slots:
        return f"all {slots} pod slots are taken"
    return None
