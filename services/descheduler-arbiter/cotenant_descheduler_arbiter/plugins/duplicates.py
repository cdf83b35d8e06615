"""RemoveDuplicates: several pods of one owner with the same images on one node, where other nodes could take them.

In: the pods of all nodes that have not ended. Out: evictions, by owner and node.

    key of a pod   sorted `namespace/ownerKind/ownerName/image` for each owner and container
    duplicate      a pod whose key an earlier pod of its node has; the first one is none
    for each owner (namespace, kind, name, images):
        count      candidate pods on all nodes
        targets    union over the distinct (tolerations, required affinity, node selector) of the duplicates of the nodes that
                   taints and selectors let them run on; one that has a single node does not count
        fewer than two targets: nothing; else upper = ceil(count / targets)
        a node with more than `upper` of them loses its duplicates from number `upper` on

A pod with two owners counts under both, and is evicted at most once.

Source: kubernetes-sigs descheduler RemoveDuplicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from cotenant.domain.tolerations import untolerated
from cotenant_descheduler_arbiter.config.plugin_args import RemoveDuplicatesArgs
from cotenant_descheduler_arbiter.eviction.fit import affinity_mismatch
from cotenant_descheduler_arbiter.plugins.view import ClusterView, Evictor, chosen_by, evict_on, may_go
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts

Owner = tuple[str, str, str, tuple[str, ...]]
"""Namespace, kind, name, sorted images."""


class Duplicates(msgspec.Struct):
    """The pods of one owner."""

    count: int = 0
    """Of all, on all nodes."""
    by_node: dict[str, list[PodFacts]] = {}
    """The duplicates."""


def owners_of(pod: PodFacts) -> list[Owner]:
    """Return the owners that the pod counts under."""
    images = tuple(sorted(container.image for container in pod.pod.spec.containers))
    return [(pod.namespace, owner.kind, owner.name, images) for owner in pod.pod.metadata.owner_references]


def find_duplicates(pods: Iterable[tuple[str, Sequence[PodFacts]]]) -> dict[Owner, Duplicates]:
    """Return the pods by owner. `pods`: of each node, in order."""
    found: dict[Owner, Duplicates] = {}
    for node, here in pods:
        seen: set[tuple[tuple[str, ...], ...]] = set()
        for pod in here:
            owners = owners_of(pod)
            key = tuple(sorted((*owner[:3], image) for owner in owners for image in owner[3]))
            for owner in owners:
                entry = found.setdefault(owner, Duplicates(by_node={}))
                entry.count += 1
                if key in seen:
                    entry.by_node.setdefault(node, []).append(pod)
            seen.add(key)
    return found


def target_nodes(pods: Iterable[PodFacts], nodes: Sequence[NodeFacts]) -> set[str]:
    """Return the nodes that duplicates may be spread over."""
    targets: set[str] = set()
    variants: set[bytes] = set()
    for pod in pods:
        spec = pod.pod.spec
        required = spec.affinity.node_affinity if spec.affinity is not None else None
        variant = msgspec.json.encode((spec.tolerations, required, sorted(spec.node_selector.items())))
        if variant in variants:
            continue
        variants.add(variant)
        fitting = {
            node.name
            for node in nodes
            if untolerated(node.taints, spec.tolerations) is None and affinity_mismatch(pod.pod, node) is None
        }
        if len(fitting) > 1:
            targets |= fitting
    return targets


def remove_duplicates(args: RemoveDuplicatesArgs, view: ClusterView, evictor: Evictor) -> None:
    """Run the plugin."""
    chosen = chosen_by(args)

    def candidate(pod: PodFacts) -> bool:
        owners = pod.pod.metadata.owner_references
        excluded = not owners or any(owner.kind in args.exclude_owner_kinds for owner in owners)
        return not excluded and bool(pod.pod.spec.containers) and chosen(pod) and may_go(evictor, pod)

    here = ((node.name, [pod for pod in view.active_on(node.name) if candidate(pod)]) for node in view.nodes)
    for _, found in sorted(find_duplicates(here).items()):
        if not found.by_node:
            continue
        targets = len(target_nodes((pod for pods in found.by_node.values() for pod in pods), view.nodes))
        if targets < 2:
            continue
        upper = -(-found.count // targets)
        for node, pods in sorted(found.by_node.items()):
            evict_on(evictor, node, _wanted(pods, upper, found.count, targets))


def _wanted(pods: Sequence[PodFacts], upper: int, count: int, targets: int) -> Iterator[tuple[PodFacts, str]]:
    for pod in pods[upper - 1 :]:
        yield pod, f"its node has {len(pods) + 1} of its owner's {count} pods, {targets} nodes could have {upper} each"
