"""Discovery: which groups, versions and resources there are, as `kubectl api-resources` reads them."""

from __future__ import annotations

import platform

import msgspec

from cotenant.api.definitions import KindDefinition, Registry


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
    # Clients require these even if they are empty or false.
    return {**fields, "singularName": resource.singular_name, "namespaced": resource.namespaced}


def group_versions(kinds: Registry) -> list[tuple[str, str]]:
    """Return the groups with their versions, core left out, in order of the kinds."""
    return list(dict.fromkeys((each.kind.group, each.kind.version) for each in kinds if each.kind.group))


def kinds_of(kinds: Registry, group: str, version: str) -> list[KindDefinition]:
    """Return the definitions of a group and version."""
    return [each for each in kinds if (each.kind.group, each.kind.version) == (group, version)]


def api_versions() -> dict[str, object]:
    """`/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _group(kinds: Registry, group: str) -> dict[str, object]:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version} for name, version in group_versions(kinds) if name == group
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def api_groups(kinds: Registry) -> dict[str, object]:
    """`/apis`."""
    names = dict.fromkeys(group for group, _ in group_versions(kinds))
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(kinds, name) for name in names]}


def api_group(kinds: Registry, group: str) -> dict[str, object] | None:
    """`/apis/<group>`."""
    if group not in {name for name, _ in group_versions(kinds)}:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(kinds, group)}


def api_resources(kinds: Registry, group: str, version: str) -> dict[str, object] | None:
    """`/api/v1`, `/apis/<group>/<version>`."""
    found = kinds_of(kinds, group, version)
    if not found:
        return None
    resources: list[Resource] = []
    for definition in found:
        kind = definition.kind
        resources.append(
            Resource(
                kind.plural,
                kind.singular,
                kind.namespaced,
                kind.kind,
                sorted(definition.verbs),
                short_names=list(kind.short_names),
                categories=list(definition.categories),
            )
        )
        if definition.has_status:
            resources.append(Resource(f"{kind.plural}/status", "", kind.namespaced, kind.kind, ["get", "patch", "update"]))
        resources += [
            Resource(
                f"{kind.plural}/{below.name}",
                "",
                kind.namespaced,
                below.kind,
                list(below.verbs),
                group=below.group,
                version=below.version,
            )
            for below in definition.subresources
        ]
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
