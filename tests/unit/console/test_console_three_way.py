"""The three-way merge of apply: what one applier said, says now, and what others wrote."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant_console.manifests.three_way import LAST_APPLIED, annotated, apply_patch, merge_difference
from tests.builders import pod_document


def pod(**spec: Any) -> dict[str, Any]:
    document = pod_document("a", namespace="", uid="", labels={"app": "x"})
    return {**document, "spec": spec}


def stored(document: dict[str, Any]) -> dict[str, Any]:
    """The object as the server returns it after an apply: annotated, with fields of its own."""
    copy: dict[str, Any] = json.loads(json.dumps(annotated(document)))
    copy["metadata"]["uid"] = "u1"
    copy["metadata"]["resourceVersion"] = "17"
    copy["status"] = {"phase": "Running"}
    return copy


def test_applying_the_same_manifest_again_changes_nothing() -> None:
    assert apply_patch(pod(nodeName="n"), stored(pod(nodeName="n"))) == {}


def test_what_the_manifest_no_longer_says_is_removed() -> None:
    patch = apply_patch(pod(), stored(pod(nodeName="n", priority=5)))
    assert patch["spec"] == {"nodeName": None, "priority": None}


def test_what_others_wrote_stays() -> None:
    present = stored(pod(priority=5))
    present["metadata"]["labels"]["added"] = "by-another"
    present["spec"]["tolerations"] = [{"key": "k"}]
    patch: Any = apply_patch(pod(priority=6), present)
    assert patch["spec"] == {"priority": 6}
    assert "labels" not in patch["metadata"]


def test_containers_are_merged_by_name_so_that_defaults_of_the_server_are_no_change() -> None:
    given_pod = pod(containers=[{"name": "main", "image": "a"}])
    present = stored(given_pod)
    present["spec"]["containers"][0]["terminationMessagePath"] = "/dev/termination-log"
    assert apply_patch(given_pod, present) == {}


def test_a_changed_container_is_sent_with_the_whole_list() -> None:
    present = stored(pod(containers=[{"name": "main", "image": "a"}, {"name": "old", "image": "o"}]))
    present["spec"]["containers"].append({"name": "injected", "image": "i"})
    patch = apply_patch(pod(containers=[{"name": "main", "image": "b"}]), present)
    assert patch["spec"] == {"containers": [{"name": "main", "image": "b"}, {"name": "injected", "image": "i"}]}


def test_an_object_that_nobody_applied_keeps_its_fields_and_gains_the_annotation() -> None:
    present = pod(priority=5)
    patch: Any = apply_patch(pod(), present)
    assert set(patch) == {"metadata"}
    assert json.loads(patch["metadata"]["annotations"][LAST_APPLIED]) == pod()


def test_one_and_true_are_different() -> None:
    assert merge_difference({"a": 1}, {"a": True}) == {"a": True}


values = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=3),
    lambda below: st.dictionaries(st.sampled_from("abc"), below, max_size=3) | st.lists(below, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


def patched(target: Any, patch: Any) -> Any:
    """RFC 7386, as its page writes it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), value)
    return result


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(documents, documents)
def test_the_difference_leads_from_one_document_to_the_other(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert json.dumps(patched(left, merge_difference(left, right)), sort_keys=True) == json.dumps(right, sort_keys=True)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(documents, documents)
def test_after_an_apply_the_same_apply_is_no_change(before: dict[str, Any], now: dict[str, Any]) -> None:
    present = annotated(before)
    after = patched(present, apply_patch(now, present))
    assert apply_patch(now, after) == {}
