"""PodLifeTime: pods that are older than a maximum.

In: pods of all phases, their creation times, phases and the waiting reasons of their containers. Out: evictions, oldest pod of
all nodes first, then by `namespace/name`.

    evicted if age in whole seconds > maxPodLifeTimeSeconds, and (with `states`) its phase or the reason why a container
    waits is among them

Source: kubernetes-sigs descheduler PodLifeTime. There a pod created in the future counts as infinitely old; here as new.
"""

from __future__ import annotations

from collections.abc import Iterable

from cotenant_descheduler_arbiter.config.plugin_args import PodLifeTimeArgs
from cotenant_descheduler_arbiter.plugins.view import ClusterView, Evictor, chosen_by, may_go
from cotenant_descheduler_arbiter.state.facts import PodFacts


def in_state(pod: PodFacts, states: Iterable[str]) -> bool:
    """Whether the pod's phase, or the reason why one of its containers waits, is among the states."""
    return not {pod.phase, *(each.reason for each in pod.containers if each.waiting)}.isdisjoint(states)


def pod_life_time(args: PodLifeTimeArgs, view: ClusterView, evictor: Evictor) -> None:
    """Run the plugin."""
    chosen, limit = chosen_by(args), args.max_pod_life_time_seconds
    assert limit is not None
    old = [
        pod
        for node in view.nodes
        for pod in view.all_on(node.name)
        if chosen(pod)
        and view.age_seconds(pod) > limit
        and (not args.states or in_state(pod, args.states))
        and may_go(evictor, pod)
    ]
    for pod in sorted(old, key=lambda pod: (-view.age_seconds(pod), pod.key)):
        evictor.evict(pod, f"it is {view.age_seconds(pod)} s old, the maximum is {limit} s")
