"""RemovePodsViolatingNodeTaints: pods that do not tolerate a taint of their node.

In: the pods of each node, its taints. Out: evictions of pods that do not tolerate a taint with effect NoSchedule (or
PreferNoSchedule, with includePreferNoSchedule); taints in excludedTaints, as `key` or `key=value`, do not count.

Source: kubernetes-sigs descheduler RemovePodsViolatingNodeTaints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cotenant.api.objects.node import Taint
from cotenant.domain.tolerations import tolerated
from cotenant_descheduler_arbiter.config.plugin_args import NodeTaintsArgs
from cotenant_descheduler_arbiter.plugins.view import ClusterView, Evictor, chosen_by, evict_on, may_go
from cotenant_descheduler_arbiter.state.facts import PodFacts


def counting_taints(taints: Sequence[Taint], args: NodeTaintsArgs) -> list[Taint]:
    """Return the taints that pods have to tolerate."""
    effects = ("NoSchedule", "PreferNoSchedule") if args.include_prefer_no_schedule else ("NoSchedule",)
    excluded = set(args.excluded_taints)
    return [
        taint for taint in taints if taint.effect in effects and excluded.isdisjoint((taint.key, f"{taint.key}={taint.value}"))
    ]


def remove_pods_violating_node_taints(args: NodeTaintsArgs, view: ClusterView, evictor: Evictor) -> None:
    """Run the plugin."""
    chosen = chosen_by(args)
    for node in view.nodes:
        taints = counting_taints(node.taints, args)
        if taints:
            pods = [pod for pod in view.all_on(node.name) if chosen(pod)]
            evict_on(evictor, node.name, _wanted(evictor, taints, pods))


def _wanted(evictor: Evictor, taints: Sequence[Taint], pods: list[PodFacts]) -> Iterator[tuple[PodFacts, str]]:
    for pod in pods:
        taint = next((each for each in taints if not tolerated(each, pod.pod.spec.tolerations)), None)
        if taint is not None and may_go(evictor, pod):
            yield pod, f"it does not tolerate the taint {taint.key}:{taint.effect} of its node"
