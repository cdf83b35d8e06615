"""The roles that every installation has, and their initial bindings.

Names of Kubernetes where there is one: `cluster-admin`, given to the group `system:masters`; `system:basic-user` and
`system:discovery`, given to all authenticated users; `system:service-account-issuer-discovery`, given to service
accounts; `system:auth-delegator`, for programs that review tokens. `cotenant-admin` and `cotenant-view` are for
people, `cotenant-node` is for services on a node, `system:cotenant:evictor` for the service that evicts,
`system:cotenant:quota-revoker` for the one that takes back what quotas use beyond their runtime. The gateway stores those that
never existed; one that was deleted stays deleted.

`cotenant-admin` grants no rights, so it may neither impersonate nor create tokens of service accounts: in the core group it
names its verbs and resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from cotenant.api.kinds import Kind
from cotenant.api.objects.rbac import RBAC_GROUP
from cotenant.api.splices import raw
from cotenant.events.migrations import USER_PREFIX
from cotenant.kinds.koordinator.reservations import RESERVATIONS
from cotenant.kinds.rbac.bindings import CLUSTER_ROLE_BINDINGS
from cotenant.kinds.rbac.roles import CLUSTER_ROLES
from cotenant.kinds.reviews import AUTHENTICATION_GROUP, AUTHORIZATION_GROUP
from cotenant_gateway.access.attributes import FACTS_GROUP
from cotenant_gateway.access.tokens.account_keys import CONFIGURATION_PATH, JWKS_PATH
from cotenant_gateway.access.users import AUTHENTICATED, MASTERS, SERVICE_ACCOUNTS

_READ = ("get", "list", "watch")
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/healthz", "/readyz")
"""Documents about the API."""
_OTHER_GROUPS = (
    "config.koordinator.sh",
    "node.k8s.io",
    "policy",
    "quota.koordinator.sh",
    "scheduling.k8s.io",
    "scheduling.koordinator.sh",
    "scheduling.sigs.k8s.io",
    "slo.koordinator.sh",
    "storage.k8s.io",
    "topology.node.k8s.io",
    FACTS_GROUP,
)
"""Of everything but the core and roles."""
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_CORE = (
    "configmaps",
    "events",
    "namespaces",
    "namespaces/status",
    "nodes",
    "nodes/status",
    "persistentvolumeclaims",
    "persistentvolumeclaims/status",
    "persistentvolumes",
    "persistentvolumes/status",
    "pods",
    "pods/eviction",
    "pods/log",
    "pods/status",
    "serviceaccounts",
)

Rule = dict[str, Sequence[str]]


def _resources(verbs: Sequence[str], groups: Sequence[str], resources: Sequence[str]) -> Rule:
    return {"verbs": verbs, "apiGroups": groups, "resources": resources}


def _paths(*paths: str) -> Rule:
    return {"verbs": ("get",), "nonResourceURLs": paths}


_ANY = ("*",)
EVICTOR = "system:cotenant:evictor"
REVOKER = "system:cotenant:quota-revoker"
_SELF_REVIEWS = (
    _resources(("create",), (AUTHENTICATION_GROUP,), ("selfsubjectreviews",)),
    _resources(("create",), (AUTHORIZATION_GROUP,), ("selfsubjectaccessreviews", "selfsubjectrulesreviews")),
)
ROLES: dict[str, tuple[Rule, ...]] = {
    "cluster-admin": (_resources(_ANY, _ANY, _ANY), {"verbs": _ANY, "nonResourceURLs": _ANY}),
    "system:basic-user": _SELF_REVIEWS,
    "system:discovery": (_paths(*_DISCOVERY),),
    "system:service-account-issuer-discovery": (_paths(CONFIGURATION_PATH, JWKS_PATH),),
    "system:auth-delegator": (
        _resources(("create",), (AUTHENTICATION_GROUP,), ("tokenreviews",)),
        _resources(("create",), (AUTHORIZATION_GROUP,), ("subjectaccessreviews",)),
    ),
    "cotenant-admin": (
        _resources((*_READ, *_WRITE), ("",), _CORE),
        _resources(_ANY, _OTHER_GROUPS, _ANY),
        _resources(_READ, (RBAC_GROUP,), _ANY),
        _resources(("create",), (AUTHORIZATION_GROUP,), ("localsubjectaccessreviews", "subjectaccessreviews")),
        _paths("/metrics", "/debug/*"),
    ),
    "cotenant-view": (_resources(_READ, ("", *_OTHER_GROUPS), _ANY), _paths("/metrics", "/debug/*")),
    # Deletes where budgets do not count: the taints of a lost node, the policy Delete. Patches for the policy SoftEviction.
    # Reservations: the next places of pods that migrate.
    EVICTOR: (
        _resources(("create",), ("",), ("pods/eviction",)),
        _resources(("delete", "patch"), ("",), ("pods",)),
        _resources(("create", "delete"), (RESERVATIONS.group,), (RESERVATIONS.plural,)),
    ),
    REVOKER: (_resources(("create",), ("",), ("pods/eviction",)),),
    "cotenant-node": (
        _resources(_READ, ("",), ("nodes", "pods", "configmaps")),
        _resources(_READ, ("slo.koordinator.sh",), ("nodeslos", "nodemetrics")),
    ),
}
_GIVEN = {
    "cluster-admin": ("Group", MASTERS),
    "system:basic-user": ("Group", AUTHENTICATED),
    "system:discovery": ("Group", AUTHENTICATED),
    "system:service-account-issuer-discovery": ("Group", SERVICE_ACCOUNTS),
    EVICTOR: ("User", f"{USER_PREFIX}descheduler-arbiter"),
    REVOKER: ("User", f"{USER_PREFIX}quota-tree"),
}


def _role(name: str, rules: Sequence[Rule]) -> dict[str, object]:
    return {"apiVersion": f"{RBAC_GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}


def _binding(role: str, kind: str, name: str) -> dict[str, object]:
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "subjects": [{"kind": kind, "apiGroup": RBAC_GROUP, "name": name}],
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
    }


def documents() -> Iterator[tuple[Kind, str, msgspec.Raw]]:
    """Yield kind, name and document of each role and binding."""
    for name, rules in ROLES.items():
        yield CLUSTER_ROLES, name, raw(_role(name, rules))
    for role, (kind, name) in _GIVEN.items():
        yield CLUSTER_ROLE_BINDINGS, role, raw(_binding(role, kind, name))
