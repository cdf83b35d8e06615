"""RemovePodsViolatingNodeAffinity: pods whose required node affinity no longer holds for their node.

In: the pods of each node that have not ended, all nodes. Out: evictions of pods with a required node affinity that do not fit
their own node any more (selectors, taints, schedulable) but fit some node of the list.

Source: kubernetes-sigs descheduler RemovePodsViolatingNodeAffinity.
"""

from __future__ import annotations

from collections.abc import Iterator

from cotenant_descheduler_arbiter.config.plugin_args import REQUIRED_AFFINITY, NodeAffinityArgs
from cotenant_descheduler_arbiter.eviction.fit import misfit
from cotenant_descheduler_arbiter.plugins.view import ClusterView, Evictor, chosen_by, evict_on, may_go
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts


def remove_pods_violating_node_affinity(args: NodeAffinityArgs, view: ClusterView, evictor: Evictor) -> None:
    """Run the plugin."""
    if REQUIRED_AFFINITY not in args.node_affinity_type:
        return
    chosen = chosen_by(args)
    for node in view.nodes:
        pods = [pod for pod in view.active_on(node.name) if chosen(pod) and _has_required_affinity(pod)]
        evict_on(evictor, node.name, _wanted(view, evictor, node, pods))


def _has_required_affinity(pod: PodFacts) -> bool:
    affinity = pod.pod.spec.affinity
    return affinity is not None and affinity.node_affinity is not None and affinity.node_affinity.required is not None


def _wanted(
    view: ClusterView, evictor: Evictor, node: NodeFacts, pods: list[PodFacts]
) -> Iterator[tuple[PodFacts, str]]:
    for pod in pods:
        reason = misfit(pod, node)
        if reason is None or all(misfit(pod, other) is not None for other in view.nodes):
            continue
        if may_go(evictor, pod):
            yield pod, f"it does not fit its node {node.name} any more: {reason}"
