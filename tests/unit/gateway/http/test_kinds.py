"""The registry: kinds are found by group and resource, so two groups may use one plural."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

import msgspec
import pytest

from cotenant.api.columns import NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition, Registry
from cotenant.api.edits import with_metadata
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.overlay import Overlay
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import raw
from cotenant.api.validation.fields import FieldError, invalid
from cotenant.kinds.pods import PODS
from cotenant.kinds.registry import REGISTRY
from cotenant_gateway.http.app import discovery_document
from cotenant_gateway.http.routing import target_of
from cotenant_gateway.http.tables import TableFormat, table
from cotenant_gateway.http.watching import WatchEvents, seen_change
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import NOW, World, manifest


class _Spec(View, frozen=True, kw_only=True):
    size: int = 0


class _Whale(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


def _size(snapshot: Snapshot, _: datetime) -> Sequence[Cell]:
    return snapshot.address.name, json.loads(snapshot.document)["spec"]["size"]


def _habitat(snapshot: Snapshot, _: datetime) -> Sequence[Cell]:
    return snapshot.address.name, json.loads(snapshot.document)["status"]["habitat"]


def _not_negative(whale: _Whale, _: object) -> list[FieldError]:
    return [invalid("spec.size", whale.spec.size, "must not be negative")] if whale.spec.size < 0 else []


WHALES = Kind("whales.example.io", "v1", "pods", "WhalePod", True)
PEAS = Kind("peas.example.io", "v1beta1", "pods", "PeaPod", False)
WHALE = KindDefinition(
    WHALES,
    decode=msgspec.json.Decoder(_Whale).decode,
    errors=_not_negative,
    layout=Layout((NAME, Column("Size", "integer")), _size),
    read_only=False,
)
PEA = KindDefinition(
    PEAS,
    default=lambda document: with_metadata(document, {"labels": {"grown": "true"}}),
    compose=lambda _: Overlay(status={"habitat": raw("field")}),
    compose_document_alone=True,
    layout=Layout((NAME, Column("Habitat")), _habitat),
    field_labels=frozenset({"status.habitat"}),
    has_status=True,
)
KINDS = Registry((*REGISTRY, WHALE, PEA))


@pytest.fixture
def world() -> World:
    """A pod of each of three groups, all named `web`."""
    found = World(kinds=KINDS)
    found.create(PODS, manifest())
    found.create(
        WHALES, {"apiVersion": "whales.example.io/v1", "kind": "WhalePod", "metadata": {"name": "web"}, "spec": {"size": 9}}
    )
    found.create(PEAS, {"apiVersion": "peas.example.io/v1beta1", "kind": "PeaPod", "metadata": {"name": "web"}})
    return found


def listed(world: World, kind: Kind) -> list[str]:
    return [json.loads(found.document)["kind"] for found in world.core.objects(kind)]


def test_each_group_has_its_own_resource_in_discovery() -> None:
    whales = json.loads(json.dumps(discovery_document("/apis/whales.example.io/v1", KINDS)))
    peas = json.loads(json.dumps(discovery_document("/apis/peas.example.io/v1beta1", KINDS)))
    assert [(found["name"], found["kind"], found["namespaced"]) for found in whales["resources"]] == [
        ("pods", "WhalePod", True)
    ]
    assert [found["name"] for found in peas["resources"]] == ["pods", "pods/status"]


def test_a_path_names_the_kind_of_its_group() -> None:
    whale = target_of("/apis/whales.example.io/v1/namespaces/default/pods/web", KINDS)
    pea = target_of("/apis/peas.example.io/v1beta1/pods/web", KINDS)
    assert whale is not None
    assert pea is not None
    assert (whale.kind, whale.namespace) == (WHALES, "default")
    assert (pea.kind, pea.namespace) == (PEAS, "")
    assert target_of("/apis/peas.example.io/v1beta1/namespaces/default/pods/web", KINDS) is None


def test_objects_of_one_name_and_plural_are_stored_and_listed_by_group(world: World) -> None:
    assert (listed(world, PODS), listed(world, WHALES), listed(world, PEAS)) == (["Pod"], ["WhalePod"], ["PeaPod"])
    subjects = [event.subject for event in world.events[-3:]]
    assert subjects == [
        "objects.core.pods.default.web",
        *(
            f"objects.{group}.pods.{place}.web"
            for group, place in (("whales%2Eexample%2Eio", "default"), ("peas%2Eexample%2Eio", "_"))
        ),
    ]


def test_each_kind_has_its_own_schema_validation_and_defaults(world: World) -> None:
    document = {"apiVersion": "whales.example.io/v1", "kind": "WhalePod", "metadata": {"name": "small"}, "spec": {"size": -1}}
    with pytest.raises(ApiError, match="must not be negative") as refused:
        world.create(WHALES, document)
    assert refused.value.code == 422
    with pytest.raises(ApiError, match=r"Expected .int., got .str."):
        world.create(WHALES, {**document, "spec": {"size": "nine"}})
    pea = world.core.get(PEAS, "", "web")
    assert pea is not None
    assert pea.labels == {"grown": "true"}
    assert pea.fields["metadata.name"] == "web"


def test_a_watch_of_one_kind_sees_nothing_of_the_others(world: World) -> None:
    ring = world.core.ring
    changes = ring.read(ring.position_after(ring.oldest), 100)
    seen = {
        kind: [found for change in changes if (found := seen_change(change, kind, lambda _: True))] for kind in (WHALES, PEAS)
    }
    (word, whale), (_, pea) = seen[WHALES][0], seen[PEAS][0]
    assert (len(seen[WHALES]), len(seen[PEAS])) == (1, 1)
    line = json.loads(WatchEvents(WHALE, None, lambda: NOW).line(word, whale, whale.version))
    assert (line["type"], line["object"]["kind"]) == ("ADDED", "WhalePod")
    assert pea.address.kind is PEAS


@pytest.mark.parametrize(("definition", "column", "cell"), [(WHALE, "Size", 9), (PEA, "Habitat", "field")])
def test_each_kind_has_its_own_columns(world: World, definition: KindDefinition, column: str, cell: Cell) -> None:
    shown = json.loads(table(definition.layout, world.core.objects(definition.kind), {}, NOW, TableFormat()))
    assert [found["name"] for found in shown["columnDefinitions"]] == ["Name", column]
    assert [row["cells"] for row in shown["rows"]] == [["web", cell]]


def test_a_resource_or_a_type_has_one_definition() -> None:
    again = KindDefinition(Kind("", "v1", "pods", "OtherPod", True))
    with pytest.raises(ValueError, match="same group and plural"):
        Registry((*REGISTRY, again))
    renamed = KindDefinition(Kind("", "v1", "morepods", "Pod", True))
    with pytest.raises(ValueError, match="same apiVersion and kind"):
        Registry((*REGISTRY, renamed))
