"""One tree: sums, scaled mins and runtimes of its quotas, kept current as pods come and go.

In: the quotas with their effective parents, the default and the system quota (in the default tree), the tree's total, and
what each quota's own pods request and hold, as changes. Out: the runtime of a quota (`runtime`, which brings its way from the
root up to date and nothing else), or everything about it (`solved`), and which quotas changed (`changed`). The rules:

    child_request = own pods' requests + sum over children of min(child.request, child.max)
    request       = child_request where the quota lends, else max(child_request, min)
    used and the non-preemptible sums climb in full
    with the usage guarantee: allocated = own used + sum over children of guaranteed, guaranteed = max(allocated, min)
    below the root its total without what the default and the system quota use is shared, below a quota its runtime (`family`)

The resources shared below a quota are those of its max; below the root, those of any quota's max. All sums are integers
changed by whole pods, so they equal sums from scratch. No amount of a sum is zero. Cost of a change: one step a level.
Source: Koordinator ElasticQuota, updateGroupDeltaRequest, updateGroupDeltaUsed, refreshRuntime in its converged state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cotenant.domain.quota.names import ROOT
from cotenant.domain.quota.sums import OwnPods, QuotaNode, QuotaSums
from cotenant.domain.quota.trees.family import Family, Line
from cotenant.domain.quota.trees.hierarchy import Tree
from cotenant.domain.quota.trees.rules import Rules
from cotenant.domain.quota.trees.totals import available
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.model.amounts import Amounts, exceeding, minus

_NOTHING: dict[str, int] = {}
_NO_LINES: dict[str, Line] = {}


class SolvedQuota(msgspec.Struct, frozen=True, kw_only=True):
    """One quota. Amounts: cpu in milli-cores, everything else in base units; `runtime` has the resources of max."""

    name: str
    parent: str = ""
    reason: str = ""
    min: dict[str, int] = {}
    max: dict[str, int] = {}
    scaled_min: dict[str, int] = {}
    runtime: dict[str, int] = {}
    sums: QuotaSums = QuotaSums()
    overused: tuple[str, ...] = ()
    """Resources in which used is above runtime, sorted."""


class _Quota:
    """One quota of the tree; the root and the built-in ones too."""

    __slots__ = (
        "allocated",
        "below",
        "child_request",
        "guaranteed",
        "index",
        "limit_request",
        "name",
        "node",
        "non_preemptible_request",
        "non_preemptible_used",
        "own",
        "parent",
        "path",
        "reason",
        "request",
        "runtime",
        "stale_below",
        "used",
    )

    def __init__(self, node: QuotaNode, parent: _Quota | None, reason: str = "") -> None:
        self.node = node
        self.name = node.name
        self.parent = parent
        self.reason = reason
        self.index = 0
        """Its place among the children of its parent; -1 if it takes no part in the sharing."""
        self.below: Family | None = None
        self.stale_below = False
        """There is something to share again below it or below a quota below it."""
        self.path: tuple[_Quota, ...] = ()
        """The quotas from below the root down to this one."""
        self.own: tuple[dict[str, int], dict[str, int], dict[str, int], dict[str, int]] = ({}, {}, {}, {})
        """Sums over its own pods: request, used, and of each the non-preemptible part."""
        self.child_request: dict[str, int] = {}
        self.request: dict[str, int] = {}
        self.limit_request: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.non_preemptible_request: dict[str, int] = {}
        self.non_preemptible_used: dict[str, int] = {}
        self.allocated: dict[str, int] = {}
        self.guaranteed: dict[str, int] = {}
        self.runtime: dict[str, int] | None = None
        """As last asked for; None once it changed."""


class QuotaTree:
    """See the module. `built_in`: default and system quota in the default tree, empty in any other."""

    def __init__(
        self, tree: Tree, built_in: Mapping[str, ElasticQuotaView], rules: Rules, *, usage: bool = True
    ) -> None:
        """`usage` False: used and the non-preemptible sums are not kept, only what runtimes depend on."""
        self._usage = usage
        self._guarantee = rules.guarantee_usage
        self._root = _Quota(QuotaNode(name=ROOT, parent=""), None)
        self._quotas: dict[str, _Quota] = {}
        self._children: dict[str, list[_Quota]] = {}
        """Those that share what a quota has, by the name of that quota."""
        self._total: Mapping[str, int] = {}
        self.distributable: dict[str, int] = {}
        """What is shared below the root."""
        self._touched: set[str] = set()
        """Quotas of which anything but the runtime changed since `changed`, or the runtime and it was noticed."""
        self._build(tree, rules)
        for name, view in sorted(built_in.items()):
            apart = _Quota(QuotaNode(name=name, max=view.max, min=view.min), self._root)
            apart.index = -1
            self._quotas[name] = apart
        self._touched.update((ROOT, *self._quotas))

    def _build(self, tree: Tree, rules: Rules) -> None:
        children: dict[str, list[QuotaNode]] = {}
        for node in sorted(tree.nodes, key=lambda node: node.name):
            children.setdefault(node.parent, []).append(node)
        every_resource = sorted({resource for node in tree.nodes for resource in node.max})
        parents = [(self._root, every_resource)]
        while parents:
            parent, resources = parents.pop()
            nodes = children.get(parent.name)
            if not nodes:
                continue
            parent.below = Family(nodes, resources, scale_min=rules.scale_min)
            parent.stale_below = True
            self._children[parent.name] = []
            for index, node in enumerate(nodes):
                quota = self._quotas[node.name] = _Quota(node, parent, tree.reasons.get(node.name, ""))
                quota.index = index
                quota.path = (*parent.path, quota)
                self._children[parent.name].append(quota)
                parents.append((quota, sorted(node.max)))
                self._start(quota)

    def _start(self, quota: _Quota) -> None:
        """Give a quota the sums that it has without pods: one that does not lend requests its min."""
        resources = [resource for resource, amount in quota.node.min.items() if amount]
        if self._guarantee:
            self._guaranteed(quota, resources)
        if (self._guarantee or not quota.node.lends) and resources:
            self._requested(quota, dict.fromkeys(resources, 0))

    # -- changes -------------------------------------------------------------------------------------------------------

    def set_total(self, total: Mapping[str, int]) -> None:
        """Take over what the tree has, with the part that the built-in quotas use."""
        self._total = total
        self._distribute()

    def _distribute(self) -> None:
        distributable = available(self._total, self._root.own[1])
        if distributable != self.distributable:
            self.distributable = distributable
            self._root.stale_below = True
            self._touched.add(ROOT)

    def ask(self, name: str, request: Amounts, preemptible: bool, times: int) -> None:
        """Count so many pods of a quota that request so much each; a negative number takes them away. The request is reduced to
        the resources of its max."""
        quota = self._quotas[name]
        delta = {resource: amount * times for resource, amount in request.items() if amount}
        if not delta:
            return
        _add(quota.own[0], delta)
        if not preemptible and self._usage:
            _add(quota.own[2], delta)
            for level in self._upwards(quota):
                _add(level.non_preemptible_request, delta)
                self._touched.add(level.name)
        if quota.index < 0:
            _add(self._root.own[0], delta)
            if not preemptible:
                _add(self._root.own[2], delta)
        self._requested(quota, delta)

    def hold(self, name: str, request: Amounts, preemptible: bool, times: int) -> bool:
        """As `ask`, for pods that are placed; return whether that matters to what is kept."""
        quota = self._quotas[name]
        if not self._usage and not self._guarantee and quota.index >= 0:
            return False  # no runtime depends on it
        delta = {resource: amount * times for resource, amount in request.items() if amount}
        if not delta:
            return False
        _add(quota.own[1], delta)
        if not preemptible:
            _add(quota.own[3], delta)
        if self._usage:
            for level in self._upwards(quota):
                self._touched.add(level.name)
                _add(level.used, delta)
                if not preemptible:
                    _add(level.non_preemptible_used, delta)
        if quota.index < 0:
            _add(self._root.own[1], delta)
            if not preemptible:
                _add(self._root.own[3], delta)
            self._distribute()
        if self._guarantee:
            self._held(quota if quota.index >= 0 else self._root, delta)
        return True

    def _upwards(self, quota: _Quota) -> Iterable[_Quota]:
        level: _Quota | None = quota
        while level is not None:
            yield level
            level = level.parent

    def _requested(self, quota: _Quota, delta: Amounts) -> None:
        """Add to what a quota's pods and children request, and climb with what its parent sees of it."""
        level, touched, guarantee = quota, self._touched, self._guarantee
        while True:
            touched.add(level.name)
            node, asked, requests, limited = level.node, level.child_request, level.request, level.limit_request
            index, most, parent = level.index, node.max, level.parent
            lends = node.lends and (not guarantee or index < 0)
            lines = parent.below.lines if parent is not None and parent.below is not None and index >= 0 else _NO_LINES
            upwards: dict[str, int] = {}
            stale = got = False
            for resource, amount in delta.items():
                request = asked.get(resource, 0) + amount
                if request:
                    asked[resource] = request
                else:
                    asked.pop(resource, None)
                if not lends:
                    request = max(request, node.min.get(resource, 0))
                if request:
                    requests[resource] = request
                else:
                    requests.pop(resource, None)
                seen = min(request, most[resource]) if resource in most else request
                before = limited.get(resource, 0)
                if seen == before:
                    continue
                if seen:
                    limited[resource] = seen
                else:
                    del limited[resource]
                upwards[resource] = seen - before
                line = lines.get(resource)
                if line is not None:
                    got = line.request(index, seen) or got
                    stale = stale or line.stale
            if not upwards or parent is None or index < 0:
                break
            if got:
                self._got(level)
            if stale:
                self._mark_stale(parent)
            level, delta = parent, upwards
        if quota.index < 0:
            # The pods of a built-in quota count at the root as if they were its own.
            self._requested(self._root, delta)

    def _got(self, child: _Quota) -> None:
        """A quota has another runtime."""
        child.runtime = None
        self._touched.add(child.name)
        if child.below is not None:
            self._mark_stale(child)

    def _mark_stale(self, quota: _Quota) -> None:
        level: _Quota | None = quota
        while level is not None and not level.stale_below:
            level.stale_below = True
            level = level.parent

    def _held(self, quota: _Quota, delta: Amounts) -> None:
        """Add to what a quota's pods use, and climb with what is guaranteed for it."""
        node = quota.node
        known = [resource for resource in delta if quota is self._root or resource in node.max or resource in node.min]
        _add(quota.allocated, {resource: delta[resource] for resource in known})
        self._guaranteed(quota, known)

    def _guaranteed(self, quota: _Quota, resources: Iterable[str]) -> None:
        level: _Quota = quota
        while True:
            self._touched.add(level.name)
            upwards: dict[str, int] = {}
            for resource in resources:
                guaranteed = max(level.allocated.get(resource, 0), level.node.min.get(resource, 0))
                before = level.guaranteed.get(resource, 0)
                if guaranteed != before:
                    _put(level.guaranteed, resource, guaranteed)
                    upwards[resource] = guaranteed - before
            parent = level.parent
            if not upwards or parent is None or level.index < 0:
                return
            family = parent.below
            assert family is not None
            for resource in upwards:
                family.guarantee(level.index, resource, level.guaranteed.get(resource, 0))
            self._mark_stale(parent)
            _add(parent.allocated, upwards)
            level, resources = parent, upwards

    # -- answers -------------------------------------------------------------------------------------------------------

    def runtime(self, name: str) -> dict[str, int]:
        """Return what a quota may use now, in the resources of its max; always the same object while it does not change."""
        quota = self._quotas.get(name)
        if quota is None:
            return self.distributable if name == ROOT else _NOTHING
        for level in quota.path:
            parent = level.parent
            if parent is not None and parent.stale_below:
                self._share(parent)
        return self._runtime_of(quota)

    def way(self, name: str) -> tuple[tuple[str, dict[str, int]], ...]:
        """Return a quota and those above it, nearest first, without the root, each with its runtime."""
        self.runtime(name)
        quota = self._quotas[name]
        return tuple([(level.name, self._runtime_of(level)) for level in reversed(quota.path or (quota,))])

    def _runtime_of(self, quota: _Quota) -> dict[str, int]:
        if quota.runtime is None:
            if quota.index < 0:
                quota.runtime = quota.node.max
            else:
                family = quota.parent.below if quota.parent is not None else None
                assert family is not None
                # A resource that the parent does not list is not distributed below it.
                quota.runtime = {resource: family.has(quota.index, resource) for resource in quota.node.max}
        return quota.runtime

    def _share(self, parent: _Quota) -> None:
        """Share what a quota has among its children; what is stale farther below stays so."""
        family = parent.below
        if family is None:
            return
        above = parent.parent.below if parent.parent is not None else None
        changed = family.refresh(above, parent.index, self.distributable)
        if changed:
            children = self._children[parent.name]
            for index in changed:
                self._got(children[index])

    def changed(self) -> set[str]:
        """Bring all quotas up to date; return those of which anything changed since the last call."""
        stack = [self._root]
        while stack:
            parent = stack.pop()
            if parent.stale_below:
                self._share(parent)
                parent.stale_below = False
                stack += [child for child in self._children.get(parent.name, ()) if child.stale_below]
        touched, self._touched = self._touched, set()
        return touched

    def solved(self, name: str) -> SolvedQuota:
        """Return everything about a quota. Raises KeyError for one that is not of the tree."""
        quota = self._root if name == ROOT else self._quotas[name]
        sums = _sums_of(quota)
        if quota is self._root:
            inside = minus(sums.used, sums.own.used)
            return SolvedQuota(
                name=ROOT, runtime=self.distributable, sums=sums, overused=exceeding(inside, self.distributable)
            )
        runtime = self.runtime(name)
        node, parent = quota.node, quota.parent
        assert parent is not None
        shared = parent.below is not None and quota.index >= 0
        return SolvedQuota(
            name=name,
            parent=parent.name,
            reason=quota.reason,
            min=node.min,
            max=node.max,
            scaled_min=parent.below.scaled_min(quota.index) if shared and parent.below is not None else node.min,
            runtime=runtime,
            sums=sums,
            overused=exceeding(sums.used, runtime),
        )

    def names(self) -> Iterable[str]:
        """Return all quotas of the tree, the root first."""
        return (ROOT, *self._quotas)


def _sums_of(quota: _Quota) -> QuotaSums:
    request, used, non_preemptible_request, non_preemptible_used = (dict(part) for part in quota.own)
    return QuotaSums(
        own=OwnPods(
            request=request,
            used=used,
            non_preemptible_request=non_preemptible_request,
            non_preemptible_used=non_preemptible_used,
        ),
        child_request=dict(quota.child_request),
        request=dict(quota.request),
        limit_request=dict(quota.limit_request),
        used=dict(quota.used),
        non_preemptible_request=dict(quota.non_preemptible_request),
        non_preemptible_used=dict(quota.non_preemptible_used),
        allocated=dict(quota.allocated),
        guaranteed=dict(quota.guaranteed),
    )


def _put(amounts: dict[str, int], resource: str, amount: int) -> None:
    if amount:
        amounts[resource] = amount
    else:
        amounts.pop(resource, None)


def _add(amounts: dict[str, int], delta: Amounts) -> None:
    for resource, amount in delta.items():
        now = amounts.get(resource, 0) + amount
        if now:
            amounts[resource] = now
        else:
            amounts.pop(resource, None)
