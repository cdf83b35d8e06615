"""RemoveFailedPods: pods that have failed.

In: pods in phase Failed, with the reasons of the pod and of its containers. Out: evictions.

    evicted if its age is at least minPodLifetimeSeconds, no owner is of an excluded kind, and (with `reasons`) one is the
    reason of the pod or of one of its waiting or terminated containers; init containers count if includingInitContainers

Source: kubernetes-sigs descheduler RemoveFailedPods.
"""

from __future__ import annotations

from collections.abc import Iterator

from cotenant_descheduler_arbiter.config.plugin_args import RemoveFailedPodsArgs
from cotenant_descheduler_arbiter.plugins.view import ClusterView, Evictor, chosen_by, evict_on, may_go
from cotenant_descheduler_arbiter.state.facts import PodFacts

FAILED = "Failed"


def why_failed(pod: PodFacts, *, init_containers: bool) -> list[str]:
    """Return the reasons that the pod and its containers give."""
    reasons = [pod.reason, *(each.reason for each in pod.containers if init_containers or not each.init)]
    return [reason for reason in reasons if reason]


def remove_failed_pods(args: RemoveFailedPodsArgs, view: ClusterView, evictor: Evictor) -> None:
    """Run the plugin."""
    chosen = chosen_by(args)
    for node in view.nodes:
        failed = [pod for pod in view.all_on(node.name) if pod.phase == FAILED and chosen(pod)]
        evict_on(evictor, node.name, _wanted(args, view, evictor, failed))


def _wanted(
    args: RemoveFailedPodsArgs, view: ClusterView, evictor: Evictor, failed: list[PodFacts]
) -> Iterator[tuple[PodFacts, str]]:
    for pod in failed:
        if args.min_pod_lifetime_seconds is not None and view.age_seconds(pod) < args.min_pod_lifetime_seconds:
            continue
        if any(owner.kind in args.exclude_owner_kinds for owner in pod.pod.metadata.owner_references):
            continue
        reasons = why_failed(pod, init_containers=args.including_init_containers)
        if args.reasons and not set(args.reasons).intersection(reasons):
            continue
        if may_go(evictor, pod):
            yield pod, "it has failed" + (f": {', '.join(dict.fromkeys(reasons))}" if reasons else "")
