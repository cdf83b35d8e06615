"""The place of an ElasticQuota among the others: whether its position, resources and guarantees are valid.

In: a `Place`: the quota as it would be stored, all others, its stored version if it has one, the gates. Out: field errors, with
the texts of Koordinator's quota webhook; a text may end with figures. One function a rule, in this order:

    is-parent   not taken from a quota with children, not given to one with pods
    tree id     never changes, and is that of parent and children
                (a leaf below the root is accepted here)
    parent      exists, is a parent, and is not the quota itself or below it
    keys        max lists what the parent's max and each child's max list (gate ElasticQuotaEnableUpdateResourceKey: children
                list no more than their parent); min of a child lists no more than that of its parent
    min sums    the mins below one parent fit in the parent's min; not with allow-force-update, and not of a tree's root
    guarantee   (gate ElasticQuotaGuaranteeUsage) what is guaranteed covers the min, here or at some quota above
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from cotenant.api.validation.fields import FieldError, forbidden, invalid, not_found
from cotenant.domain.quota.gates import QuotaGates
from cotenant.domain.quota.names import LABEL_IS_PARENT, LABEL_PARENT, LABEL_TREE, ROOT
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.model.amounts import Amounts, exceeding_complete, format_amounts, larger, total
from cotenant.model.quantities import format_amount

LABELS = "metadata.labels"
_ALL_OFF = QuotaGates()


@dataclass(frozen=True)
class Place:
    """One quota among the others. `others`: without it, in a stated order; `old`: as it is stored, None for a new one."""

    new: ElasticQuotaView
    others: Sequence[ElasticQuotaView]
    old: ElasticQuotaView | None = None
    gates: QuotaGates = _ALL_OFF

    @cached_property
    def parent(self) -> ElasticQuotaView | None:
        """The quota that it names as its parent, if that is stored."""
        return next((quota for quota in self.others if quota.name == self.new.parent), None)

    @cached_property
    def children(self) -> Sequence[ElasticQuotaView]:
        """The quotas that name it as their parent."""
        return [quota for quota in self.others if quota.parent == self.new.name]


def place_errors(place: Place, has_pods: Callable[[ElasticQuotaView], bool]) -> list[FieldError]:
    """Return the errors of the first rule that fails. `has_pods` returns whether pods are bound to a quota as it was."""
    new = place.new
    if new.name == ROOT:
        return []
    errors = _is_parent_changed(place, has_pods) or tree_id_errors(place)
    if errors or (new.parent == ROOT and not new.is_parent):
        return errors
    return parent_errors(place) or key_errors(place) or min_sum_errors(place) or guarantee_errors(place)


def _is_parent_changed(place: Place, has_pods: Callable[[ElasticQuotaView], bool]) -> list[FieldError]:
    new, old, text = place.new, place.old, ""
    if old is not None and old.is_parent and not new.is_parent and place.children:
        text = f"quota has children, isParent is forbidden to modify as false, quotaName:{new.name}"
    elif old is not None and not old.is_parent and new.is_parent and has_pods(old):
        text = f"quota has bound pods, isParent is forbidden to modify as true, quotaName: {new.name}"
    return [forbidden(f"{LABELS}[{LABEL_IS_PARENT}]", text)] if text else []


def tree_id_errors(place: Place) -> list[FieldError]:
    """Return why the quota cannot have its tree id."""
    new, old, parent, text = place.new, place.old, place.parent, ""
    if old is not None and old.tree != new.tree:
        text = f"{new.name} tree id changed [{old.tree}] vs [{new.tree}]"
    elif parent is not None and parent.name != ROOT and parent.tree != new.tree:
        text = f"{new.name} tree id is different from parent {parent.name}, [{new.tree}] vs [{parent.tree}]"
    else:
        stranger = next((child for child in place.children if child.tree != new.tree), None)
        if stranger is not None:
            text = f"{new.name} tree id is different from child {stranger.name}, [{new.tree}] vs [{stranger.tree}]"
    return [invalid(f"{LABELS}[{LABEL_TREE}]", new.tree, text)] if text else []


def parent_errors(place: Place) -> list[FieldError]:
    """Return why the quota cannot have its parent."""
    new, parent = place.new, place.parent
    field = f"{LABELS}[{LABEL_PARENT}]"
    if new.parent == ROOT:
        return []
    if new.parent == new.name or _descends(parent, new.name, place.others):
        text = f"{new.name} has parentName {new.parent}, which is {new.name} itself or lies below it"
        return [invalid(field, new.parent, text)]
    if parent is None:
        text = f"{new.name} has parentName {new.parent} but not find parentInfo in quotaInfoMap"
        return [not_found(field, new.parent, text)]
    if not parent.is_parent:
        text = f"{new.name} has parentName {new.parent} but the parentQuotaInfo's IsParent is false"
        return [invalid(field, new.parent, text)]
    return []


def _descends(quota: ElasticQuotaView | None, ancestor: str, others: Sequence[ElasticQuotaView]) -> bool:
    by_name = {other.name: other for other in others}
    for _ in range(len(by_name) + 1):
        if quota is None or quota.parent == ROOT:
            return False
        if quota.parent == ancestor:
            return True
        quota = by_name.get(quota.parent)
    return False


def key_errors(place: Place) -> list[FieldError]:
    """Return mismatches between the resources of the quota, its parent and its children."""
    new, parent = place.new, place.parent
    pairs = [(parent, new)] if parent is not None and parent.name != ROOT else []
    for above, below in [*pairs, *((new, child) for child in place.children)]:
        equal = set(above.max) == set(below.max)
        if not (equal or (place.gates.enable_update_resource_key and set(below.max) <= set(above.max))):
            text = (
                "failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey failed: max of "
                f"{above.name} lists [{' '.join(sorted(above.max))}], max of {below.name} lists "
                f"[{' '.join(sorted(below.max))}]"
            )
            return [invalid("spec.max", format_amounts(new.max), text)]
        if not set(below.min) <= set(above.min):
            text = (
                "failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey failed: min of "
                f"{below.name} lists [{' '.join(sorted(set(below.min) - set(above.min)))}], which min of {above.name} does not"
            )
            return [invalid("spec.min", format_amounts(new.min), text)]
    return []


def min_sum_errors(place: Place) -> list[FieldError]:
    """Return which sum of mins does not fit."""
    new, parent = place.new, place.parent
    if new.force_update or new.is_tree_root:
        return []
    if parent is not None and parent.name != ROOT:
        brothers = [quota.min for quota in place.others if quota.parent == parent.name]
        wanted = total([*brothers, new.min])
        above = exceeding_complete(wanted, parent.min)
        if above:
            text = (
                f"checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: {parent.name}: "
                f"{_compared(above[0], wanted, parent.min)}"
            )
            return [invalid(f"spec.min[{above[0]}]", _shown(above[0], new.min), text)]
    wanted = total(child.min for child in place.children)
    above = exceeding_complete(wanted, new.min)
    if above:
        text = (
            f"checkMinQuotaSum all children's MinQuota > current MinQuota, current: {new.name}: "
            f"{_compared(above[0], wanted, new.min)}"
        )
        return [invalid(f"spec.min[{above[0]}]", _shown(above[0], new.min), text)]
    return []


def guarantee_errors(place: Place) -> list[FieldError]:
    """Return why a min cannot be guaranteed: neither what the quota is guaranteed already covers it, nor does what any quota
    above it is guaranteed cover the larger of its own min and the sum below it. Only in a tree with an id, below its root, and
    not with allow-force-update. `guaranteed` of the views is what quota-tree published last."""
    new = place.new
    if not place.gates.guarantee_usage:
        return []
    if new.force_update or not new.tree or new.is_tree_root or not exceeding_complete(new.min, new.guaranteed):
        return []
    by_name = {quota.name: quota for quota in place.others}
    wanted: Amounts = larger(new.min, new.guaranteed)
    below, climbed = new, {new.name}
    while below.parent != ROOT and below.parent in by_name and below.parent not in climbed:
        above = by_name[below.parent]
        beside = (quota.guaranteed for quota in by_name.values() if quota.parent == above.name and quota.name != below.name)
        wanted = larger(above.min, total([wanted, *beside]))
        if not exceeding_complete(wanted, above.guaranteed):
            return []
        below = above
        climbed.add(above.name)
    text = f"tree root quota {below.name} can't guarantee for min {new.name}"
    return [invalid("spec.min", format_amounts(new.min), text)]


def _shown(resource: str, amounts: Amounts) -> str:
    return format_amount(resource, amounts.get(resource, 0))


def _compared(resource: str, wanted: Amounts, limit: Amounts) -> str:
    return f"{resource} {_shown(resource, wanted)} > {_shown(resource, limit)}"
