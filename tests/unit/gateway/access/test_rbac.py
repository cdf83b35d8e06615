"""RBAC: which requests roles and bindings allow, nobody gives what they do not have, and questions about access."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cotenant.api.kinds import Kind
from cotenant.api.objects.rbac import RBAC_GROUP
from cotenant.kinds.pods import PODS
from cotenant.kinds.rbac.bindings import CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS
from cotenant.kinds.rbac.roles import CLUSTER_ROLES, ROLES
from cotenant.kinds.reviews import (
    LOCAL_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_REVIEWS,
    SELF_SUBJECT_RULES_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
)
from cotenant_gateway.access.attributes import FACTS_GROUP, RequestAttributes, of_fact, of_path, of_resource
from cotenant_gateway.access.authorizer import authorize
from cotenant_gateway.access.escalation import refuse_escalation
from cotenant_gateway.access.reviews import answer
from cotenant_gateway.access.users import MASTERS, User, account_groups, account_name, authenticated
from cotenant_gateway.planning.creations import plan_creation
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import NOW, World, as_json

ANNA = authenticated("anna", ("team",))
BOSS = authenticated("boss", (MASTERS,))
READ = ["get", "list", "watch"]


Rule = dict[str, Any]


def rule(verbs: list[str], resources: list[str], groups: list[str] | None = None, names: list[str] | None = None) -> Rule:
    made: dict[str, Any] = {"verbs": verbs, "apiGroups": [""] if groups is None else groups, "resources": resources}
    return made | ({"resourceNames": names} if names else {})


def role(kind: Kind, name: str, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, **more}, "rules": list(rules)}


def binding(kind: Kind, name: str, ref: tuple[str, str], *subjects: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "subjects": list(subjects),
        "roleRef": {"kind": ref[0], "name": ref[1]},
    }


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name}


@pytest.fixture
def world() -> World:
    """Anna reads pods of `default`, and deletes the pod `own` there."""
    found = World()
    found.create(ROLES, role(ROLES, "reader", rule(READ, ["pods", "pods/log"]), rule(["delete"], ["pods"], names=["own"])))
    found.create(ROLE_BINDINGS, binding(ROLE_BINDINGS, "anna-reads", ("Role", "reader"), user("anna")))
    return found


def may(world: World, who: User, verb: str, resource: str, namespace: str = "default", name: str = "", group: str = "") -> bool:
    plural, _, subresource = resource.partition("/")
    return authorize(world.core, who, RequestAttributes(verb, group, plural, subresource, namespace, name)).allowed


@pytest.mark.parametrize(
    ("verb", "resource", "namespace", "name", "allowed"),
    [
        ("get", "pods", "default", "web", True),
        ("list", "pods", "default", "", True),
        ("get", "pods/log", "default", "web", True),
        ("get", "pods/status", "default", "web", False),
        ("delete", "pods", "default", "own", True),
        ("delete", "pods", "default", "web", False),
        ("deletecollection", "pods", "default", "", False),
        ("list", "pods", "", "", False),
        ("get", "pods", "other", "web", False),
        ("create", "pods", "default", "", False),
        ("get", "configmaps", "default", "web", False),
    ],
)
def test_a_role_binding_gives_a_roles_rules_in_its_namespace(
    world: World, verb: str, resource: str, namespace: str, name: str, allowed: bool
) -> None:
    assert may(world, ANNA, verb, resource, namespace, name) is allowed
    assert not may(world, authenticated("berta"), verb, resource, namespace, name)
    assert may(world, BOSS, verb, resource, namespace, name)


def test_groups_and_service_accounts_are_subjects_too(world: World) -> None:
    world.create(CLUSTER_ROLES, role(CLUSTER_ROLES, "maps", rule(["*"], ["configmaps"])))
    group, account = {"kind": "Group", "name": "team"}, {"kind": "ServiceAccount", "name": "bot", "namespace": "ci"}
    world.create(CLUSTER_ROLE_BINDINGS, binding(CLUSTER_ROLE_BINDINGS, "maps", ("ClusterRole", "maps"), group, account))
    bot = authenticated(account_name("ci", "bot"), account_groups("ci"))
    for who in (ANNA, bot):
        assert may(world, who, "delete", "configmaps", "anywhere", "x")
        assert may(world, who, "list", "configmaps", "")
    assert not may(world, authenticated("bot"), "delete", "configmaps", "anywhere", "x")


def test_a_cluster_role_given_by_a_role_binding_counts_in_its_namespace_only(world: World) -> None:
    world.create(ROLE_BINDINGS, binding(ROLE_BINDINGS, "admins", ("ClusterRole", "cotenant-admin"), user("carl")))
    carl = authenticated("carl")
    assert may(world, carl, "create", "pods")
    assert not may(world, carl, "create", "pods", "other")
    assert not may(world, carl, "list", "pods", "")
    assert not may(world, carl, "get", "nodes", "", "n1")


def test_what_is_taken_away_is_gone_at_once(world: World) -> None:
    assert may(world, ANNA, "get", "pods")
    found = next(event for event in reversed(world.events) if event.subject.endswith("anna-reads"))
    world.put(found.subject, found.data, tombstone=True)
    assert not may(world, ANNA, "get", "pods")


def test_an_aggregating_role_has_the_rules_of_those_that_it_selects(world: World) -> None:
    whole = {
        **role(CLUSTER_ROLES, "whole"),
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "whole"}}]},
    }
    world.create(CLUSTER_ROLES, whole)
    world.create(CLUSTER_ROLE_BINDINGS, binding(CLUSTER_ROLE_BINDINGS, "whole", ("ClusterRole", "whole"), user("dora")))
    dora = authenticated("dora")
    assert not may(world, dora, "get", "pods")
    world.create(CLUSTER_ROLES, role(CLUSTER_ROLES, "part", rule(["get"], ["pods"]), labels={"to": "whole"}))
    assert may(world, dora, "get", "pods")


def test_paths_are_matched_whole_or_up_to_a_star(world: World) -> None:
    def path(who: User, name: str) -> bool:
        return authorize(world.core, who, of_path("GET", name)).allowed

    for name in ("/api", "/apis/policy/v1", "/openapi/v3", "/version"):
        assert path(ANNA, name), "system:discovery is everybody's"
    assert not path(ANNA, "/metrics")
    assert not path(User("nobody"), "/api"), "who is not authenticated is in no group"
    assert path(BOSS, "/metrics")


def test_default_roles_keep_their_promises(world: World) -> None:
    for name in ("cotenant-view", "cotenant-admin"):
        who = {"kind": "User", "name": name}
        world.create(CLUSTER_ROLE_BINDINGS, binding(CLUSTER_ROLE_BINDINGS, name, ("ClusterRole", name), who))
    view, admin = authenticated("cotenant-view"), authenticated("cotenant-admin")
    assert may(world, view, "list", "pods", "")
    assert may(world, view, "get", "explain", "", group=FACTS_GROUP)
    assert not may(world, view, "delete", "pods")
    assert not may(world, view, "create", "nodes/adopt", "", "n1", FACTS_GROUP)
    assert may(world, admin, "delete", "pods")
    assert may(world, admin, "create", "nodes/adopt", "", "n1", FACTS_GROUP)
    assert not may(world, admin, "create", "clusterrolebindings", "", group=RBAC_GROUP)
    assert not may(world, ANNA, "get", "events", "", group=FACTS_GROUP)


@pytest.mark.parametrize(
    ("verb", "resource", "name"),
    [
        ("impersonate", "groups", MASTERS),
        ("impersonate", "users", "boss"),
        ("impersonate", "serviceaccounts", "default"),
        ("create", "serviceaccounts/token", "default"),
    ],
)
def test_an_administrator_cannot_become_somebody_else(world: World, verb: str, resource: str, name: str) -> None:
    who = {"kind": "User", "name": "admin"}
    world.create(CLUSTER_ROLE_BINDINGS, binding(CLUSTER_ROLE_BINDINGS, "admin", ("ClusterRole", "cotenant-admin"), who))
    admin = authenticated("admin")
    assert may(world, admin, "create", "serviceaccounts")
    assert may(world, admin, "get", "pods/log")
    assert not may(world, admin, verb, resource, "default", name)


@pytest.mark.parametrize(
    ("method", "name", "subresource", "query", "verb", "about"),
    [
        ("GET", "web", "", {}, "get", "web"),
        ("HEAD", "", "", {}, "list", ""),
        ("GET", "", "", {"watch": "1"}, "watch", ""),
        ("GET", "", "", {"watch": "true", "fieldSelector": "metadata.name=web"}, "watch", "web"),
        ("GET", "", "", {"fieldSelector": "spec.nodeName=n1,metadata.name==web"}, "list", "web"),
        ("GET", "", "", {"fieldSelector": "metadata.name!=web"}, "list", ""),
        ("POST", "", "", {}, "create", ""),
        ("PUT", "web", "status", {}, "update", "web"),
        ("PATCH", "web", "", {}, "patch", "web"),
        ("DELETE", "web", "", {}, "delete", "web"),
        ("DELETE", "", "", {}, "deletecollection", ""),
        ("BREW", "web", "", {}, "brew", "web"),
    ],
)
def test_verbs_are_kubernetes(method: str, name: str, subresource: str, query: dict[str, str], verb: str, about: str) -> None:
    asked = of_resource(method, PODS, "default", name, subresource, query)
    assert asked == RequestAttributes(verb, "", "pods", subresource, "default", about)


def test_facts_are_resources_of_a_group_of_their_own() -> None:
    assert of_fact("GET", "/events", {"namespace": "a"}) == RequestAttributes("get", FACTS_GROUP, "events", "", "a")
    assert of_fact("GET", "/explain/pod/a/b", {}) == RequestAttributes("get", FACTS_GROUP, "explain", "", "a", "b")
    assert of_fact("GET", "/explain/node/n1", {}) == RequestAttributes("get", FACTS_GROUP, "explain", "", "", "n1")
    assert of_fact("POST", "/nodes/n1/adopt", {}) == RequestAttributes("create", FACTS_GROUP, "nodes", "adopt", "", "n1")


# -- nobody gives what they do not have -----------------------------------------------------------------------------


def refused(world: World, who: User, kind: Kind, document: dict[str, Any]) -> str:
    """Plan an object as this user; returns the refusal, empty where it would be stored."""
    namespace = "default" if kind.namespaced else ""
    planned = plan_creation(world.core, kind, namespace, as_json(document), NOW, "uid", lambda: "abcde")
    try:
        refuse_escalation(world.core, who, planned)
    except ApiError as error:
        return f"{error.code}: {error}"
    return ""


def test_a_role_may_hold_what_its_writer_may_do(world: World) -> None:
    assert refused(world, ANNA, ROLES, role(ROLES, "less", rule(["get"], ["pods"]))) == ""


@pytest.mark.parametrize(
    "more",
    [
        rule(["create"], ["pods"]),
        rule(["get"], ["*"]),
        rule(["*"], ["pods"]),
        rule(["get"], ["pods"], ["apps"]),
        rule(["delete"], ["pods"]),
    ],
)
def test_a_role_may_not_hold_more(world: World, more: dict[str, Any]) -> None:
    said = refused(world, ANNA, ROLES, role(ROLES, "more", rule(["get"], ["pods"]), more))
    assert said.startswith("403: ")
    assert 'user "anna" (groups=["team", "system:authenticated"]) is attempting to grant' in said.replace("'", '"')
    assert str(more["verbs"][0]) in said


def test_a_binding_gives_only_what_its_writer_has(world: World) -> None:
    least = binding(ROLE_BINDINGS, "b", ("Role", "reader"), user("berta"))
    assert refused(world, ANNA, ROLE_BINDINGS, least) == ""


def test_a_binding_to_an_administrators_role_is_refused(world: World) -> None:
    most = binding(ROLE_BINDINGS, "b", ("ClusterRole", "cluster-admin"), user("anna"))
    assert "is attempting to grant" in refused(world, ANNA, ROLE_BINDINGS, most)


def test_who_may_bind_or_escalate_gives_more(world: World) -> None:
    extra = rule(["bind"], ["clusterroles"], [RBAC_GROUP], ["cotenant-view"])
    world.create(CLUSTER_ROLES, role(CLUSTER_ROLES, "binder", extra))
    world.create(CLUSTER_ROLE_BINDINGS, binding(CLUSTER_ROLE_BINDINGS, "binder", ("ClusterRole", "binder"), user("anna")))
    assert refused(world, ANNA, ROLE_BINDINGS, binding(ROLE_BINDINGS, "v", ("ClusterRole", "cotenant-view"), user("x"))) == ""


def test_an_aggregating_role_is_for_administrators(world: World) -> None:
    whole = {**role(CLUSTER_ROLES, "w"), "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    assert "is attempting to grant" in refused(world, ANNA, CLUSTER_ROLES, whole)


# -- questions ------------------------------------------------------------------------------------------------------


def ask(world: World, who: User, kind: Kind, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    body = as_json({"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec})
    found: dict[str, Any] = json.loads(answer(world.core, who, kind, namespace, body, NOW))
    assert found["kind"] == kind.kind
    status: dict[str, Any] = found["status"]
    return status


def test_can_i(world: World) -> None:
    allowed = {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}
    assert ask(world, ANNA, SELF_SUBJECT_ACCESS_REVIEWS, allowed) == {
        "allowed": True,
        "reason": 'RoleBinding "default/anna-reads" of Role "reader" to user \'anna\'',
    }
    denied = {"resourceAttributes": {"namespace": "default", "verb": "create", "resource": "pods"}}
    assert ask(world, ANNA, SELF_SUBJECT_ACCESS_REVIEWS, denied) == {"allowed": False}
    path = {"nonResourceAttributes": {"path": "/version", "verb": "get"}}
    assert ask(world, ANNA, SELF_SUBJECT_ACCESS_REVIEWS, path)["allowed"]


def test_who_am_i(world: World) -> None:
    assert ask(world, ANNA, SELF_SUBJECT_REVIEWS, {}) == {
        "userInfo": {"username": "anna", "groups": ["team", "system:authenticated"]}
    }


def test_my_rules(world: World) -> None:
    status = ask(world, ANNA, SELF_SUBJECT_RULES_REVIEWS, {"namespace": "default"})
    assert rule(READ, ["pods", "pods/log"]) in status["resourceRules"]
    assert any("/version" in paths["nonResourceURLs"] for paths in status["nonResourceRules"])
    everything = ask(world, BOSS, SELF_SUBJECT_RULES_REVIEWS, {"namespace": "default"})
    assert everything["resourceRules"] == [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


def test_what_others_may(world: World) -> None:
    about = {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}
    assert ask(world, BOSS, SUBJECT_ACCESS_REVIEWS, {"user": "anna", **about})["allowed"]
    assert not ask(world, BOSS, SUBJECT_ACCESS_REVIEWS, {"user": "berta", **about})["allowed"]
    assert ask(world, BOSS, LOCAL_SUBJECT_ACCESS_REVIEWS, {"user": "anna", **about}, "default")["allowed"]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (SELF_SUBJECT_ACCESS_REVIEWS, {}),
        (SELF_SUBJECT_ACCESS_REVIEWS, {"resourceAttributes": {}, "nonResourceAttributes": {}}),
        (SELF_SUBJECT_ACCESS_REVIEWS, {"resourceAttributes": 7}),
        (SUBJECT_ACCESS_REVIEWS, {"resourceAttributes": {"verb": "get"}}),
        (SELF_SUBJECT_RULES_REVIEWS, {}),
        (LOCAL_SUBJECT_ACCESS_REVIEWS, {"user": "a", "resourceAttributes": {"namespace": "other"}}),
    ],
)
def test_questions_that_say_nothing_are_refused(world: World, kind: Kind, spec: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refusal:
        ask(world, BOSS, kind, spec, "default")
    assert refusal.value.code == 400


# -- validation -----------------------------------------------------------------------------------------------------

BOTH = {**rule(["get"], ["pods"]), "nonResourceURLs": ["/a"]}
HOMELESS = {"kind": "ServiceAccount", "name": "r"}


@pytest.mark.parametrize(
    ("kind", "document", "field"),
    [
        (ROLES, role(ROLES, "x", {"apiGroups": [""], "resources": ["pods"]}), "rules[0].verbs"),
        (ROLES, role(ROLES, "x", {"verbs": ["get"], "resources": ["pods"]}), "rules[0].apiGroups"),
        (ROLES, role(ROLES, "x", {"verbs": ["get"], "apiGroups": [""]}), "rules[0].resources"),
        (ROLES, role(ROLES, "x", {"verbs": ["get"], "nonResourceURLs": ["/a"]}), "rules[0].nonResourceURLs"),
        (CLUSTER_ROLES, role(CLUSTER_ROLES, "x", BOTH), "rules[0].nonResourceURLs"),
        (CLUSTER_ROLES, {**role(CLUSTER_ROLES, "x"), "aggregationRule": {}}, "aggregationRule.clusterRoleSelectors"),
        (ROLE_BINDINGS, binding(ROLE_BINDINGS, "x", ("Pod", "y")), "roleRef.kind"),
        (ROLE_BINDINGS, binding(ROLE_BINDINGS, "x", ("Role", "")), "roleRef.name"),
        (CLUSTER_ROLE_BINDINGS, binding(CLUSTER_ROLE_BINDINGS, "x", ("Role", "y")), "roleRef.kind"),
        (ROLE_BINDINGS, binding(ROLE_BINDINGS, "x", ("Role", "y"), {"kind": "Robot", "name": "r"}), "subjects[0].kind"),
        (ROLE_BINDINGS, binding(ROLE_BINDINGS, "x", ("Role", "y"), HOMELESS), "subjects[0].namespace"),
        (ROLE_BINDINGS, binding(ROLE_BINDINGS, "x", ("Role", "y"), {"kind": "User", "name": ""}), "subjects[0].name"),
    ],
)
def test_what_is_no_role_is_refused(world: World, kind: Kind, document: dict[str, Any], field: str) -> None:
    with pytest.raises(ApiError) as refusal:
        world.create(kind, document)
    assert refusal.value.code == 422
    assert field in str(refusal.value)


def test_a_binding_is_completed_with_api_groups(world: World) -> None:
    shown = world.show("rolebindings", "anna-reads")
    assert shown["roleRef"]["apiGroup"] == RBAC_GROUP
    assert shown["subjects"][0]["apiGroup"] == RBAC_GROUP
