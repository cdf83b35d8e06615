"""Role and ClusterRole: their rules and columns. Source: Kubernetes' validation of rbac."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.columns import NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import AnyObject
from cotenant.api.objects.rbac import RBAC_GROUP, ClusterRole, PolicyRule, Role
from cotenant.api.snapshots import Snapshot
from cotenant.api.validation.fields import FieldError, invalid, required
from cotenant.api.validation.metadata import selector_errors

ROLES = Kind(RBAC_GROUP, "v1", "roles", "Role", True)
CLUSTER_ROLES = Kind(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", False)
_SHOWN = msgspec.json.Decoder(AnyObject)


def _rule_errors(field: str, rule: PolicyRule, *, namespaced: bool) -> list[FieldError]:
    found: list[FieldError] = []
    if not rule.verbs:
        found.append(required(f"{field}.verbs", "verbs must contain at least one value"))
    if rule.non_resource_urls:
        if namespaced:
            shown = ", ".join(rule.non_resource_urls)
            found.append(invalid(f"{field}.nonResourceURLs", shown, "namespaced rules cannot apply to non-resource URLs"))
        if rule.api_groups or rule.resources or rule.resource_names:
            shown = ", ".join(rule.non_resource_urls)
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            found.append(invalid(f"{field}.nonResourceURLs", shown, detail))
        return found
    if not rule.api_groups:
        found.append(required(f"{field}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.resources:
        found.append(required(f"{field}.resources", "resource rules must supply at least one resource"))
    return found


def role_errors(role: Role) -> list[FieldError]:
    """Each rule has verbs, and groups and resources."""
    return [
        error for i, rule in enumerate(role.rules or ()) for error in _rule_errors(f"rules[{i}]", rule, namespaced=True)
    ]


def cluster_role_errors(role: ClusterRole) -> list[FieldError]:
    """Each rule has verbs, and either groups and resources or paths; an aggregation has selectors."""
    found = [
        error for i, rule in enumerate(role.rules or ()) for error in _rule_errors(f"rules[{i}]", rule, namespaced=False)
    ]
    if role.aggregation_rule is not None:
        selectors = role.aggregation_rule.cluster_role_selectors
        if not selectors:
            detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            found.append(required("aggregationRule.clusterRoleSelectors", detail))
        for i, selector in enumerate(selectors):
            found += selector_errors(f"aggregationRule.clusterRoleSelectors[{i}]", selector)
    return found


def _cells(snapshot: Snapshot, _: datetime) -> Sequence[Cell]:
    return snapshot.address.name, _SHOWN.decode(snapshot.document).metadata.creation_timestamp


_LAYOUT = Layout((NAME, Column("Created At", "date")), _cells)
ROLE = KindDefinition(
    ROLES,
    decode=msgspec.json.Decoder(Role).decode,
    decode_when_folded=True,
    errors=lambda role, _: role_errors(role),
    layout=_LAYOUT,
)
CLUSTER_ROLE = KindDefinition(
    CLUSTER_ROLES,
    decode=msgspec.json.Decoder(ClusterRole).decode,
    decode_when_folded=True,
    errors=lambda role, _: cluster_role_errors(role),
    layout=_LAYOUT,
)
