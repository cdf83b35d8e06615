"""RoleBinding and ClusterRoleBinding: defaults, rules and columns. Source: Kubernetes' validation of rbac."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.rbac import RBAC_GROUP, RoleBinding, Subject
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import raw
from cotenant.api.validation.fields import FieldError, invalid, not_supported, required

ROLE_BINDINGS = Kind(RBAC_GROUP, "v1", "rolebindings", "RoleBinding", True)
CLUSTER_ROLE_BINDINGS = Kind(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", False)
USER, GROUP, SERVICE_ACCOUNT = "User", "Group", "ServiceAccount"
_decode = msgspec.json.Decoder(RoleBinding).decode


def with_groups(document: msgspec.Raw) -> msgspec.Raw:
    """Return a binding's document with the API groups that it leaves out: that of roles, of users and of groups."""
    top = json.loads(bytes(document))
    changed = False
    ref, subjects = top.get("roleRef"), top.get("subjects")
    if isinstance(ref, dict) and not ref.get("apiGroup"):
        ref["apiGroup"], changed = RBAC_GROUP, True
    for subject in subjects if isinstance(subjects, list) else ():
        if isinstance(subject, dict) and not subject.get("apiGroup") and subject.get("kind") in (USER, GROUP):
            subject["apiGroup"], changed = RBAC_GROUP, True
    return raw(top) if changed else document


def _subject_errors(field: str, subject: Subject) -> list[FieldError]:
    found: list[FieldError] = []
    if not subject.name:
        found.append(required(f"{field}.name"))
    if subject.kind == SERVICE_ACCOUNT:
        if subject.api_group:
            found.append(not_supported(f"{field}.apiGroup", subject.api_group, [""]))
        if not subject.namespace:
            found.append(required(f"{field}.namespace"))
    elif subject.kind in (USER, GROUP):
        if subject.api_group != RBAC_GROUP:
            found.append(not_supported(f"{field}.apiGroup", subject.api_group, [RBAC_GROUP]))
    else:
        found.append(not_supported(f"{field}.kind", subject.kind, [SERVICE_ACCOUNT, USER, GROUP]))
    return found


def binding_errors(binding: RoleBinding, old: RoleBinding | None, kinds: tuple[str, ...]) -> list[FieldError]:
    """The role is one of `kinds` and does not change; subjects are users, groups and service accounts."""
    found: list[FieldError] = []
    ref = binding.role_ref
    if ref.api_group != RBAC_GROUP:
        found.append(not_supported("roleRef.apiGroup", ref.api_group, [RBAC_GROUP]))
    if ref.kind not in kinds:
        found.append(not_supported("roleRef.kind", ref.kind, kinds))
    if not ref.name:
        found.append(required("roleRef.name"))
    if old is not None and old.role_ref != ref:
        found.append(invalid("roleRef", f"{ref.kind}/{ref.name}", "cannot change roleRef"))
    for i, subject in enumerate(binding.subjects or ()):
        found += _subject_errors(f"subjects[{i}]", subject)
    return found


def _errors(*kinds: str) -> Callable[[RoleBinding, Callable[[], RoleBinding | None]], list[FieldError]]:
    return lambda binding, old: binding_errors(binding, old(), kinds)


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _decode(snapshot.document)
    by_kind = {
        kind: ", ".join(
            f"{subject.namespace}/{subject.name}" if kind == SERVICE_ACCOUNT else subject.name
            for subject in shown.subjects or ()
            if subject.kind == kind
        )
        for kind in (USER, GROUP, SERVICE_ACCOUNT)
    }
    ref = shown.role_ref
    made = age(shown.metadata.creation_timestamp, now)
    return snapshot.address.name, f"{ref.kind}/{ref.name}", made, by_kind[USER], by_kind[GROUP], by_kind[SERVICE_ACCOUNT]


_LAYOUT = Layout(
    (NAME, Column("Role"), AGE, *(Column(name, priority=1) for name in ("Users", "Groups", "ServiceAccounts"))), _cells
)
ROLE_BINDING = KindDefinition(
    ROLE_BINDINGS,
    decode=_decode,
    decode_when_folded=True,
    default=with_groups,
    errors=_errors("Role", "ClusterRole"),
    layout=_LAYOUT,
)
CLUSTER_ROLE_BINDING = KindDefinition(
    CLUSTER_ROLE_BINDINGS,
    decode=_decode,
    decode_when_folded=True,
    default=with_groups,
    errors=_errors("ClusterRole"),
    layout=_LAYOUT,
)
