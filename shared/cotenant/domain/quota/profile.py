"""The root quota that an ElasticQuotaProfile defines: its tree, the tree's total, and the quota's object.

In: the profile's object, and the sums over the nodes that it selects. Out: `ProfiledQuota`. The rule:

    tree      the label `tree-id`, else FNV-1a (64 bits, decimal) of `<namespace>/<name>` of the profile
    total     what the selected nodes offer, each amount times the ratio, cut to whole units; so is the part of it on nodes that
              are cordoned or not ready. A ratio that is no number, or not above 0 and up to 1, counts as 1; without one nothing
              is multiplied
    min, max  of the keys in `resource-keys` (cpu and memory): min is the total, max larger than any cluster
    labels    those of the profile's `quotaLabels`, beside the profile's name, the tree and the mark of a tree's root

`is-parent` is not among the labels: to allow quotas below the root, put it in `quotaLabels`. Source: Koordinator's profile
controller.
"""

from __future__ import annotations

import re

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.policies import ElasticQuotaProfile
from cotenant.domain.quota.names import ANNOTATION_RESOURCE_KEYS, LABEL_IS_ROOT, LABEL_PROFILE, LABEL_TREE
from cotenant.domain.selectors import SelectorError, check_selector
from cotenant.events.quotas import ProfiledQuota
from cotenant.model.amounts import Amounts, parse_amount

DEFAULT_KEYS = ("cpu", "memory")
UNLIMITED = (2**63 - 1) // 2000
"""Max of a profile's quota, in cores and in bytes."""
_FNV_OFFSET, _FNV_PRIME, _WORD = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_OBJECT = msgspec.json.Decoder(ElasticQuotaProfile)
_STRINGS = msgspec.json.Decoder(tuple[str, ...])


class ProfileView(msgspec.Struct, frozen=True, kw_only=True):
    """A profile as the rule reads it."""

    namespace: str
    name: str
    tree: str
    quota: str
    selector: LabelSelector
    ratio: float | None = None
    keys: tuple[str, ...] = DEFAULT_KEYS
    quota_labels: dict[str, str] = {}


class ProfileError(ValueError):
    """The profile defines no quota; the text says what is missing or wrong."""


def tree_id(namespace: str, name: str) -> str:
    """Return the tree of a profile that names none."""
    value = _FNV_OFFSET
    for byte in f"{namespace}/{name}".encode():
        value = ((value ^ byte) * _FNV_PRIME) & _WORD
    return str(value)


def decode_profile(document: bytes | msgspec.Raw) -> ProfileView:
    """Return the view of a stored profile. Raises msgspec.DecodeError or ProfileError."""
    return profile_view(_OBJECT.decode(document))


def profile_view(profile: ElasticQuotaProfile) -> ProfileView:
    """Return the view of a typed object. Raises ProfileError."""
    meta, spec = profile.metadata, profile.spec
    if not spec.quota_name:
        raise ProfileError("spec.quotaName is missing: it names the quota to create")
    if spec.node_selector is None:
        raise ProfileError("spec.nodeSelector is missing: it selects the nodes of the tree")
    try:
        check_selector(spec.node_selector)
    except SelectorError as error:
        raise ProfileError(f"spec.nodeSelector: {error}") from error
    return ProfileView(
        namespace=meta.namespace,
        name=meta.name,
        tree=meta.labels.get(LABEL_TREE) or tree_id(meta.namespace, meta.name),
        quota=spec.quota_name,
        selector=spec.node_selector,
        ratio=None if spec.resource_ratio is None else ratio_of(spec.resource_ratio),
        keys=_keys(meta.annotations.get(ANNOTATION_RESOURCE_KEYS, "")),
        quota_labels=spec.quota_labels,
    )


def _keys(text: str) -> tuple[str, ...]:
    try:
        return _STRINGS.decode(text) if text else DEFAULT_KEYS
    except msgspec.DecodeError:
        return DEFAULT_KEYS


def ratio_of(text: str) -> float:
    """Return the ratio that a profile names; 1 where the text is no number, or one that is not above 0 and up to 1."""
    ratio = float(text) if _NUMBER.fullmatch(text) else 1.0
    return ratio if 0 < ratio <= 1 else 1.0


def times_ratio(amounts: Amounts, ratio: float) -> dict[str, int]:
    """Return the amounts times a ratio, as doubles, cut to whole units."""
    return {resource: int(float(amount) * ratio) for resource, amount in amounts.items()}


def profiled_quota(profile: ProfileView, offered: Amounts, unschedulable: Amounts) -> ProfiledQuota:
    """Return what the profile's quota shall be. `offered`: by the nodes that it selects; `unschedulable`: by those of them that
    are cordoned or not ready."""
    if profile.ratio is not None:
        offered, unschedulable = times_ratio(offered, profile.ratio), times_ratio(unschedulable, profile.ratio)
    keys = sorted(set(profile.keys))
    return ProfiledQuota(
        tree=profile.tree,
        quota=profile.quota,
        namespace=profile.namespace,
        profile=profile.name,
        labels={
            LABEL_PROFILE: profile.name,
            **dict(sorted(profile.quota_labels.items())),
            LABEL_TREE: profile.tree,
            LABEL_IS_ROOT: "true",
        },
        min={key: offered.get(key, 0) for key in keys},
        max={key: parse_amount(key, UNLIMITED) for key in keys},
        total=dict(sorted(offered.items())),
        unschedulable=dict(sorted(unschedulable.items())),
    )

