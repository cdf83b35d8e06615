"""Whether an ElasticQuota may be stored: the checks of its own fields, and of its place among the other quotas.

In: the quota as it would be stored, and all quotas stored (an older version of itself among them makes it an update).
Out: every rule that it breaks, as field errors in the order of the rules; none means it is accepted. The texts are
those of Koordinator's quota webhook; unlike there, all violations of the quota's own fields are reported at once. The
checks of the tree follow only when the quota's own fields are right, and the tree's rules stop at the first group that
fails, as later ones build on earlier ones.

Own fields: no negative amount in min, max, shared weight; every resource of min is in max, and not above it; for the
keys named strict, used is not above max. Tree: the name is unique in the cluster (namespaces do not count); no cycle;
is-parent may not be taken from a quota with children, nor given to one with pods; the tree id never changes and is that
of parent and children; the parent exists and is a parent; parent and child list the same resources in max, and min's
are among the parent's; the sum of the mins below one parent fits in the parent's min (skipped with allow-force-update,
and on the first level, whose total is the cluster's and may shrink).
"""

from collections.abc import Callable, Mapping, Sequence

from cotenant.api.validation.fields import FieldError, forbidden, invalid, not_found
from cotenant.domain.quota.names import (
    ANNOTATION_NAMESPACES,
    ANNOTATION_SHARED_WEIGHT,
    BUILT_IN,
    LABEL_IS_PARENT,
    LABEL_PARENT,
    LABEL_QUOTA,
    LABEL_TREE,
    ROOT,
    SYSTEM,
)
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.model.amounts import Amounts, exceeding_complete, format_amounts, total
from cotenant.model.quantities import format_amount

LABELS = "metadata.labels"
ANNOTATIONS = "metadata.annotations"


def validate_quota(
    new: ElasticQuotaView, others: Sequence[ElasticQuotaView], has_pods: Callable[[ElasticQuotaView], bool] = lambda _: False
) -> list[FieldError]:
    """Return the field errors of storing `new` beside `others`; amounts of both as `quota_view` reads them. `has_pods` returns
    whether pods are bound to a quota as it was; it is called only if the rules need it."""
    old = next((quota for quota in others if (quota.name, quota.namespace) == (new.name, new.namespace)), None)
    siblings_and_more = sorted(
        (quota for quota in others if quota.name != new.name), key=lambda quota: (quota.name, quota.namespace)
    )
    twin = next((quota for quota in others if quota.name == new.name and quota.namespace != new.namespace), None)
    if twin is not None:
        return [
            invalid(
                "metadata.name",
                new.name,
                f"AddQuota quota already exist:{new.name} (in namespace {twin.namespace}; a quota is known by its name alone)",
            )
        ]
    if old is not None and _unchanged(new, old):
        return []
    if old is not None and new.name in (SYSTEM, ROOT):
        return [forbidden("metadata.name", f"invalid quota {new.name}")]
    return (
        _bound_namespaces(new, siblings_and_more, old)
        or own_field_errors(new)
        or _tree_errors(new, old, siblings_and_more, has_pods)
    )


def binds(quota: ElasticQuotaView, namespace: str, labels: Mapping[str, str]) -> bool:
    """Return whether a pod belongs to the quota: by its label, or by a namespace that is the quota's or has its name."""
    named = labels.get(LABEL_QUOTA)
    return named == quota.name if named else namespace == quota.name or namespace in quota.namespaces


def validate_quota_deletion(quota: ElasticQuotaView, others: Sequence[ElasticQuotaView], pods: Sequence[str]) -> str:
    """Return why the quota may not be deleted, empty if it may. `pods`: names of pods labelled with it."""
    if quota.name in BUILT_IN:
        return f"can not delete quotaGroup :{quota.name}"
    children = sum(1 for other in others if other.parent == quota.name and other.name != quota.name)
    if children:
        return f"delete quota failed, quota {quota.name} has {children} child quotas"
    if pods:
        named = ", ".join([*pods[:2], *(["..."] if len(pods) > 2 else [])])
        return f"delete quota failed, quota {quota.name} has {len(pods)} child pods: {named}"
    return ""


