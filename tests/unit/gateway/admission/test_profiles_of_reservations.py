"""ClusterColocationProfiles and Reservations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, causes, refusal_of

RECORD = "cotenant.io/colocation-profiles"


def profile(name: str = "batch", **spec: object) -> dict[str, object]:
    api_version = "config.koordinator.sh/v1alpha1"
    return {"apiVersion": api_version, "kind": "ClusterColocationProfile", "metadata": {"name": name}, "spec": spec}


def reservation(spec: object = None, **labels: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
    owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "kept", "labels": labels},
        "spec": {"template": template, "owners": owners} if spec is None else spec,
    }


def created(document: dict[str, Any], *profiles: dict[str, object]) -> dict[str, Any]:
    world = World()
    for each in profiles:
        world.create("clustercolocationprofiles", each)
    world.create("reservations", document)
    return world.show("reservations", "kept")


def test_a_reservation_gets_what_its_pods_would_get_but_resources_stay() -> None:
    made = profile(
        selector={"matchLabels": {"app": "web"}},
        labels={"colocated": "yes"},
        qosClass="BE",
        priorityClassName="koord-batch",
        schedulerName="cotenant",
        koordinatorPriority=7,
    )
    shown = created(reservation(app="web"), made)
    assert shown["metadata"]["labels"] == {
        "app": "web",
        "colocated": "yes",
        "koordinator.sh/qosClass": "BE",
        "koordinator.sh/priority": "7",
    }
    assert shown["metadata"]["annotations"] == {RECORD: "batch"}
    pod = shown["spec"]["template"]["spec"]
    assert (pod["priorityClassName"], pod["priority"], pod["preemptionPolicy"]) == ("koord-batch", 5000, "PreemptLowerPriority")
    assert pod["schedulerName"] == "cotenant"
    assert pod["containers"][0]["resources"] == {"requests": {"cpu": "1"}}


def test_one_that_no_profile_matches_stays_as_it_is() -> None:
    document = reservation(app="other")
    shown = created(document, profile(selector={"matchLabels": {"app": "web"}}, labels={"colocated": "yes"}))
    defaulted = {**document["spec"], "ttl": "24h", "allocateOnce": True}
    assert (shown["spec"], shown["metadata"]["labels"]) == (defaulted, {"app": "other"})
    assert "annotations" not in shown["metadata"]


def test_a_namespace_selector_is_not_looked_at_and_alone_selects_nothing() -> None:
    by_namespace = {"namespaceSelector": {"matchLabels": {"colocation": "on"}}}
    both = profile("both", selector={"matchLabels": {"app": "web"}}, labels={"both": "yes"}, **by_namespace)
    shown = created(reservation(app="web"), profile("alone", labels={"alone": "yes"}, **by_namespace), both)
    assert shown["metadata"]["labels"] == {"app": "web", "both": "yes"}


def test_the_last_in_order_of_name_decides() -> None:
    shown = created(reservation(), profile("b", labels={"who": "b"}), profile("a", labels={"who": "a"}))
    assert (shown["metadata"]["labels"]["who"], shown["metadata"]["annotations"][RECORD]) == ("b", "a,b")


def test_of_a_patch_a_reservation_takes_metadata_and_what_its_spec_has() -> None:
    patch = {"metadata": {"annotations": {"a": "b"}}, "spec": {"terminationGracePeriodSeconds": 2}}
    shown = created(reservation(), profile(patch=patch))
    assert shown["metadata"]["annotations"] == {"a": "b", RECORD: "batch"}
    assert "terminationGracePeriodSeconds" not in shown["spec"]


def test_a_live_reservation_is_not_changed() -> None:
    world = World()
    world.create("reservations", reservation())
    world.create("clustercolocationprofiles", profile(labels={"colocated": "yes"}))
    world.patch("reservations", "kept", {"metadata": {"labels": {"more": "yes"}}})
    assert world.show("reservations", "kept")["metadata"]["labels"] == {"more": "yes"}


def test_a_missing_priority_class_is_named() -> None:
    with pytest.raises(ApiError) as caught:
        created(reservation(), profile(priorityClassName="nowhere"))
    why = causes(caught.value)["spec.template.spec.priorityClassName"]
    assert "ClusterColocationProfile batch sets this PriorityClass" in why


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([None, 7, "x", [], {}, {"template": None}, {"template": 7}, {"template": {"spec": 7}}]))
def test_whatever_its_spec_is_the_answer_is_no_failure(spec: object) -> None:
    document = {**reservation(), "spec": spec}
    made = profile(labels={"a": "b"}, schedulerName="cotenant", patch={"metadata": {"labels": {"c": "d"}}})
    refusal = refusal_of(lambda: created(document, made))
    assert refusal is None or refusal.code in (400, 422)
