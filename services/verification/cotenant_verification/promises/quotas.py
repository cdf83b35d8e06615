"""Promise 3: quotas hold. The formulas are written out here, slow and plain, and share no code with the services.

Usage propagates: a quota's usage is that of its own placements and of all quotas below it, each reduced to the resources of
its own max. Sharing (Koordinator ElasticQuota, refreshRuntime): see `_fair`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.quota.names import DEFAULT, LABEL_QUOTA, ROOT, SYSTEM
from cotenant.events.placements import Placement
from cotenant.events.quotas import QuotaRuntime
from cotenant.model.subjects import quota_subject
from cotenant_quota_tree.core import QuotaTreeCore
from cotenant_scheduler.core import SchedulerCore
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.placements import new_placements, placed_unasked

APART = (DEFAULT, SYSTEM)
"""Quotas that are outside of the shared total."""

NOTHING: Mapping[str, Counter[str]] = {}


def admitted_pods_fit_their_quota(view: LogView, seen: CommitSeen) -> Wrong:
    """A commit that admits a pod leaves its quota within max and runtime in every resource, and so each quota above it in
    the resources that the pod asks for; all as quota-tree computes it from what the commit was decided on.
    """
    if seen.service != "scheduler":
        return
    known = view.quotas.decided(seen)
    if known is None:
        return
    admitted: dict[tuple[str, str], set[str]] = defaultdict(set)
    for event in new_placements(view, seen):
        assert isinstance(event.data, Placement)
        if event.data.quota:
            admitted[event.data.quota_tree, event.data.quota].update(event.data.requests)
    used: dict[str, dict[str, Counter[str]]] = {}
    held = view.charges.held(seen.commit.folded, (quota for quotas in known.values() for quota in quotas.values()))
    for (tree, name), asked in sorted(admitted.items()):
        if tree not in used:
            used[tree] = used_by(held, tree, known.get(tree, {}).get, without=unasked(seen, tree))
        for quota in way_up(known.get(tree, {}).get, name):
            resources = quota.max.keys() if quota.quota == name else quota.max.keys() & asked
            for resource in sorted(resources):
                most = min(quota.max[resource], quota.runtime.get(resource, quota.max[resource]))
                amount = used[tree][quota.quota][resource]
                if amount > most:
                    yield (
                        quota_subject(tree, quota.quota),
                        f"{seen.record.ref} admits pods to {name}: quota {quota.quota} uses {amount} {resource}, "
                        f"its max is {quota.max[resource]}, its runtime {quota.runtime.get(resource)}",
                    )


Known = Callable[[str], QuotaRuntime | None]
"""The quotas of a tree by name."""


def published(view: LogView, tree: str, folded: int) -> Known:
    """The quotas of a tree as published by a sequence."""

    def known(name: str) -> QuotaRuntime | None:
        event = view.version_at(quota_subject(tree, name), folded)
        return event.data if event is not None and isinstance(event.data, QuotaRuntime) else None

    return known


def way_up(known: Known, name: str) -> Iterator[QuotaRuntime]:
    """A quota and those above it, below the root."""
    passed: set[str] = set()
    while name and name != ROOT and name not in passed:
        passed.add(name)
        quota = known(name)
        if quota is None:
            return
        yield quota
        name = quota.parent


def runtimes_agree(core: SchedulerCore, quota_tree: QuotaTreeCore, now: datetime) -> Wrong:
    """The scheduler and quota-tree, having folded the same messages, have the same runtime of every quota."""
    quota_tree.decide(now)
    published = {(quota.tree, quota.quota): quota.runtime for quota in quota_tree.quotas() if quota.quota != ROOT}
    decided_on = {(membership.tree, membership.quota): runtime for membership, runtime in core.runtimes(now).items()}
    for tree, name in sorted(published.keys() | decided_on.keys()):
        ours, theirs = decided_on.get((tree, name)), published.get((tree, name))
        if ours != theirs:
            yield quota_subject(tree, name), f"the runtime of {name} is {ours} for the scheduler and {theirs} for quota-tree"


def unasked(seen: CommitSeen, tree: str) -> dict[str, Counter[str]]:
    """What a commit charges to the quotas of a tree for pods that name their node: they bypass quota admission, and are placed
    after the admitted ones."""
    charged: dict[str, Counter[str]] = defaultdict(Counter)
    for event in seen.events:
        data = event.data
        if isinstance(data, Placement) and placed_unasked(seen, data) and data.quota_tree == tree:
            charged[data.quota].update(data.requests)
    return charged


Held = Mapping[tuple[str, str], Counter[str]]
"""What the own pods of each quota hold, by tree and name."""


def used_by(held: Held, tree: str, known: Known, without: Mapping[str, Counter[str]] = NOTHING) -> dict[str, Counter[str]]:
    """The usage of each quota of a tree, without some of its charges."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for (of, name), requests in held.items():
        way = list(way_up(known, name)) if of == tree else []
        if not way:
            continue
        own = Counter(requests)
        own.subtract(without.get(name, {}))
        limited = {resource: own[resource] for resource in way[0].max if own[resource]}
        for quota in way:
            used[quota.quota].update(limited)
    return used