def own_field_errors(quota: ElasticQuotaView) -> list[FieldError]:
    """Return the errors in the quota's own fields."""
    errors: list[FieldError] = []
    for field, amounts in (("max", quota.max), ("min", quota.min)):
        negative = _negative(amounts)
        if negative:
            text = f"{quota.name} quota.Spec.{field.title()}'s value < 0, in dimensions :[{' '.join(negative)}]"
            errors.append(invalid(f"spec.{field}[{negative[0]}]", amounts[negative[0]], text))
    negative = _negative(quota.shared_weight) if quota.shared_weight != quota.max else ()
    if negative:
        text = f"{quota.name} quota.Annotation[{ANNOTATION_SHARED_WEIGHT}]'s value < 0, in dimension :[{' '.join(negative)}]"
        errors.append(invalid(f"{ANNOTATIONS}[{ANNOTATION_SHARED_WEIGHT}]", quota.shared_weight[negative[0]], text))
    errors += [
        invalid(f"{ANNOTATIONS}[{ANNOTATION_SHARED_WEIGHT}]", "", fault)
        for fault in quota.faults
        if ANNOTATION_SHARED_WEIGHT in fault
    ]
    return errors or [*_min_above_max(quota), *_strict_max(quota)]


def _negative(amounts: Amounts) -> tuple[str, ...]:
    return tuple(sorted(resource for resource, amount in amounts.items() if amount < 0))


def _min_above_max(quota: ElasticQuotaView) -> list[FieldError]:
    errors = []
    for resource, amount in sorted(quota.min.items()):
        shown, bound = format_amount(resource, amount), quota.max.get(resource)
        if bound is None:
            text = f"resourceKey {resource} of quota {quota.name} is included in min, which is not included in max"
            errors.append(invalid(f"spec.min[{resource}]", shown, text))
        elif amount > bound:
            text = f"resourceKey {resource} of quota {quota.name} min {shown} > max {format_amount(resource, bound)}"
            errors.append(invalid(f"spec.min[{resource}]", shown, text))
    return errors


def _strict_max(quota: ElasticQuotaView) -> list[FieldError]:
    errors = []
    for resource in sorted(set(quota.strict_keys) & set(quota.used)):
        used, bound = quota.used[resource], quota.max.get(resource)
        if bound is None:
            text = (
                f"resourceKey {resource} of quota {quota.name} is included in used, "
                "which is not included in max but should check max >= used"
            )
            errors.append(invalid("spec.max", format_amounts(quota.max), text))
        elif bound < used:
            shown = format_amount(resource, bound)
            text = f"resourceKey {resource} of quota {quota.name} max {shown} < used {format_amount(resource, used)}"
            errors.append(invalid(f"spec.max[{resource}]", shown, text))
    return errors


def _unchanged(new: ElasticQuotaView, old: ElasticQuotaView) -> bool:
    """Whether nothing changed that the checks read."""
    return all(
        getattr(new, field) == getattr(old, field) for field in ("parent", "is_parent", "tree", "namespaces", "min", "max")
    )


def _bound_namespaces(
    new: ElasticQuotaView, others: Sequence[ElasticQuotaView], old: ElasticQuotaView | None
) -> list[FieldError]:
    field = f"{ANNOTATIONS}[{ANNOTATION_NAMESPACES}]"
    for namespace in new.namespaces:
        for other in others:
            if namespace in other.namespaces:
                text = (
                    f"AddQuota quota {new.name}'s annotation namespace {namespace} is already bound to quota {other.name}"
                    if old is None
                    else f"UpdateQuota, quota {new.name} update namespaces, but namespace {namespace} is already bound "
                    f"to quota {other.name}"
                )
                return [invalid(field, namespace, text)]
    return []


