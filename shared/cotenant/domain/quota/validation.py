"""Whether an ElasticQuota may be stored: the checks of its own fields, and of its place among the other quotas.

In: the quota as it would be stored, and all quotas stored (an older version of itself among them makes it an update).
Out: every rule that it breaks, as field errors in the order of the rules; none means it is accepted. The texts are
those of Koordinator's quota webhook; unlike there, all violations of the quota's own fields are reported at once. The
checks of the tree (`cotenant.domain.quota.place`) follow only when the quota's own fields are right, and stop at the first
rule that fails, as later ones build on earlier ones.

Own fields: no negative amount in min, max, shared weight; every resource of min is in max, and not above it; for the
keys named strict, used is not above max. Among all: the name is unique in the cluster (namespaces do not count), a namespace
is bound to one quota.
"""

from collections.abc import Callable, Mapping, Sequence

from cotenant.api.validation.fields import FieldError, forbidden, invalid
from cotenant.domain.quota.gates import QuotaGates
from cotenant.domain.quota.names import (
    ANNOTATION_NAMESPACES,
    ANNOTATION_SHARED_WEIGHT,
    BUILT_IN_QUOTAS,
    LABEL_QUOTA,
    ROOT,
    SYSTEM,
)
from cotenant.domain.quota.place import Place, place_errors
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.model.amounts import Amounts, format_amounts
from cotenant.model.quantities import format_amount

ANNOTATIONS = "metadata.annotations"
_ALL_OFF = QuotaGates()


def validate_quota(
    new: ElasticQuotaView,
    others: Sequence[ElasticQuotaView],
    has_pods: Callable[[ElasticQuotaView], bool] = lambda _: False,
    gates: QuotaGates = _ALL_OFF,
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
        or place_errors(Place(new, siblings_and_more, old, gates), has_pods)
    )


def binds(quota: ElasticQuotaView, namespace: str, labels: Mapping[str, str]) -> bool:
    """Return whether a pod belongs to the quota: by its label, or by a namespace that is the quota's or has its name."""
    named = labels.get(LABEL_QUOTA)
    return named == quota.name if named else namespace == quota.name or namespace in quota.namespaces


def validate_quota_deletion(quota: ElasticQuotaView, others: Sequence[ElasticQuotaView], pods: Sequence[str]) -> str:
    """Return why the quota may not be deleted, empty if it may. `pods`: names of pods labelled with it."""
    if quota.name in BUILT_IN_QUOTAS:
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
