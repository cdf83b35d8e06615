"""Discovery: which groups, versions and resources there are, as `kubectl api-resources` reads them.

Also the smallest OpenAPI v3 that lets `kubectl apply` leave validation to the server: one PATCH operation per kind
that knows `fieldValidation`.
"""

from __future__ import annotations

import platform

import msgspec

from cotenant.api.kinds import KINDS, Kind

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_READ_VERBS = ["get", "list", "watch"]
_READ_ONLY = frozenset({"nodemetrics", "nodeslos"})
_STATUS = frozenset(
    {"pods", "nodes", "namespaces", "poddisruptionbudgets", "elasticquotas", "podmigrationjobs", "reservations"}
)


class Resource(msgspec.Struct, omit_defaults=True, rename="camel"):
    """meta/v1 APIResource."""

    name: str
    singular_name: str
    namespaced: bool
    kind: str
    verbs: list[str]
    group: str = ""
    version: str = ""
    short_names: list[str] = []
    categories: list[str] = []


def _resource_body(resource: Resource) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(resource)
    # Clients demand these even where they are empty or false.
    return {**fields, "singularName": resource.singular_name, "namespaced": resource.namespaced}


def group_versions() -> list[tuple[str, str]]:
    """Return the groups with their versions, core left out, in order of the kinds."""
    return list(dict.fromkeys((kind.group, kind.version) for kind in KINDS if kind.group))


def kinds_of(group: str, version: str) -> list[Kind]:
    """Return the kinds of a group and version."""
    return [kind for kind in KINDS if (kind.group, kind.version) == (group, version)]


def api_versions() -> dict[str, object]:
    """`/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _group(group: str) -> dict[str, object]:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version} for name, version in group_versions() if name == group
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def api_groups() -> dict[str, object]:
    """`/apis`."""
    names = dict.fromkeys(group for group, _ in group_versions())
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in names]}


def api_group(group: str) -> dict[str, object] | None:
    """`/apis/<group>`."""
    if group not in {name for name, _ in group_versions()}:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}


def api_resources(group: str, version: str) -> dict[str, object] | None:
    """`/api/v1`, `/apis/<group>/<version>`."""
    kinds = kinds_of(group, version)
    if not kinds:
        return None
    resources: list[Resource] = []
    for kind in kinds:
        verbs = _READ_VERBS if kind.plural in _READ_ONLY else _VERBS
        categories = ["all"] if kind.plural == "pods" else []
        resources.append(
            Resource(
                kind.plural,
                kind.singular,
                kind.namespaced,
                kind.kind,
                verbs,
                short_names=list(kind.short_names),
                categories=categories,
            )
        )
        if kind.plural in _STATUS:
            resources.append(Resource(f"{kind.plural}/status", "", kind.namespaced, kind.kind, ["get", "patch", "update"]))
        if kind.plural == "pods":
            resources.append(Resource("pods/log", "", True, "Pod", ["get"]))
            resources.append(Resource("pods/eviction", "", True, "Eviction", ["create"], group="policy", version="v1"))
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": [_resource_body(resource) for resource in resources],
    }


def version_document(version: str) -> dict[str, str]:
    """`/version`: the Kubernetes version whose API this follows, and our own."""
    return {
        "major": "1",
        "minor": "32",
        "gitVersion": f"v1.32.0+cotenant-{version}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": platform.python_implementation(),
        "platform": f"linux/{platform.machine()}",
    }


def openapi_index() -> dict[str, object]:
    """`/openapi/v3`."""
    paths = {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1"}}
    for group, version in group_versions():
        paths[f"apis/{group}/{version}"] = {"serverRelativeURL": f"/openapi/v3/apis/{group}/{version}"}
    return {"paths": paths}


def openapi_group(group: str, version: str) -> dict[str, object] | None:
    """`/openapi/v3/api/v1`, `/openapi/v3/apis/<group>/<version>`."""
    kinds = kinds_of(group, version)
    if not kinds:
        return None
    root = f"/apis/{group}/{version}" if group else "/api/v1"
    paths: dict[str, object] = {}
    for kind in kinds:
        scope = "/namespaces/{namespace}" if kind.namespaced else ""
        operation = {
            "operationId": f"patch{kind.kind}",
            "parameters": [
                {"name": name, "in": "query", "schema": {"type": "string"}}
                for name in ("dryRun", "fieldManager", "fieldValidation")
            ],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": {"group": group, "kind": kind.kind, "version": version},
        }
        paths[f"{root}{scope}/{kind.plural}/{{name}}"] = {"patch": operation}
    return {"openapi": "3.0.0", "info": {"title": "cotenant", "version": "v1"}, "paths": paths, "components": {}}
