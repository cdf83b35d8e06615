"""What a pod says of nodes and other pods, as the API checks it: keys of labels, preemption policy, scheduling hint."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant_gateway.planning.creations import plan_creation
from tests.unit.gateway.builders_gateway import World, as_json, causes, kind, manifest, refusal_of

WEB = {"matchLabels": {"app": "web"}}
HINT = "scheduling.koordinator.sh/scheduling-hint"
POLICY = "scheduling.koordinator.sh/preemption-policy"


def asked(document: dict[str, Any]) -> dict[str, str]:
    """What is wrong with a new pod, by field."""
    world = World()
    error = refusal_of(
        lambda: plan_creation(world.core, kind("pods"), "default", as_json(document), world.now, "u", lambda: "x")
    )
    return causes(error) if error is not None else {}


def near(weighted: bool = False, **term: Any) -> dict[str, Any]:
    found = {"topologyKey": "zone", **term}
    if weighted:
        terms = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": found}]}
    else:
        terms = {"requiredDuringSchedulingIgnoredDuringExecution": [found]}
    return manifest(affinity={"podAntiAffinity": terms})


def with_metadata(**metadata: Any) -> dict[str, Any]:
    document: dict[str, Any] = manifest()
    document["metadata"] = {"name": "web", **metadata}
    return document


@pytest.mark.parametrize("weighted", [False, True])
def test_keys_of_own_labels_need_a_selector_that_does_not_have_them(weighted: bool) -> None:
    path = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
    if weighted:
        path = "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm"
    assert not asked(near(weighted, labelSelector=WEB, matchLabelKeys=["rev"], mismatchLabelKeys=["tenant"]))
    without = asked(near(weighted, matchLabelKeys=["rev"]))
    assert without == {f"{path}.matchLabelKeys": "Forbidden: must not be specified when labelSelector is not set"}
    selected = asked(near(weighted, labelSelector=WEB, mismatchLabelKeys=["app"]))
    assert "labelSelector" in selected[f"{path}.mismatchLabelKeys[0]"]
    expressions = {"matchExpressions": [{"key": "rev", "operator": "Exists"}]}
    assert f"{path}.matchLabelKeys[1]" in asked(near(weighted, labelSelector=expressions, matchLabelKeys=["a", "rev"]))
    both = asked(near(weighted, labelSelector=WEB, matchLabelKeys=["rev"], mismatchLabelKeys=["rev"]))
    assert both[f"{path}.matchLabelKeys[0]"].endswith("exists in both matchLabelKeys and mismatchLabelKeys")
    assert f"{path}.matchLabelKeys[0]" in asked(near(weighted, labelSelector=WEB, matchLabelKeys=["no key"]))


def test_keys_of_a_spread_constraint_are_checked_alike() -> None:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["app"]}
    path = "spec.topologySpreadConstraints[0].matchLabelKeys"
    assert path in asked(manifest(topologySpreadConstraints=[constraint]))
    assert f"{path}[0]" in asked(manifest(topologySpreadConstraints=[{**constraint, "labelSelector": WEB}]))
    assert not asked(manifest(topologySpreadConstraints=[{**constraint, "labelSelector": {"matchLabels": {"a": "b"}}}]))


def test_the_label_of_the_preemption_policy_is_one_of_two() -> None:
    assert not asked(with_metadata(labels={POLICY: "Never"}))
    assert not asked(with_metadata(labels={POLICY: "PreemptLowerPriority"}))
    wrong = asked(with_metadata(labels={POLICY: "never"}))
    assert list(wrong) == [f"metadata.labels[{POLICY}]"]
    assert '"PreemptLowerPriority"' in wrong[f"metadata.labels[{POLICY}]"]


@pytest.mark.parametrize("text", ["{", "[]", '{"nodeNames": "a"}', '{"preferredNodeNames": [1]}', '{"nodeNames": null}'])
def test_a_hint_that_cannot_be_read_is_refused_at_its_annotation(text: str) -> None:
    for annotation in (HINT, f"internal.{HINT}"):
        wrong = asked(with_metadata(annotations={annotation: text}))
        assert list(wrong) == [f"metadata.annotations[{annotation}]"]
        assert "must be a JSON object with lists of node names" in wrong[f"metadata.annotations[{annotation}]"]


def test_a_hint_is_a_list_of_nodes_and_whatever_else() -> None:
    for text in ("", "{}", '{"nodeNames": ["a"], "preferredNodeNames": [], "extensions": {"x": {"y": 1}}}'):
        assert not asked(with_metadata(annotations={HINT: text}))


def test_pods_of_one_spec_are_judged_by_their_own_hints() -> None:
    world, text = World(), as_json
    for hint, fine in (("{}", True), ("{", False), ("{}", True)):
        document = with_metadata(annotations={HINT: hint})
        error = refusal_of(
            lambda document=document: plan_creation(  # type: ignore[misc]
                world.core, kind("pods"), "default", text(document), world.now, "u", lambda: "x"
            )
        )
        assert (error is None) is fine
