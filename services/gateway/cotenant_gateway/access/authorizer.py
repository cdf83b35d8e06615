"""RBAC: authorization by the roles and bindings of the read model.

In: the user and the request's attributes. Out: a `AuthorizationDecision`, with the binding that allows it or the reason why
none does. Rules only allow; a request that none of them allows is refused. A role binding gives a role's rules in its own
namespace, a cluster role binding everywhere.

Bindings are indexed by subject, and roles by name; both indexes are computed again when an object of their kind has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from cotenant.api.objects.rbac import ClusterRole, PolicyRule, Role, RoleBinding
from cotenant.domain.selectors import selects_if_valid
from cotenant.kinds.rbac.bindings import CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS, SERVICE_ACCOUNT, USER
from cotenant.kinds.rbac.roles import CLUSTER_ROLES, ROLES
from cotenant_gateway.access.attributes import RequestAttributes
from cotenant_gateway.access.rules import allows
from cotenant_gateway.access.users import MASTERS, User, account_name
from cotenant_gateway.read_model.core import GatewayCore

_USERS, _GROUPS = 0, 1
Subjects = Mapping[tuple[int, str], Sequence["Grant"]]


class Grant(msgspec.Struct, frozen=True):
    """The grant of a binding to one of its subjects."""

    binding: str
    """Kind and name, for explanations."""
    namespace: str
    """Empty: everywhere."""
    cluster_role: bool
    role: str


class AuthorizationDecision(msgspec.Struct, frozen=True):
    """Whether a request is allowed, and why."""

    allowed: bool
    reason: str = ""


def authorize(core: GatewayCore, user: User, asked: RequestAttributes) -> AuthorizationDecision:
    """Decide on a request."""
    if MASTERS in user.groups:
        return AuthorizationDecision(True, f"{MASTERS} may do everything")
    for grant in grants_of(core, user, asked.namespace):
        for rule in rules_of(core, grant):
            if allows(rule, asked):
                return AuthorizationDecision(True, f"{grant.binding} of {_role_text(grant)} to user {user.name!r}")
    return AuthorizationDecision(False)


def grants_of(core: GatewayCore, user: User, namespace: str) -> Iterator[Grant]:
    """Yield the grants of a user in a namespace; if that is empty, in the whole cluster."""
    everywhere = core.derived(CLUSTER_ROLE_BINDINGS, _of_cluster)
    within = core.derived(ROLE_BINDINGS, _of_namespaces) if namespace else {}
    for key in ((_USERS, user.name), *((_GROUPS, group) for group in user.groups)):
        yield from everywhere.get(key, ())
        for grant in within.get(key, ()):
            if grant.namespace == namespace:
                yield grant


def rules_of(core: GatewayCore, grant: Grant) -> Sequence[PolicyRule]:
    """Return the rules of the granted role; none if there is no such role."""
    if grant.cluster_role:
        return core.derived(CLUSTER_ROLES, cluster_roles).get(grant.role, ())
    return core.derived(ROLES, _roles).get((grant.namespace, grant.role), ())


def user_rules(core: GatewayCore, user: User, namespace: str) -> list[PolicyRule]:
    """Return all rules that a user has in a namespace."""
    if MASTERS in user.groups:
        return [EVERYTHING, EVERY_PATH]
    return [rule for grant in grants_of(core, user, namespace) for rule in rules_of(core, grant)]


EVERYTHING = PolicyRule(verbs=("*",), api_groups=("*",), resources=("*",))
EVERY_PATH = PolicyRule(verbs=("*",), non_resource_urls=("*",))


def _role_text(grant: Grant) -> str:
    return f'{"ClusterRole" if grant.cluster_role else "Role"} "{grant.role}"'


def _of_cluster(core: GatewayCore) -> Subjects:
    return _by_subject(core, namespaced=False)


def _of_namespaces(core: GatewayCore) -> Subjects:
    return _by_subject(core, namespaced=True)


def _by_subject(core: GatewayCore, *, namespaced: bool) -> Subjects:
    found: dict[tuple[int, str], list[Grant]] = {}
    for snapshot in core.objects(ROLE_BINDINGS if namespaced else CLUSTER_ROLE_BINDINGS):
        binding = snapshot.stored.view if snapshot.stored is not None else None
        if not isinstance(binding, RoleBinding):
            continue
        namespace, name = snapshot.address.namespace, snapshot.address.name
        text = f'RoleBinding "{namespace}/{name}"' if namespaced else f'ClusterRoleBinding "{name}"'
        grant = Grant(text, namespace, binding.role_ref.kind == "ClusterRole", binding.role_ref.name)
        for subject in binding.subjects or ():
            if subject.kind == SERVICE_ACCOUNT:
                key = _USERS, account_name(subject.namespace or namespace, subject.name)
            else:
                key = (_USERS if subject.kind == USER else _GROUPS), subject.name
            found.setdefault(key, []).append(grant)
    return found


def _roles(core: GatewayCore) -> Mapping[tuple[str, str], Sequence[PolicyRule]]:
    return {
        (snapshot.address.namespace, snapshot.address.name): snapshot.stored.view.rules or ()
        for snapshot in core.objects(ROLES)
        if snapshot.stored is not None and isinstance(snapshot.stored.view, Role)
    }


def cluster_roles(core: GatewayCore) -> Mapping[str, Sequence[PolicyRule]]:
    """Return the rules of each cluster role; an aggregating one has the rules of the roles that it selects."""
    views = {
        snapshot.address.name: snapshot.stored.view
        for snapshot in core.objects(CLUSTER_ROLES)
        if snapshot.stored is not None and isinstance(snapshot.stored.view, ClusterRole)
    }
    return {
        name: view.rules or () if view.aggregation_rule is None else _aggregated(name, views) for name, view in views.items()
    }


def _aggregated(name: str, views: Mapping[str, ClusterRole]) -> Sequence[PolicyRule]:
    """Return the rules of a cluster role that aggregates others: those which do not aggregate themselves."""
    aggregation = views[name].aggregation_rule
    assert aggregation is not None
    return tuple(
        rule
        for other, view in views.items()
        if other != name
        and view.aggregation_rule is None
        and any(selects_if_valid(selector, view.metadata.labels) for selector in aggregation.cluster_role_selectors)
        for rule in view.rules or ()
    )
