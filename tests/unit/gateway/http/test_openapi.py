"""The OpenAPI documents follow from the kinds; what a body holds beyond its schema is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.kinds.registry import REGISTRY
from cotenant_gateway.http.openapi.documents import openapi_group, openapi_index, openapi_v2
from cotenant_gateway.http.openapi.schemas import REF, schema_name, schemas_of
from cotenant_gateway.http.openapi.unknown_fields import MAX_NAMED, unknown_fields
from tests import kubernetes_schemas
from tests.unit.gateway.builders_gateway import as_json, kind, manifest

EXAMPLES = Path(__file__).parents[4] / "examples"


def references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {name for each in schema for name in references(each)}
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"].removeprefix(REF)} if isinstance(schema.get("$ref"), str) else set()
    return own | {name for each in schema.values() for name in references(each)}


def test_the_schemas_of_kubernetes_are_those_of_the_package() -> None:
    assert json.loads(kubernetes_schemas.TARGET.read_text()) == kubernetes_schemas.schemas(), (
        "run python -m tests.kubernetes_schemas"
    )


@pytest.mark.parametrize("group_version", [(each.kind.group, each.kind.version) for each in REGISTRY])
def test_each_group_has_a_document_whose_references_are_in_it(group_version: tuple[str, str]) -> None:
    document: Any = openapi_group(REGISTRY, *group_version)
    json.dumps(document)
    components = document["components"]["schemas"]
    assert references(document) <= set(components)
    served = [each for each in REGISTRY if (each.kind.group, each.kind.version) == group_version]
    assert {schema_name(each.kind) for each in served} <= set(components)
    patched = {
        path["patch"]["x-kubernetes-group-version-kind"]["kind"] for path in document["paths"].values() if "patch" in path
    }
    assert patched == {each.kind.kind for each in served if "patch" in each.verbs}


def test_the_index_names_every_group() -> None:
    paths: Any = openapi_index(REGISTRY)["paths"]
    assert set(paths) == {f"apis/{each.kind.api_version}" if each.kind.group else "api/v1" for each in REGISTRY}


def test_only_kubernetes_own_kinds_offer_the_strategic_patch_which_needs_a_complete_schema() -> None:
    offered = set()
    for each in REGISTRY:
        document: Any = openapi_group(REGISTRY, each.kind.group, each.kind.version)
        for path, operations in document["paths"].items():
            if "patch" in operations and path.endswith(f"/{each.kind.plural}/{{name}}"):
                patches = operations["patch"]["requestBody"]["content"]
                assert "application/merge-patch+json" in patches
                if "application/strategic-merge-patch+json" in patches:
                    offered.add(each.kind)
    assert kind("pods") in offered
    assert not {each.group for each in offered} & {"scheduling.koordinator.sh", "scheduling.sigs.k8s.io", "slo.koordinator.sh"}


@pytest.mark.parametrize("plural", ["reservations", "podgroups", "nodeslos", "podmigrationjobs", "elasticquotas"])
def test_a_kind_of_koordinator_has_the_schema_of_its_spec(plural: str) -> None:
    assert "spec" in schemas_of(REGISTRY)[schema_name(kind(plural))]["properties"]


def test_v2_defines_every_kind() -> None:
    definitions: Any = openapi_v2(REGISTRY)["definitions"]
    assert {schema_name(each.kind) for each in REGISTRY} <= set(definitions)
    assert REF not in json.dumps(definitions)


def test_lists_say_the_key_that_the_server_merges_them_by() -> None:
    container = schemas_of(REGISTRY)["io.k8s.api.core.v1.Container"]["properties"]
    assert container["env"]["x-kubernetes-patch-merge-key"] == "name"
    assert container["ports"]["x-kubernetes-patch-merge-key"] == "containerPort"
    assert "x-kubernetes-patch-merge-key" not in container["command"]


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"spec": {"containers": [{"name": "a", "imgae": "x"}]}}, ["spec.containers[0].imgae"]),
        ({"spec": {"foo": 1}, "bar": {"a": 1}}, ["spec.foo", "bar"]),
        ({"metadata": {"labels": {"any": "key"}, "lables": {}}}, ["metadata.lables"]),
        ({"spec": {"nodeSelector": {"any": "key"}, "overhead": {"example.com/card": 1}}}, []),
        ({"spec": {"$setElementOrder/containers": [], "containers": [{"$patch": "delete", "name": "a"}]}}, []),
        ({"spec": {"volumes": [{"emptyDir": {"medium": "", "size": 1}}]}}, ["spec.volumes[0].emptyDir.size"]),
        ({"spec": ["a"], "status": "text"}, []),
        ({f"x{number}": 1 for number in range(100)}, [f"x{number}" for number in range(MAX_NAMED)]),
    ],
)
def test_members_that_the_schema_does_not_know_are_named(document: dict[str, Any], named: list[str]) -> None:
    assert unknown_fields(REGISTRY, kind("pods"), as_json(document)) == named


@pytest.mark.parametrize(
    ("plural", "spec", "named"),
    [
        ("reservations", {"owner": [], "ttl": "1h"}, ["spec.owner"]),
        ("reservations", {"owners": [{"object": {"name": "a", "fieldPath": "x", "nam": "b"}}]}, ["spec.owners[0].object.nam"]),
        ("reservations", {"owners": [{"controller": {"blockOwnerDeletion": True}}]}, []),
        ("reservations", {"template": {"spec": {"hostNetwork": True, "container": []}}}, ["spec.template.spec.container"]),
        ("reservations", {"template": {"namespace": "default", "spec": {}}}, []),
        ("podgroups", {"minMembers": 3, "minResources": {"cpu": 1}}, ["spec.minMembers"]),
        ("elasticquotas", {"min": {"cpu": 1}, "maximum": {}}, ["spec.maximum"]),
        ("elasticquotaprofiles", {"quotaName": "a", "nodeSelectors": {}}, ["spec.nodeSelectors"]),
        ("elasticquotaprofiles", {"nodeSelector": {"matchLabel": {}}}, ["spec.nodeSelector.matchLabel"]),
        ("podmigrationjobs", {"podRef": {"name": "a"}, "modus": "EvictDirectly"}, ["spec.modus"]),
        ("podmigrationjobs", {"reservationOptions": {"template": {"spec": {"any": 1}}, "preemptionOptions": {"any": 1}}}, []),
        ("podmigrationjobs", {"deleteOptions": {"gracePeriodSeconds": 1}}, []),
        ("clustercolocationprofiles", {"selector": {}, "qosclass": "BE"}, ["spec.qosclass"]),
        ("clustercolocationprofiles", {"patch": {"spec": {"any": 1}}}, []),
        ("clusternetworktopologies", {"networkTopologySpec": [{"labels": ["a"]}]}, ["spec.networkTopologySpec[0].labels"]),
        ("devices", {"devices": [{"topology": {"nodeID": 0}, "labels": {"any": "x"}, "vfGroups": [{"any": 1}]}]}, []),
        ("devices", {"devices": [{"minr": 0}]}, ["spec.devices[0].minr"]),
        ("devices", {"devices": [{"topology": {"numa": 0}}]}, ["spec.devices[0].topology.numa"]),
        ("nodeslos", {"extensions": {"any": 1}, "systemStrategy": {"any": 1}, "cpuBurst": {}}, ["spec.cpuBurst"]),
    ],
)
def test_members_that_koordinator_does_not_have_are_named(plural: str, spec: dict[str, Any], named: list[str]) -> None:
    document = {"metadata": {"name": "a"}, "spec": spec, "status": {}}
    assert unknown_fields(REGISTRY, kind(plural), as_json(document)) == named
    assert unknown_fields(REGISTRY, kind(plural), as_json({**document, "more": 1})) == [*named, "more"]


@pytest.mark.parametrize("body", [b"", b"\xff", b"[1]", b"[" * 2000, b'{"a":1e999}'])
def test_what_is_no_object_is_left_to_those_who_read_it(body: bytes) -> None:
    assert unknown_fields(REGISTRY, kind("pods"), body) == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_pass_the_strict_validation(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        found = REGISTRY.type(document.get("apiVersion", ""), document.get("kind", "")) if document else None
        if found is not None:
            assert unknown_fields(REGISTRY, found, as_json(document)) == []


def test_a_manifest_of_the_tests_passes() -> None:
    assert unknown_fields(REGISTRY, kind("pods"), as_json(manifest())) == []
