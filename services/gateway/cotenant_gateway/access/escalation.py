"""A writer cannot grant rights that they do not have. Source: Kubernetes' policy-based storage of RBAC objects.

A role is stored if its writer has every right in it, or may `escalate` it; a binding if its writer has every right of the
role, or may `bind` it. Rights that a role already has may be stored again by anybody who may write it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from cotenant.api.objects.rbac import RBAC_GROUP, ClusterRole, PolicyRule, Role, RoleBinding
from cotenant.api.snapshots import Address, Snapshot
from cotenant.kinds.rbac.roles import CLUSTER_ROLES, ROLES
from cotenant_gateway.access.attributes import RequestAttributes
from cotenant_gateway.access.authorizer import EVERY_PATH, EVERYTHING, Grant, authorize, rules_of, user_rules
from cotenant_gateway.access.rules import uncovered
from cotenant_gateway.access.users import MASTERS, User
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import ApiError, StatusDetails

SHOWN_RULES = 16


class ObjectWrite(Protocol):
    """An object that is to be stored, and the one that it replaces."""

    @property
    def address(self) -> Address:
        """Where."""

    @property
    def document(self) -> msgspec.Raw:
        """What."""

    @property
    def was(self) -> Snapshot | None:
        """The present value."""


def refuse_escalation(core: GatewayCore, user: User, written: ObjectWrite) -> None:
    """Raise ApiError 403 if an RBAC object grants rights that its writer does not have."""
    if MASTERS in user.groups:
        return
    address, view = written.address, core.kinds.of(written.address.kind).decode(written.document)
    old = written.was.stored.view if written.was is not None and written.was.stored is not None else None
    if isinstance(view, RoleBinding):
        ref = view.role_ref
        grant = Grant("", address.namespace, ref.kind == "ClusterRole", ref.name)
        given: Sequence[PolicyRule] = rules_of(core, grant)
        plural = CLUSTER_ROLES.plural if grant.cluster_role else ROLES.plural
        allowed = RequestAttributes("bind", RBAC_GROUP, plural, "", address.namespace, ref.name)
    else:
        assert isinstance(view, Role | ClusterRole), "an object of this group is a role or a binding"
        if isinstance(old, Role | ClusterRole) and _granted(old) == _granted(view):
            return
        given = _granted(view)
        allowed = RequestAttributes("escalate", RBAC_GROUP, address.kind.plural, "", address.namespace, address.name)
    missing = uncovered(user_rules(core, user, address.namespace), given)
    if not missing or authorize(core, user, allowed).allowed:
        return
    shown = "\n".join(_text(rule) for rule in missing[:SHOWN_RULES])
    more = f"\nand {len(missing) - SHOWN_RULES} more" if len(missing) > SHOWN_RULES else ""
    kind = address.kind
    raise ApiError(
        403,
        "Forbidden",
        f'{kind.resource} "{address.name}" is forbidden: user "{user.name}" (groups={list(user.groups)}) is attempting to '
        f"grant RBAC permissions not currently held:\n{shown}{more}",
        StatusDetails(name=address.name, group=kind.group, kind=kind.plural),
    )


def _granted(role: Role | ClusterRole) -> tuple[PolicyRule, ...]:
    """Return the rules that a role can have: any for an aggregating one, as it selects later roles too."""
    if isinstance(role, ClusterRole) and role.aggregation_rule is not None:
        return EVERYTHING, EVERY_PATH
    return role.rules or ()


def _text(rule: PolicyRule) -> str:
    parts = [
        f"{name}:{list(values)}".replace("'", '"')
        for name, values in (
            ("APIGroups", rule.api_groups),
            ("Resources", rule.resources),
            ("ResourceNames", rule.resource_names),
            ("NonResourceURLs", rule.non_resource_urls),
            ("Verbs", rule.verbs),
        )
        if values
    ]
    return "{" + ", ".join(parts) + "}"