def runtimes_add_up(view: LogView, seen: CommitSeen) -> Wrong:
    """After each commit of quota-tree, at every quota with quotas below it: the sum of their runtimes is at most its own,
    and each has at most its max, and its scaled min if it requests that much.
    """
    if seen.service != "quota-tree":
        return
    for tree in sorted({event.data.tree for event in seen.events if isinstance(event.data, QuotaRuntime)}):
        for parent, children in _families(view, tree):
            has = parent.total if parent.quota == ROOT else parent.runtime
            yield from _children_fit(tree, parent, children, has)
            for child in children:
                yield from _within_bounds(child)


Family = tuple[QuotaRuntime, list[QuotaRuntime]]


def _families(view: LogView, tree: str) -> list[Family]:
    """Every quota of a tree with its children, by name; the root's without the built-in ones."""
    quotas: dict[str, QuotaRuntime] = {}
    for name, event in sorted(view.charges.trees[tree].items()):
        assert isinstance(event.data, QuotaRuntime)
        quotas[name] = event.data
    children: dict[str, list[QuotaRuntime]] = defaultdict(list)
    for name, quota in quotas.items():
        if name not in (*APART, ROOT):
            children[quota.parent].append(quota)
    return [(quotas[name], below) for name, below in sorted(children.items()) if name in quotas]


def _children_fit(tree: str, parent: QuotaRuntime, children: list[QuotaRuntime], has: Mapping[str, int]) -> Wrong:
    for resource in sorted({resource for child in children for resource in child.runtime}):
        # A tree's total may be negative: then nothing is shared.
        most = max(has.get(resource, 0), 0)
        shared = sum(child.runtime.get(resource, 0) for child in children)
        if shared > most:
            text = f"the quotas below {parent.quota} may use {shared} {resource}, of {most}"
            yield quota_subject(tree, parent.quota), text


def _scaled_as_needed(tree: str, parent: QuotaRuntime, children: list[QuotaRuntime], resource: str, has: int) -> Wrong:
    """Mins that fit are as declared; mins that do not are scaled to the total."""
    mins = {child.quota: _min(child, resource) for child in children}
    scaled = {child.quota: child.scaled_min.get(resource, 0) for child in children}
    if sum(mins.values()) > has and sum(scaled.values()) > has:
        yield quota_subject(tree, parent.quota), f"the scaled mins below {parent.quota} are {scaled} {resource}, of {has}"
    elif sum(mins.values()) <= has and scaled != mins:
        yield quota_subject(tree, parent.quota), f"the mins below {parent.quota} fit: they are {mins}, scaled to {scaled}"


def _min(quota: QuotaRuntime, resource: str) -> int:
    least = quota.min.get(resource, 0)
    return min(least, quota.max.get(resource, least))


def _wanted(quota: QuotaRuntime, resource: str) -> int:
    request = quota.request.get(resource, 0)
    return min(request, quota.max.get(resource, request))


def _within_bounds(quota: QuotaRuntime) -> Wrong:
    subject = quota_subject(quota.tree, quota.quota)
    for resource, amount in sorted(quota.runtime.items()):
        most = quota.max.get(resource)
        if most is not None and amount > most:
            yield subject, f"runtime of {quota.quota} is {amount} {resource}, max {most}"
        least, wanted = quota.scaled_min.get(resource, 0), _wanted(quota, resource)
        if wanted >= least > amount:
            yield subject, f"{quota.quota} requests {wanted} {resource} with scaled min {least}, and its runtime is {amount}"


