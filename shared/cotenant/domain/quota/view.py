"""One ElasticQuota object as the rules read it.

In: the object's document (JSON bytes) or its typed view. Out: `ElasticQuotaView`, whose amounts are integers and whose
labels and annotations are resolved: parent (empty means the root quota), is-parent, lending, tree, shared weight,
namespaces. A malformed or all-zero shared weight counts as missing, and missing means max; malformed namespaces count
as an empty list: such a quota still works, and `faults` says what was ignored. A malformed quantity in min or max
raises QuantityError.
"""

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.policies import ElasticQuota
from cotenant.domain.quota.names import (
    ANNOTATION_ADMISSION,
    ANNOTATION_CHILD_REQUEST,
    ANNOTATION_GUARANTEED,
    ANNOTATION_NAMESPACES,
    ANNOTATION_SHARED_WEIGHT,
    ANNOTATION_STRICT_KEYS,
    ANNOTATION_TOTAL,
    BUILT_IN_MAX,
    BUILT_IN_NAMESPACE,
    LABEL_FORCE_UPDATE,
    LABEL_IGNORE_DEFAULT_TREE,
    LABEL_IS_PARENT,
    LABEL_IS_ROOT,
    LABEL_LENDS,
    LABEL_PARENT,
    LABEL_TREE,
    ROOT,
)
from cotenant.model.amounts import LARGEST_AMOUNT, parse_amount, parse_amounts
from cotenant.model.quantities import QuantityError, Scalar
from cotenant.model.tiers import RENAMED_RESOURCES


class ElasticQuotaView(msgspec.Struct, frozen=True, kw_only=True):
    """One quota. Amounts: cpu in milli-cores, everything else in base units."""

    name: str
    namespace: str = ""
    uid: str = ""
    parent: str = ROOT
    is_parent: bool = False
    lends: bool = True
    """Whether siblings may use the part of its min that it does not request."""
    tree: str = ""
    is_tree_root: bool = False
    ignores_default_tree: bool = False
    """On a tree's root: its total is not subtracted from the default tree."""
    force_update: bool = False
    min: dict[str, int] = {}
    max: dict[str, int] = {}
    shared_weight: dict[str, int] = {}
    """The weight in fair sharing; max where the annotation gives none."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose pods without a quota label belong to this quota."""
    tree_total: dict[str, int] | None = None
    """On a tree's root: what the tree may distribute; None where the annotation is absent or malformed."""
    strict_keys: tuple[str, ...] = ()
    used: dict[str, int] = {}
    """`status.used` as the object holds it; read by the strict check of max only."""
    guaranteed: dict[str, int] = {}
    """From the object's annotation; read only by the check whether a min can be guaranteed."""
    admission: dict[str, int] = {}
    """Limit of its pods at admission instead of max (annotation admission); empty where that lists nothing."""
    charged: dict[str, int] | None = None
    """What its pods request, as admission wrote it last (annotation child-request); None where it wrote nothing."""
    faults: tuple[str, ...] = ()
    """Annotations that were ignored, and why, in a stated order."""


_OBJECT = msgspec.json.Decoder(ElasticQuota)
_AMOUNTS = msgspec.json.Decoder(dict[str, Scalar])
_STRINGS = msgspec.json.Decoder(list[str])



def decode_quota(document: bytes | msgspec.Raw) -> ElasticQuotaView:
    """The view of a stored document. Raises msgspec.DecodeError (with the field's path) or QuantityError."""
    return quota_view(_OBJECT.decode(document))


