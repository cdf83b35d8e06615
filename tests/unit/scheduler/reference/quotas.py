"""Quotas, plainly: what each may use, computed from its definition with fractions, one quota and one resource at a time.

In: the quotas' objects, what nodes offer, pods that exist and pods that are placed. It shares no code with the quota trees of
the contract. It knows min, max, weights, parents, lending, non-preemptible pods and the default quota; one tree, without roots
of its own. The rules are those of Koordinator's ElasticQuota:

    request   own pods and what the children request, each child at most its max; a quota that does not lend, at least its min
    min       where the siblings' mins exceed what the parent has, each is reduced in proportion
    runtime   a floor of min each (less for one that lends and requests less); the rest by weight to those that request more,
              in rounds; a unit that does not divide goes to the largest remainder
    admitted  used and the request fit the runtime in all that is counted; the request fits every ancestor's; a pod that is not
              preemptible also fits min
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.model.quantities import resource_amount
from tests.unit.scheduler.reference.world import World

PREFIX = "quota.scheduling.koordinator.sh"
TOP = "koordinator-root-quota"
NOBODY = "koordinator-default-quota"
"""The quota of pods that name none: nothing limits it, and what it uses is not shared."""


class Quota:
    """One quota's object."""

    def __init__(self, document: dict[str, Any]) -> None:
        metadata, spec = document["metadata"], document["spec"]
        labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
        self.parent: str = labels.get(f"{PREFIX}/parent") or TOP
        self.lends = labels.get(f"{PREFIX}/allow-lent-resource") != "false"
        self.max = amounts(spec["max"])
        self.min = {name: min(amount, self.max.get(name, amount)) for name, amount in amounts(spec["min"]).items()}
        weight = amounts(msgspec.json.decode(annotations.get(f"{PREFIX}/shared-weight", "{}")))
        self.weight = weight if any(weight.values()) else self.max


def amounts(quantities: dict[str, Any]) -> dict[str, int]:
    return {name: resource_amount(name, str(quantity)) for name, quantity in quantities.items()}


