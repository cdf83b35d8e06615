"""Whether a pod that names this node itself has room here, as kubelet asks before it runs a pod.

In: its requests, those of the pods that came before it, and what the node offers: what the executor reports of itself, and
the batch and mid resources that the calculator offers. Out: None, or reason and message as kubelet writes them. Nobody has
asked before: the scheduler places such a pod where it says. What the scheduler has chosen a node for is not asked about.

A resource that the executor does not know of is not looked at, as kubelet leaves out extended resources that the node lacks.
Labels and taints are not looked at either: those of the Node object are not among what an executor reads.

Source: kubelet's canAdmitPod and its predicate admit handler; messages of lifecycle.InsufficientResourceError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from cotenant.model.names import CPU, MEMORY, PODS

_FIRST = (PODS, CPU, MEMORY)
"""The order in which kubelet compares; others follow by name."""


class Refusal(Struct, frozen=True):
    """Why a pod is not run here."""

    reason: str
    message: str


def refusal(
    requests: Mapping[str, int], before: Iterable[Mapping[str, int]], allocatable: Mapping[str, int]
) -> Refusal | None:
    """Return why a pod does not fit beside those before it. Amounts are those of placements: cpu in milli-cores, else units."""
    used = {PODS: 0}
    for other in before:
        used[PODS] += 1
        for name, amount in other.items():
            used[name] = used.get(name, 0) + amount
    wanted = {**requests, PODS: 1}
    for name in (*_FIRST, *sorted(wanted.keys() - set(_FIRST))):
        requested, capacity = wanted.get(name, 0), allocatable.get(name)
        if requested > 0 and capacity is not None and used.get(name, 0) + requested > capacity:
            figures = f"requested: {requested}, used: {used.get(name, 0)}, capacity: {capacity}"
            return Refusal(f"OutOf{name}", f"Pod was rejected: Node didn't have enough resource: {name}, {figures}")
    return None