def _tree_errors(
    new: ElasticQuotaView,
    old: ElasticQuotaView | None,
    others: Sequence[ElasticQuotaView],
    has_pods: Callable[[ElasticQuotaView], bool],
) -> list[FieldError]:
    if new.name == ROOT:
        return []
    parent = next((quota for quota in others if quota.name == new.parent), None)
    children = [quota for quota in others if quota.parent == new.name]
    errors = _is_parent_changed(new, old, children, has_pods) or _tree_id(new, old, parent, children)
    if errors or (new.parent == ROOT and not new.is_parent):
        return errors
    return (
        _parent_missing(new, parent, others)
        or _keys(new, parent, children)
        or ([] if new.force_update or new.is_tree_root else _min_sums(new, parent, children, others))
    )


def _is_parent_changed(
    new: ElasticQuotaView,
    old: ElasticQuotaView | None,
    children: Sequence[ElasticQuotaView],
    has_pods: Callable[[ElasticQuotaView], bool],
) -> list[FieldError]:
    text = ""
    if old is not None and old.is_parent and not new.is_parent and children:
        text = f"quota has children, isParent is forbidden to modify as false, quotaName:{new.name}"
    elif old is not None and not old.is_parent and new.is_parent and has_pods(old):
        text = f"quota has bound pods, isParent is forbidden to modify as true, quotaName: {new.name}"
    return [forbidden(f"{LABELS}[{LABEL_IS_PARENT}]", text)] if text else []


def _tree_id(
    new: ElasticQuotaView,
    old: ElasticQuotaView | None,
    parent: ElasticQuotaView | None,
    children: Sequence[ElasticQuotaView],
) -> list[FieldError]:
    text = ""
    if old is not None and old.tree != new.tree:
        text = f"{new.name} tree id changed [{old.tree}] vs [{new.tree}]"
    elif parent is not None and parent.name != ROOT and parent.tree != new.tree:
        text = f"{new.name} tree id is different from parent {parent.name}, [{new.tree}] vs [{parent.tree}]"
    else:
        stranger = next((child for child in children if child.tree != new.tree), None)
        if stranger is not None:
            text = f"{new.name} tree id is different from child {stranger.name}, [{new.tree}] vs [{stranger.tree}]"
    return [invalid(f"{LABELS}[{LABEL_TREE}]", new.tree, text)] if text else []


def _parent_missing(
    new: ElasticQuotaView, parent: ElasticQuotaView | None, others: Sequence[ElasticQuotaView]
) -> list[FieldError]:
    field = f"{LABELS}[{LABEL_PARENT}]"
    if new.parent == ROOT:
        return []
    if new.parent == new.name or _descends(parent, new.name, others):
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


def _keys(new: ElasticQuotaView, parent: ElasticQuotaView | None, children: Sequence[ElasticQuotaView]) -> list[FieldError]:
    pairs = [(parent, new)] if parent is not None and parent.name != ROOT else []
    for above, below in [*pairs, *((new, child) for child in children)]:
        if set(above.max) != set(below.max):
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


def _min_sums(
    new: ElasticQuotaView,
    parent: ElasticQuotaView | None,
    children: Sequence[ElasticQuotaView],
    others: Sequence[ElasticQuotaView],
) -> list[FieldError]:
    if parent is not None and parent.name != ROOT:
        brothers = [quota.min for quota in others if quota.parent == parent.name]
        wanted = total([*brothers, new.min])
        above = exceeding_complete(wanted, parent.min)
        if above:
            text = (
                f"checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: {parent.name}: "
                f"{_compared(above[0], wanted, parent.min)}"
            )
            return [invalid(f"spec.min[{above[0]}]", _shown(above[0], new.min), text)]
    wanted = total(child.min for child in children)
    above = exceeding_complete(wanted, new.min)
    if above:
        text = (
            f"checkMinQuotaSum all children's MinQuota > current MinQuota, current: {new.name}: "
            f"{_compared(above[0], wanted, new.min)}"
        )
        return [invalid(f"spec.min[{above[0]}]", _shown(above[0], new.min), text)]
    return []


def _shown(resource: str, amounts: Amounts) -> str:
    return format_amount(resource, amounts.get(resource, 0))


def _compared(resource: str, wanted: Amounts, limit: Amounts) -> str:
    return f"{resource} {_shown(resource, wanted)} > {_shown(resource, limit)}"
