"""Promise 3: quotas limit what is admitted, and what they promise adds up."""

from __future__ import annotations

from collections import Counter, defaultdict

from cotenant.events.placements import Placement
from cotenant.events.quotas import QuotaRuntime
from cotenant.quota.names import DEFAULT, SYSTEM
from cotenant.subjects import quota_subject
from cotenant_console.chaos.invariants import Wrong
from cotenant_console.chaos.invariants.placing import new_placements
from cotenant_console.chaos.sight import CommitSeen, Sight

APART = (DEFAULT, SYSTEM)
"""Quotas that are outside of the shared total."""


def admitted_pods_fit_their_quota(sight: Sight, seen: CommitSeen) -> Wrong:
    """A commit that admits a pod leaves its quota's use within max, in every resource that the quota lists."""
    if seen.service != "scheduler":
        return
    charged = set()
    for event in new_placements(seen):
        assert isinstance(event.data, Placement)
        if event.data.quota:
            charged.add((event.data.quota_tree, event.data.quota))
    for tree, quota in sorted(charged):
        subject = quota_subject(tree, quota)
        known = sight.version_at(subject, seen.commit.folded)
        if known is None or not isinstance(known.data, QuotaRuntime):
            continue
        used: Counter[str] = Counter()
        for node in sorted(sight.placed):
            for placement in sight.held(node, seen.commit.folded):
                if (placement.quota_tree, placement.quota) == (tree, quota):
                    used.update(placement.requests)
        for resource, most in sorted(known.data.max.items()):
            if used[resource] > most:
                yield subject, f"{seen.record.ref} admits {used[resource]} {resource} to quota {quota}, max {most}"


def runtimes_add_up(sight: Sight, seen: CommitSeen) -> Wrong:
    """After each commit of quota-tree: runtime is at most max; who requests its scaled min has it; siblings share the total."""
    if seen.service != "quota-tree":
        return
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    roots: dict[str, QuotaRuntime] = {}
    trees = {event.data.tree for event in seen.events if isinstance(event.data, QuotaRuntime)}
    for subject, event in sight.last.items():
        data = event.data
        if not isinstance(data, QuotaRuntime) or data.tree not in trees:
            continue
        if not data.parent:
            if data.total:
                roots[data.tree] = data
            continue
        if data.quota not in APART:
            sums[(data.tree, data.parent)].update(data.runtime)
        for resource, amount in sorted(data.runtime.items()):
            most = data.max.get(resource)
            if most is not None and amount > most:
                yield subject, f"runtime of {data.quota} is {amount} {resource}, max {most}"
            least = data.scaled_min.get(resource, 0)
            wanted = min(data.request.get(resource, 0), most if most is not None else data.request.get(resource, 0))
            if wanted >= least > amount:
                yield subject, f"{data.quota} requests {wanted} {resource}, scaled min {least}, and has {amount}"
    for tree, root in sorted(roots.items()):
        for resource, amount in sorted(sums[(tree, root.quota)].items()):
            if resource in root.total and amount > root.total[resource]:
                yield (
                    quota_subject(tree, root.quota),
                    f"the quotas below {root.quota} may use {amount} {resource}, the tree has {root.total[resource]}",
                )