def shares_are_fair(moment: Moment) -> Wrong:
    """In the idle phase, each quota's request and use are those of its pods, and its runtime is what sharing by weight gives:
    its scaled min first, then a share of the rest by weight, up to its request. Before that figures may be a moment old:
    changes of requests alone are published once a second."""
    view = moment.view
    asked, claimed = _asked_by_pods(moment)
    last = view.log[-1].sequence
    held = view.charges.held(last, view.charges.published())
    for tree in sorted(view.charges.trees):
        used = used_by(held, tree, published(view, tree, last))
        families = _families(view, tree)
        parents = {parent.quota for parent, _ in families}
        for parent, children in families:
            has = parent.total if parent.quota == ROOT else parent.runtime
            for resource in sorted({resource for child in children for resource in child.runtime}):
                amount = max(has.get(resource, 0), 0)
                yield from _scaled_as_needed(tree, parent, children, resource, amount)
                fair = _fair(amount, children, resource)
                for child in children:
                    subject, name = quota_subject(tree, child.quota), child.quota
                    if (runtime := child.runtime.get(resource, 0)) != fair[name]:
                        yield subject, f"runtime of {name} is {runtime} {resource}, fair is {fair}"
                    if name in parents or child.namespaces:
                        continue
                    if (shown := child.child_request.get(resource, 0)) != asked[name][resource]:
                        yield subject, (
                            f"{name} is published as requesting {shown} {resource}, its pods request "
                            f"{asked[name][resource]}"
                        )
                    if (shown := child.used.get(resource, 0)) != (meant := used[name][resource] + claimed[name][resource]):
                        yield subject, f"{name} is published as using {shown} {resource}, its pods use {meant}"


def _asked_by_pods(moment: Moment) -> tuple[dict[str, Counter[str]], dict[str, Counter[str]]]:
    """By quota: what its pods that have not ended request; and the requests of those that name a node and have no placement
    yet."""
    view = moment.view
    asked: dict[str, Counter[str]] = defaultdict(Counter)
    claimed: dict[str, Counter[str]] = defaultdict(Counter)
    for (namespace, name), head in sorted(view.pods.items()):
        quota, uid = head.metadata.labels.get(LABEL_QUOTA, ""), head.metadata.uid
        if not quota or uid in view.ended_at:
            continue
        pod = view.pod(namespace, name)
        requests = _resized(view, namespace, name, uid) or pod_requests(pod)
        asked[quota].update(requests)
        if pod.spec.node_name and not view.places[uid]:
            claimed[quota].update(requests)
    return asked, claimed


def _resized(view: LogView, namespace: str, name: str, uid: str) -> Mapping[str, int] | None:
    """What counts of a pod that is being resized in place, by its placement."""
    for node in sorted(view.places[uid]):
        placed = view.placed[node].get((namespace, name))
        if placed is not None and isinstance(placed.data, Placement) and placed.data.resize is not None:
            return placed.data.requests
    return None


def _fair(total: int, children: list[QuotaRuntime], resource: str) -> dict[str, int]:
    """A quota that requests more than its scaled min starts with that min and takes part in the sharing; the others get their
    request (their scaled min, if they do not lend). The rest is shared by weight round by round, and no quota gets more than
    its request; single units go to the largest remainders, the first name among equals."""
    has: dict[str, int] = {}
    hungry: dict[str, int] = {}
    wants = {child.quota: _wanted(child, resource) for child in children}
    for child in children:
        least = max(child.scaled_min.get(resource, 0), child.guaranteed.get(resource, 0))
        weight = child.shared_weight.get(resource, 0)
        has[child.quota] = least if wants[child.quota] > least or not child.lends else wants[child.quota]
        if wants[child.quota] > least and weight > 0:
            hungry[child.quota] = weight
    left = total - sum(has.values())
    while left > 0 and hungry:
        weights = sum(hungry.values())
        parts = {name: weight * left // weights for name, weight in hungry.items()}
        by_remainder = sorted(hungry, key=lambda name: (-(hungry[name] * left % weights), name.encode()))
        for name in by_remainder[: left - sum(parts.values())]:
            parts[name] += 1
        left = 0
        for name, part in parts.items():
            has[name] += part
            if has[name] >= wants[name]:
                left += has[name] - wants[name]
                has[name] = wants[name]
                del hungry[name]
    return has