class Quotas:
    """The quotas of a world, as a pass over the queue finds them: runtimes do not change within it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.known = {name: Quota(document) for name, document in world.quota_objects.items()}
        self.runtime: dict[str, dict[str, int]] = {}
        if self.known:
            offered: dict[str, int] = {}
            for node in world.nodes:
                for name, amount in world.allocatable(node).items():
                    offered[name] = offered.get(name, 0) + amount
            for resource in sorted({resource for quota in self.known.values() for resource in quota.max}):
                apart = sum(self.asked(pod, resource) for pod in world.pods.values() if self.is_apart(pod))
                self.share(TOP, resource, offered.get(resource, 0) - apart)

    def is_apart(self, pod: Pod) -> bool:
        """Whether a pod uses what no quota shares: like a request, that counts while its object exists."""
        name, uid = pod.metadata.name, pod.metadata.uid
        placed = self.world.placements.get(name)
        there = placed is not None and placed[1].metadata.uid == uid
        return there and self.quota_of(pod) == NOBODY and (name, uid) not in self.world.ended

    def children(self, parent: str) -> list[str]:
        return sorted(name for name, quota in self.known.items() if self.parent_of(quota) == parent)

    def parent_of(self, quota: Quota) -> str:
        return quota.parent if quota.parent in self.known else TOP

    def quota_of(self, pod: Pod) -> str:
        named = pod.metadata.labels.get(f"{PREFIX}/name", "")
        return named if named in self.known else NOBODY

    def asked(self, pod: Pod, resource: str) -> int:
        """What a pod is charged with: a quota says nothing of what its max does not list."""
        quota = self.known.get(self.quota_of(pod))
        return pod_requests(pod).get(resource, 0) if quota is None or resource in quota.max else 0

    def below(self, name: str) -> list[str]:
        """A quota and all below it."""
        return [name, *(one for child in self.children(name) for one in self.below(child))]

    def used_by(self, quotas: list[str], resource: str, *, protected_only: bool = False) -> int:
        return sum(
            self.asked(pod, resource)
            for pod in map(self.as_declared, (placed for _, placed, _ in self.world.placements.values()))
            if self.quota_of(pod) in quotas
            and (pod.metadata.name, pod.metadata.uid) not in self.world.ended
            and (is_protected(pod) or not protected_only)
        )

    def as_declared(self, placed: Pod) -> Pod:
        """A placed pod as its object is now; as it was placed where the object is gone."""
        declared = self.world.pods.get(placed.metadata.name)
        return declared if declared is not None and declared.metadata.uid == placed.metadata.uid else placed

    def request(self, name: str, resource: str) -> int:
        """What a quota requests."""
        pods = sum(
            self.asked(pod, resource)
            for pod in self.world.pods.values()
            if self.quota_of(pod) == name and (pod.metadata.name, pod.metadata.uid) not in self.world.ended
        )
        total = pods + sum(self.limited(child, resource) for child in self.children(name))
        quota = self.known[name]
        return total if quota.lends else max(total, quota.min.get(resource, 0))

    def limited(self, name: str, resource: str) -> int:
        bound = self.known[name].max.get(resource)
        return self.request(name, resource) if bound is None else min(bound, self.request(name, resource))

    def share(self, parent: str, resource: str, has: int) -> None:
        """Set the runtime of all quotas below a parent that has so much."""
        children = self.children(parent)
        mins = {child: self.known[child].min.get(resource, 0) for child in children}
        promised = sum(mins.values())
        if promised > max(0, has):
            mins = {child: max(0, has) * amount // promised for child, amount in mins.items()}
        wanted = {child: self.limited(child, resource) for child in children}
        got = {
            child: mins[child] if wanted[child] > mins[child] or not self.known[child].lends else wanted[child]
            for child in children
        }
        weights = {child: self.known[child].weight.get(resource, 0) for child in children}
        hungry = [child for child in children if wanted[child] > mins[child] and weights[child] > 0]
        rest = has - sum(got.values())
        while rest > 0 and hungry:
            for child, part in split(rest, {child: weights[child] for child in hungry}).items():
                got[child] += part
            rest = sum(max(0, got[child] - wanted[child]) for child in hungry)
            got.update({child: min(got[child], wanted[child]) for child in hungry})
            hungry = [child for child in hungry if got[child] < wanted[child]]
        for child in children:
            quota = self.known[child]
            if resource in quota.max:
                self.runtime.setdefault(child, {})[resource] = got[child]
                self.share(child, resource, got[child])

    def admits(self, pod: Pod) -> bool:
        """Whether the pod's quota has room for it beside what is placed."""
        name = self.quota_of(pod)
        if name == NOBODY:
            return True
        quota = self.known[name]
        for resource, limit in self.runtime.get(name, {}).items():
            if self.used_by(self.below(name), resource) + self.asked(pod, resource) > limit:
                return False
        if is_protected(pod):
            for resource, limit in quota.min.items():
                used = self.used_by(self.below(name), resource, protected_only=True)
                if used + self.asked(pod, resource) > limit:
                    return False
        above = self.parent_of(quota)
        while above != TOP:
            for resource, limit in self.runtime.get(above, {}).items():
                wanted = self.asked(pod, resource)
                if wanted and self.used_by(self.below(above), resource) + wanted > limit:
                    return False
            above = self.parent_of(self.known[above])
        return True


def is_protected(pod: Pod) -> bool:
    return pod.metadata.labels.get(f"{PREFIX}/preemptible") == "false"


def split(rest: int, weights: dict[str, int]) -> dict[str, int]:
    """Whole units by weight; those that are left over to the largest remainders, the first names first."""
    exact = {name: Fraction(rest * weight, sum(weights.values())) for name, weight in weights.items()}
    parts = {name: int(amount) for name, amount in exact.items()}
    order = sorted(weights, key=lambda name: (parts[name] - exact[name], name))
    for name in order[: rest - sum(parts.values())]:
        parts[name] += 1
    return parts
