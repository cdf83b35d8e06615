"""Typed views of the RBAC kinds: roles, cluster roles, and their bindings."""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import LabelSelector, ObjectMeta, View

RBAC_GROUP = "rbac.authorization.k8s.io"
ALL = "*"
"""In a rule: every verb, group, resource or path."""


class PolicyRule(View, frozen=True, kw_only=True):
    """Permissions: verbs on resources of API groups (of these names only, if any), or on paths."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(name="nonResourceURLs", default=())


class AggregationRule(View, frozen=True, kw_only=True):
    """A cluster role with one has the rules of all cluster roles that a selector selects, instead of its own."""

    cluster_role_selectors: tuple[LabelSelector, ...] = ()


class Role(View, frozen=True, kw_only=True):
    """rbac.authorization.k8s.io/v1 Role."""

    metadata: ObjectMeta = ObjectMeta()
    rules: tuple[PolicyRule, ...] | None = None


class ClusterRole(View, frozen=True, kw_only=True):
    """rbac.authorization.k8s.io/v1 ClusterRole."""

    metadata: ObjectMeta = ObjectMeta()
    rules: tuple[PolicyRule, ...] | None = None
    aggregation_rule: AggregationRule | None = None


class Subject(View, frozen=True, kw_only=True):
    """The subject of a binding: a User, a Group, or a ServiceAccount of a namespace."""

    kind: str = ""
    api_group: str = ""
    name: str = ""
    namespace: str = ""


class RoleRef(View, frozen=True, kw_only=True):
    """The role that a binding grants."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class RoleBinding(View, frozen=True, kw_only=True):
    """rbac.authorization.k8s.io/v1 RoleBinding, and ClusterRoleBinding, which has the same members."""

    metadata: ObjectMeta = ObjectMeta()
    subjects: tuple[Subject, ...] | None = None
    role_ref: RoleRef = RoleRef()
