"""RemovePodsViolatingInterPodAntiAffinity: pods beside a pod that their required anti-affinity excludes.

In: the pods of each node that have not ended, those of low priority first. Out: evictions; a pod that goes no longer excludes
the others of its node.

    goes if a required anti-affinity term of it selects another pod of the node, in the term's namespaces (its own by default)

The term's topology key is not looked at: both are on one node. Neither is its namespace selector.

Source: kubernetes-sigs descheduler RemovePodsViolatingInterPodAntiAffinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cotenant.api.objects.pod import PodAffinityTerm
from cotenant.domain.selectors import selects_if_valid
from cotenant_descheduler_arbiter.config.plugin_args import InterPodAntiAffinityArgs
from cotenant_descheduler_arbiter.plugins.priority_order import low_priority_first
from cotenant_descheduler_arbiter.plugins.view import ClusterView, Evictor, chosen_by, may_go
from cotenant_descheduler_arbiter.state.facts import PodFacts


def required_anti_affinity(pod: PodFacts) -> Sequence[PodAffinityTerm]:
    """Return the pod's required anti-affinity terms."""
    affinity = pod.pod.spec.affinity
    return affinity.pod_anti_affinity.required if affinity is not None and affinity.pod_anti_affinity is not None else ()


def excluded_by(pod: PodFacts, others: Iterable[PodFacts]) -> PodFacts | None:
    """Return the first other pod that the pod's anti-affinity excludes."""
    terms = required_anti_affinity(pod)
    if not terms:
        return None
    for other in others:
        if other.name == pod.name:
            continue
        for term in terms:
            inside = other.namespace in (term.namespaces or (pod.namespace,))
            if inside and selects_if_valid(term.label_selector, other.pod.metadata.labels):
                return other
    return None


def remove_pods_violating_inter_pod_anti_affinity(
    args: InterPodAntiAffinityArgs, view: ClusterView, evictor: Evictor
) -> None:
    """Run the plugin."""
    chosen = chosen_by(args)
    for node in view.nodes:
        staying = low_priority_first([pod for pod in view.active_on(node.name) if chosen(pod)])
        for pod in list(staying):
            if evictor.node_full(node.name):
                break
            other = excluded_by(pod, staying)
            if other is None or not may_go(evictor, pod):
                continue
            if evictor.evict(pod, f"its anti-affinity excludes pod {other.key} on the same node"):
                staying.remove(pod)