def quota_view(quota: ElasticQuota) -> ElasticQuotaView:
    """The view of a typed object. Raises QuantityError for a malformed quantity in min, max or used."""
    labels, annotations = quota.metadata.labels, quota.metadata.annotations
    faults: list[str] = []
    maximum = _renamed(parse_amounts(quota.spec.max))
    weight = _amounts(annotations.get(ANNOTATION_SHARED_WEIGHT, ""), ANNOTATION_SHARED_WEIGHT, faults)
    return ElasticQuotaView(
        name=quota.metadata.name,
        namespace=quota.metadata.namespace,
        uid=quota.metadata.uid,
        parent=labels.get(LABEL_PARENT) or ROOT,
        is_parent=labels.get(LABEL_IS_PARENT) == "true",
        lends=labels.get(LABEL_LENDS) != "false",
        tree=labels.get(LABEL_TREE, ""),
        is_tree_root=labels.get(LABEL_IS_ROOT) == "true",
        ignores_default_tree=labels.get(LABEL_IGNORE_DEFAULT_TREE) == "true",
        force_update=labels.get(LABEL_FORCE_UPDATE) == "true",
        min=_renamed(parse_amounts(quota.spec.min)),
        max=maximum,
        shared_weight=_renamed(weight) if weight and any(weight.values()) else maximum,
        namespaces=_strings(annotations.get(ANNOTATION_NAMESPACES, ""), ANNOTATION_NAMESPACES, faults),
        tree_total=_amounts(annotations.get(ANNOTATION_TOTAL, ""), ANNOTATION_TOTAL, faults),
        strict_keys=_strings(annotations.get(ANNOTATION_STRICT_KEYS, ""), ANNOTATION_STRICT_KEYS, faults),
        guaranteed=_amounts(annotations.get(ANNOTATION_GUARANTEED, ""), ANNOTATION_GUARANTEED, faults) or {},
        admission=_amounts(annotations.get(ANNOTATION_ADMISSION, ""), ANNOTATION_ADMISSION, faults) or {},
        charged=_amounts(annotations.get(ANNOTATION_CHILD_REQUEST, ""), ANNOTATION_CHILD_REQUEST, faults),
        used=parse_amounts((quota.status.used if quota.status is not None else None) or {}),
        faults=tuple(faults),
    )


def built_in_quota(name: str) -> ElasticQuotaView:
    """The default or system quota where no object declares it: no min, a max beyond any cluster."""
    everything = {resource: min(parse_amount(resource, BUILT_IN_MAX), LARGEST_AMOUNT) for resource in ("cpu", "memory")}
    return ElasticQuotaView(name=name, namespace=BUILT_IN_NAMESPACE, max=everything, shared_weight=everything, parent=ROOT)


def bound_namespaces(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The namespaces whose pods without a quota label belong to the quota with these annotations; none where malformed."""
    return _strings(annotations.get(ANNOTATION_NAMESPACES, ""), ANNOTATION_NAMESPACES, [])


def _renamed(amounts: dict[str, int]) -> dict[str, int]:
    for old, new in RENAMED_RESOURCES.items():
        if old in amounts:
            amounts.setdefault(new, amounts[old])
            del amounts[old]
    return amounts


def _amounts(text: str, annotation: str, faults: list[str]) -> dict[str, int] | None:
    if not text:
        return None
    try:
        return parse_amounts(_AMOUNTS.decode(text))
    except (msgspec.DecodeError, QuantityError) as error:
        faults.append(f"annotation {annotation} is ignored: {error}")
        return None


def _strings(text: str, annotation: str, faults: list[str]) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        return tuple(_STRINGS.decode(text))
    except msgspec.DecodeError as error:
        faults.append(f"annotation {annotation} is ignored: {error}")
        return ()


def completed_weight(quota: ElasticQuota) -> dict[str, Scalar] | None:
    """Return the shared weight that a new quota is stored with: it has the keys of max, and those that it lacks weigh as max.

    None where nothing is to be completed: the weight has the keys of max already, or cannot be read (validation says so).
    """
    text = quota.metadata.annotations.get(ANNOTATION_SHARED_WEIGHT, "")
    maximum = dict(sorted(quota.spec.max.items()))
    try:
        weight = _AMOUNTS.decode(text) if text else {}
    except msgspec.DecodeError:
        return None
    if text and weight.keys() == maximum.keys():
        return None
    return {resource: weight.get(resource, amount) for resource, amount in maximum.items()}
