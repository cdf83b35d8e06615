"""One tree: sums, scaled mins and runtimes of its quotas, kept current as pods come and go.

In: the quotas with their effective parents, the default and the system quota (in the default tree), the tree's total, and
what each quota's own pods request and hold, as changes. Out: the runtime of a quota (`runtime`, which computes its way from the
root and nothing else), or everything about it (`solved`), and which quotas changed (`changed`). The rules:

    child_request = own pods' requests + sum over children of min(child.request, child.max)
    request       = child_request where the quota lends, else max(child_request, min)
    used and the non-preemptible sums climb in full
    with the usage guarantee: allocated = own used + sum over children of guaranteed, guaranteed = max(allocated, min)
    below the root its total without what the default and the system quota use is shared, below a quota what it gets (`family`)

The resources shared below a quota are those of its max; below the root, those of any quota's max. All sums are integers
changed by whole pods, so they equal sums from scratch (`counted_quota` holds them). A change costs a step a level, and so does
the runtime of a quota. Source: Koordinator ElasticQuota, updateGroupDeltaRequest, updateGroupDeltaUsed, refreshRuntime in its
converged state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cotenant.domain.quota.names import ROOT
from cotenant.domain.quota.sums import QuotaNode
from cotenant.domain.quota.trees.climbing import Climbing
from cotenant.domain.quota.trees.counted_quota import CountedQuota, SolvedQuota, add, put, sums_of
from cotenant.domain.quota.trees.family import Family
from cotenant.domain.quota.trees.hierarchy import Tree
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.trees.totals import available
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.model.amounts import Amounts, exceeding, limited, minus

_NOTHING: dict[str, int] = {}


class QuotaTree(Climbing):
    """See the module. `built_in`: default and system quota in the default tree, empty in any other."""

    def __init__(
        self, tree: Tree, built_in: Mapping[str, ElasticQuotaView], rules: QuotaRules, *, usage: bool = True
    ) -> None:
        """`usage` False: only what runtimes depend on is kept, without used, the non-preemptible sums and what changed."""
        super().__init__(guarantee=rules.guarantee_usage, usage=usage)
        self._quotas: dict[str, CountedQuota] = {}
        self._children: dict[str, list[CountedQuota]] = {}
        """The families, by the name of the parent quota."""
        self._total: Mapping[str, int] = {}
        self.distributable: dict[str, int] = {}
        """The amounts shared below the root."""
        self._build(tree, rules)
        for name, view in sorted(built_in.items()):
            apart = CountedQuota(QuotaNode(name=name, max=view.max, min=view.min), self._root)
            apart.index = -1
            self._quotas[name] = apart
        self._touched.update((ROOT, *self._quotas))

    def _build(self, tree: Tree, rules: QuotaRules) -> None:
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
            family = parent.below = Family(nodes, resources, scale_min=rules.scale_min)
            parent.stale = parent.stale_below = True
            self._children[parent.name] = []
            for index, node in enumerate(nodes):
                lends = node.lends and not self._guarantee
                quota = CountedQuota(node, parent, tree.reasons.get(node.name, ""), lends=lends)
                self._quotas[node.name] = quota
                quota.index, quota.family, quota.lines = index, family, family.lines
                quota.path = (*parent.path, quota)
                self._children[parent.name].append(quota)
                parents.append((quota, sorted(node.max)))
                self._start(quota)

    def _start(self, quota: CountedQuota) -> None:
        """Set a quota's sums without pods: one that does not lend requests its min."""
        node = quota.node
        if self._guarantee:
            self._guaranteed(quota, [resource for resource, amount in node.min.items() if amount])
        if not quota.lends:
            asked = {resource: amount for resource, amount in node.min.items() if amount > 0}
            seen = limited(asked, node.max)
            for resource, amount in seen.items():
                if resource in quota.lines:
                    quota.lines[resource].request(quota.index, amount)
            self._requested(quota.parent, seen)

    # -- changes -------------------------------------------------------------------------------------------------------

    def set_total(self, total: Mapping[str, int]) -> None:
        """Take over the tree's total, with the part that the built-in quotas use."""
        self._total = total
        self._distribute()

    def _distribute(self) -> None:
        distributable = available(self._total, self._root.own[1])
        if distributable != self.distributable:
            self.distributable = distributable
            self._version += 1
            self._root.stale = self._root.stale_below = True
            self._touched.add(ROOT)

    def ask(self, name: str, request: Amounts, preemptible: bool, times: int) -> None:
        """Count this many pods of a quota with this request each; a negative number removes them. The request is reduced to
        the resources of its max."""
        quota = self._quotas[name]
        delta = {resource: amount * times for resource, amount in request.items() if amount}
        if not delta:
            return
        add(quota.own[0], delta)
        if not preemptible and self._usage:
            add(quota.own[2], delta)
            for level in self._upwards(quota):
                add(level.non_preemptible_request, delta)
                self._touched.add(level.name)
        if quota.index < 0:
            # The pods of a built-in quota count at the root as if they were its own.
            add(self._root.own[0], delta)
            if not preemptible:
                add(self._root.own[2], delta)
            self._requested(quota, delta)
            self._requested(self._root, delta)
            return
        self._ask_later(quota, delta)

    def hold(self, name: str, request: Amounts, preemptible: bool, times: int) -> bool:
        """As `ask`, for pods that are placed; return whether that matters to what is kept."""
        quota = self._quotas[name]
        if not self._usage and not self._guarantee and quota.index >= 0:
            return False  # no runtime depends on it
        delta = {resource: amount * times for resource, amount in request.items() if amount}
        if not delta:
            return False
        version = self._version
        add(quota.own[1], delta)
        if not preemptible:
            add(quota.own[3], delta)
        if self._usage:
            for level in self._upwards(quota):
                self._touched.add(level.name)
                add(level.used, delta)
                if not preemptible:
                    add(level.non_preemptible_used, delta)
        if quota.index < 0:
            add(self._root.own[1], delta)
            if not preemptible:
                add(self._root.own[3], delta)
            self._distribute()
        if self._guarantee:
            self._held(quota if quota.index >= 0 else self._root, delta)
        return self._usage or self._version != version

    def _upwards(self, quota: CountedQuota) -> Iterable[CountedQuota]:
        level: CountedQuota | None = quota
        while level is not None:
            yield level
            level = level.parent

    def _held(self, quota: CountedQuota, delta: Amounts) -> None:
        """Add to what a quota's pods use, and propagate the change of its guarantee to the ancestors."""
        node = quota.node
        known = [resource for resource in delta if quota is self._root or resource in node.max or resource in node.min]
        add(quota.allocated, {resource: delta[resource] for resource in known})
        self._guaranteed(quota, known)

    def _guaranteed(self, quota: CountedQuota, resources: Iterable[str]) -> None:
        level: CountedQuota = quota
        while True:
            if self._usage:
                self._touched.add(level.name)
            upwards: dict[str, int] = {}
            for resource in resources:
                guaranteed = max(level.allocated.get(resource, 0), level.node.min.get(resource, 0))
                before = level.guaranteed.get(resource, 0)
                if guaranteed != before:
                    put(level.guaranteed, resource, guaranteed)
                    upwards[resource] = guaranteed - before
            parent, family = level.parent, level.family
            if not upwards or parent is None or family is None:
                return
            self._version += 1
            for resource in upwards:
                family.guarantee(level.index, resource, level.guaranteed.get(resource, 0))
            self._mark_stale(parent)
            add(parent.allocated, upwards)
            level, resources = parent, upwards

    # -- answers -------------------------------------------------------------------------------------------------------

    def runtime(self, name: str) -> dict[str, int]:
        """Return what a quota may use now, in the resources of its max; always the same object while it does not change."""
        if self._asked:
            self._climb()
        quota = self._quotas.get(name)
        if quota is None:
            return self.distributable if name == ROOT else _NOTHING
        if quota.index < 0:
            return quota.node.max
        has = quota.has if quota.version == self._version else self._bring(quota)
        if quota.runtime_of is not has:
            quota.runtime_of = has
            # A resource that the parent does not list is not distributed below it.
            runtime = {resource: has.get(resource, 0) for resource in quota.node.max}
            if runtime != quota.runtime:
                quota.runtime = runtime
        return quota.runtime

    def _bring(self, quota: CountedQuota) -> dict[str, int]:
        """Return what a quota gets in its family, and in those above it where that is not known."""
        version, path = self._version, quota.path
        known = len(path) - 1
        while known and path[known - 1].version != version:
            known -= 1
        has = path[known - 1].has if known else self.distributable
        for level in path[known:]:
            assert level.family is not None
            gets = level.family.of(level.index, has)
            if gets != level.has:
                level.has = gets
            level.version = version
            has = level.has
        return has

    def changed(self) -> set[str]:
        """Bring all quotas up to date; return those of which anything changed since the last call. The tree keeps usage."""
        assert self._usage
        if self._asked:
            self._climb()
        stack = [self._root]
        while stack:
            parent = stack.pop()
            if parent.stale_below:
                if parent.stale:
                    self._report(parent)
                parent.stale_below = False
                stack += [child for child in self._children.get(parent.name, ()) if child.stale_below]
        touched, self._touched = self._touched, set()
        return touched

    def _report(self, parent: CountedQuota) -> None:
        """Share what a quota has among its children; those that get something else have to be reported, and to share it."""
        parent.stale = False
        if parent.below is None:
            return
        children = self._children[parent.name]
        for index in parent.below.changed(self._bring(parent) if parent.path else self.distributable):
            child = children[index]
            self._touched.add(child.name)
            if child.below is not None:
                child.stale = child.stale_below = True

    def solved(self, name: str) -> SolvedQuota:
        """Return everything about a quota. Raises KeyError for one that is not of the tree."""
        if self._asked:
            self._climb()
        quota = self._root if name == ROOT else self._quotas[name]
        sums = sums_of(quota)
        if quota is self._root:
            inside = minus(sums.used, sums.own.used)
            return SolvedQuota(
                name=ROOT, runtime=self.distributable, sums=sums, overused=exceeding(inside, self.distributable)
            )
        runtime = self.runtime(name)
        node, parent = quota.node, quota.parent
        assert parent is not None
        return SolvedQuota(
            name=name,
            parent=parent.name,
            reason=quota.reason,
            min=node.min,
            max=node.max,
            scaled_min=quota.family.scaled_min(quota.index) if quota.family is not None else node.min,
            runtime=runtime,
            sums=sums,
            overused=exceeding(sums.used, runtime),
        )

    def names(self) -> Iterable[str]:
        """Return all quotas of the tree, the root first."""
        return (ROOT, *self._quotas)
