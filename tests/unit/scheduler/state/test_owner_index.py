"""Which lists of owners mean a pod: held as often as reservations have them, found by what a pod has."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.api.objects.reservation import OwnerRule
from cotenant_scheduler.state.reservations.rules import OwnerIndex
from tests.unit.scheduler.builders_scheduler import Story, pod


def rules(*documents: dict[str, Any]) -> list[OwnerRule]:
    return [msgspec.convert(document, OwnerRule) for document in documents]


def labelled(**labels: str) -> list[OwnerRule]:
    return rules({"labelSelector": {"matchLabels": labels}})


def meant(index: OwnerIndex, **fields: Any) -> tuple[int, ...]:
    """The lists that mean a pod with these labels, and members of its metadata."""
    story = Story()
    document = pod("p", labels=fields.pop("labels", {}))
    document["metadata"] |= fields
    story.pod(document)
    record = story.core.pods.records["default", "p"]
    assert record.facts is not None
    return index.meaning(record, record.facts)


def changed(index: OwnerIndex) -> set[tuple[str, str, str]]:
    """The keys of lists that came or went since this was last asked."""
    keys = index.changed.copy()
    index.changed.clear()
    return keys


def test_equal_lists_are_one_until_each_is_let_go() -> None:
    index = OwnerIndex()
    assert not index
    first, second = index.hold(labelled(app="a")), index.hold(labelled(app="b"))
    assert (first, second, index.hold(labelled(app="a"))) == (1, 2, 1)
    assert changed(index) == {("label", "app", "a"), ("label", "app", "b")}
    index.let_go(first)
    assert changed(index) == set(), "it is held once more"
    assert meant(index, labels={"app": "a"}) == (1,)
    index.let_go(first)
    assert changed(index) == {("label", "app", "a")}
    assert meant(index, labels={"app": "a"}) == ()
    assert meant(index, labels={"app": "b"}) == (2,)
    assert index.hold(labelled(app="a")) == 3, "numbers are not used again"
    assert changed(index) == {("label", "app", "a")}
    for number in (second, 3):
        index.let_go(number)
    assert not index


def test_a_list_that_means_nobody_has_no_number() -> None:
    index = OwnerIndex()
    bad = rules({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Nonsense"}]}})
    assert (index.hold([]), index.hold(bad), index.changed) == (0, 0, set())
    index.let_go(0)
    assert not index
    assert index.hold(labelled(app="a")) == 1


def test_a_list_concerns_pods_with_its_key_alone() -> None:
    index = OwnerIndex()
    controller = {"kind": "ReplicaSet", "controller": True}
    for owners, key in (
        (labelled(app="a", tier="t"), ("label", "app", "a")),
        (rules({"object": {"name": "p"}}), ("name", "p", "")),
        (rules({"object": {"uid": "u"}}), ("uid", "u", "")),
        (rules({"controller": {**controller, "name": "rs"}}), ("controller-name", "rs", "")),
        (rules({"controller": {**controller, "uid": "rs-uid"}}), ("controller-uid", "rs-uid", "")),
        (rules({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}), ("", "", "")),
    ):
        number = index.hold(owners)
        assert changed(index) == {key}
        index.let_go(number)
        assert changed(index) == {key}


def test_a_pod_is_meant_by_labels_by_itself_and_by_its_controllers() -> None:
    index = OwnerIndex()
    exists = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    controller = {"kind": "ReplicaSet", "namespace": "default", "controller": True}
    lists = {
        "label": labelled(app="a"),
        "both labels": labelled(app="a", tier="t"),
        "expression": rules({"labelSelector": exists}),
        "name": rules({"object": {"name": "p", "namespace": "default"}}),
        "uid": rules({"object": {"uid": "u"}}),
        "controller": rules({"controller": {**controller, "name": "rs"}}),
        "controller uid": rules({"controller": {**controller, "uid": "rs-uid"}}),
        "either": rules(*({"labelSelector": {"matchLabels": {"app": app}}} for app in ("x", "y"))),
    }
    numbers = {index.hold(owners): name for name, owners in lists.items()}

    def names(**fields: Any) -> list[str]:
        return [numbers[number] for number in meant(index, **fields)]

    def owned(**reference: Any) -> list[dict[str, Any]]:
        return [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "", "uid": "", "controller": True, **reference}]

    assert names() == ["name"]
    assert names(name="p", uid="u", namespace="default") == ["name", "uid"]
    assert names(labels={"app": "a"}) == ["label", "expression", "name"]
    assert names(labels={"app": "a", "tier": "t"}) == ["label", "both labels", "expression", "name"]
    assert names(labels={"tier": "t"}) == ["name"]
    assert names(labels={"app": "y"}) == ["expression", "name", "either"]
    assert names(ownerReferences=owned(name="rs", uid="other")) == ["name", "controller"]
    assert names(ownerReferences=owned(name="other", uid="rs-uid")) == ["name", "controller uid"]
    assert names(ownerReferences=owned(name="other", uid="other")) == ["name"]
