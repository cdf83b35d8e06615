"""The roles that every installation has, and who has them from the start.

Names of Kubernetes where there is one: `cluster-admin`, given to the group `system:masters`; `system:basic-user` and
`system:discovery`, given to everybody who is authenticated. `cotenant-admin` and `cotenant-view` are for people,
`cotenant-node` is for what runs on a node, `system:cotenant:evictor` for the service that evicts. The gateway stores those that
never existed; one that was deleted stays deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from cotenant.api.kinds import Kind
from cotenant.api.objects.rbac import RBAC_GROUP
from cotenant.api.splices import raw
from cotenant.events.migrations import USER_PREFIX
from cotenant.kinds.rbac.bindings import CLUSTER_ROLE_BINDINGS
from cotenant.kinds.rbac.roles import CLUSTER_ROLES
from cotenant.kinds.reviews import AUTHENTICATION_GROUP, AUTHORIZATION_GROUP
from cotenant_gateway.access.attributes import FACTS_GROUP
from cotenant_gateway.access.users import AUTHENTICATED, MASTERS

_READ = ("get", "list", "watch")
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/healthz", "/readyz")
"""Documents about the API."""
_GROUPS = (
    "",
    "config.koordinator.sh",
    "node.k8s.io",
    "policy",
    "quota.koordinator.sh",
    "scheduling.k8s.io",
    "scheduling.koordinator.sh",
    "scheduling.sigs.k8s.io",
    "slo.koordinator.sh",
    "topology.node.k8s.io",
    FACTS_GROUP,
)
"""Of everything but roles."""

Rule = dict[str, Sequence[str]]


def _resources(verbs: Sequence[str], groups: Sequence[str], resources: Sequence[str]) -> Rule:
    return {"verbs": verbs, "apiGroups": groups, "resources": resources}


def _paths(*paths: str) -> Rule:
    return {"verbs": ("get",), "nonResourceURLs": paths}


_ANY = ("*",)
EVICTOR = "system:cotenant:evictor"
_SELF_REVIEWS = (
    _resources(("create",), (AUTHENTICATION_GROUP,), ("selfsubjectreviews",)),
    _resources(("create",), (AUTHORIZATION_GROUP,), ("selfsubjectaccessreviews", "selfsubjectrulesreviews")),
)
ROLES: dict[str, tuple[Rule, ...]] = {
    "cluster-admin": (_resources(_ANY, _ANY, _ANY), {"verbs": _ANY, "nonResourceURLs": _ANY}),
    "system:basic-user": _SELF_REVIEWS,
    "system:discovery": (_paths(*_DISCOVERY),),
    "cotenant-admin": (
        _resources(_ANY, _GROUPS, _ANY),
        _resources(_READ, (RBAC_GROUP,), _ANY),
        _resources(("create",), (AUTHORIZATION_GROUP,), ("localsubjectaccessreviews", "subjectaccessreviews")),
        _paths("/metrics"),
    ),
    "cotenant-view": (_resources(_READ, _GROUPS, _ANY), _paths("/metrics")),
    # Deletes where budgets do not count: the taints of a lost node.
    EVICTOR: (_resources(("create",), ("",), ("pods/eviction",)), _resources(("delete",), ("",), ("pods",))),
    "cotenant-node": (
        _resources(_READ, ("",), ("nodes", "pods", "configmaps")),
        _resources(_READ, ("slo.koordinator.sh",), ("nodeslos", "nodemetrics")),
    ),
}
_GIVEN = {
    "cluster-admin": ("Group", MASTERS),
    "system:basic-user": ("Group", AUTHENTICATED),
    "system:discovery": ("Group", AUTHENTICATED),
    EVICTOR: ("User", f"{USER_PREFIX}descheduler-arbiter"),
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
