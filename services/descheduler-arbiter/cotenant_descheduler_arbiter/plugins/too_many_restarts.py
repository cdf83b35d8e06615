"""RemovePodsHavingTooManyRestarts: pods whose containers have been restarted too often.

In: restarts of the containers of each pod. Out: evictions of pods with at least podRestartThreshold restarts of all containers
together; init containers count if includingInitContainers.

Source: kubernetes-sigs descheduler RemovePodsHavingTooManyRestarts.
"""

from __future__ import annotations

from collections.abc import Iterator

from cotenant_descheduler_arbiter.config.plugin_args import TooManyRestartsArgs
from cotenant_descheduler_arbiter.plugins.view import ClusterView, Evictor, chosen_by, evict_on, may_go
from cotenant_descheduler_arbiter.state.facts import PodFacts


def restarts_of(pod: PodFacts, *, init_containers: bool) -> int:
    """Return the restarts of the pod's containers together."""
    return sum(each.restarts for each in pod.containers if init_containers or not each.init)


def remove_pods_having_too_many_restarts(args: TooManyRestartsArgs, view: ClusterView, evictor: Evictor) -> None:
    """Run the plugin."""
    chosen = chosen_by(args)
    for node in view.nodes:
        pods = [pod for pod in view.all_on(node.name) if chosen(pod)]
        evict_on(evictor, node.name, _wanted(args, evictor, pods))


def _wanted(args: TooManyRestartsArgs, evictor: Evictor, pods: list[PodFacts]) -> Iterator[tuple[PodFacts, str]]:
    for pod in pods:
        restarts = restarts_of(pod, init_containers=args.including_init_containers)
        if restarts >= args.pod_restart_threshold and may_go(evictor, pod):
            yield pod, f"its containers were restarted {restarts} times, the threshold is {args.pod_restart_threshold}"
