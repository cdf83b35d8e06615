"""Pods that act as reservations: what is refused of them, and what they and those who use them show."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.placements import Placement, UsedBy
from cotenant.model.subjects import placement_subject
from cotenant_gateway.planning.creations import plan_creation
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, as_json, kind, manifest

PREFIX = "scheduling.koordinator.sh"
OWNERS = '[{"labelSelector": {"matchLabels": {"app": "web"}}}]'


def acting(mode: str = "Reservation", **annotations: str) -> dict[str, Any]:
    document = json.loads(as_json(manifest("holder")))
    document["metadata"]["labels"] = {f"{PREFIX}/operating-mode": mode}
    document["metadata"]["annotations"] = {name.replace("__", "/"): text for name, text in annotations.items()}
    return document  # type: ignore[no-any-return]


def wrong_fields(world: World, document: dict[str, Any]) -> list[str]:
    with pytest.raises(ApiError) as caught:
        plan_creation(world.core, kind("pods"), "default", as_json(document), world.now, "u", lambda: "x")
    assert caught.value.status.details is not None
    return [cause.field for cause in caught.value.status.details.causes]


NEAR = '[{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}]'


@pytest.mark.parametrize("owners", ["[{", "{}", NEAR])
def test_owners_that_cannot_be_read_are_refused_where_they_would_be_used(owners: str) -> None:
    world = World()
    annotation = f"{PREFIX}/reservation-owners"
    document = acting()
    document["metadata"]["annotations"][annotation] = owners
    assert wrong_fields(world, document) == [f"metadata.annotations[{annotation}]"]
    document["metadata"]["labels"][f"{PREFIX}/operating-mode"] = "Runnable"
    world.create("pods", document)


def test_an_unknown_mode_is_refused() -> None:
    assert wrong_fields(World(), acting("reservation")) == [f"metadata.labels[{PREFIX}/operating-mode]"]


def test_the_same_spec_with_other_owners_is_looked_at_again() -> None:
    world = World()
    good = acting()
    good["metadata"]["annotations"][f"{PREFIX}/reservation-owners"] = OWNERS
    world.create("pods", good)
    bad = acting()
    bad["metadata"]["name"] = "second"
    bad["metadata"]["annotations"][f"{PREFIX}/reservation-owners"] = "[["
    assert wrong_fields(world, bad)


def test_the_pods_show_who_uses_whom() -> None:
    world = World()
    for name in ("holder", "web"):
        document = json.loads(as_json(manifest(name)))
        world.create("pods", document)
    used = Allocation(reservation=ReservationUsed(name="default/holder", uid=world.uid_of("holder")))
    user = UsedBy(namespace="default", name="web", uid=world.uid_of("web"))
    for name, by in (("holder", user), ("web", None)):
        placed = Placement(
            node="n1",
            namespace="default",
            name=name,
            uid=world.uid_of(name),
            bound_at=world.now,
            pod=msgspec.Raw(b"null"),
            allocation=used,
            used_by=by,
        )
        world.put(placement_subject("n1", "default", name), placed)
    shown = world.show("pods", "holder")["metadata"]["annotations"]
    assert json.loads(shown[f"{PREFIX}/reservation-current-owner"]) == {
        "namespace": "default",
        "name": "web",
        "uid": world.uid_of("web"),
    }
    shown = world.show("pods", "web")["metadata"]["annotations"]
    assert json.loads(shown[f"{PREFIX}/reservation-allocated"]) == {"name": "holder", "uid": world.uid_of("holder")}
