"""Patches change what they name, and every other byte stays."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.api.patching.errors import PatchError, PatchTestError
from cotenant.api.patching.json_patch import json_patch
from cotenant.api.patching.merge import merge_patch
from cotenant.api.patching.strategic import strategic_merge_patch


def raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def test_a_merge_patch_leaves_number_literals_and_unknown_fields_alone() -> None:
    document = raw('{"a":{"x":1.10,"y":12345678901234567890123},"unknown":[1e400, 2.50],"b":1}')
    patched = merge_patch(document, raw('{"a":{"z":0.30},"b":null}'))
    assert bytes(patched) == b'{"a":{"x":1.10,"y":12345678901234567890123,"z":0.30},"unknown":[1e400, 2.50]}'


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ('{"a":"b"}', '{"a":"c"}', {"a": "c"}),
        ('{"a":"b"}', '{"b":"c"}', {"a": "b", "b": "c"}),
        ('{"a":"b"}', '{"a":null}', {}),
        ('{"a":["b"]}', '{"a":"c"}', {"a": "c"}),
        ('{"a":"c"}', '{"a":["b"]}', {"a": ["b"]}),
        ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', {"a": {"b": "d"}}),
        ('{"a":[{"b":"c"}]}', '{"a":[1]}', {"a": [1]}),
        ('["a","b"]', '["c","d"]', ["c", "d"]),
        ('{"e":null}', '{"a":1}', {"e": None, "a": 1}),
        ("{}", '{"a":{"bb":{"ccc":null}}}', {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_cases_of_rfc_7396(document: str, patch: str, result: object) -> None:
    assert json.loads(bytes(merge_patch(raw(document), raw(patch)))) == result


def test_json_patch_adds_replaces_moves_and_tests() -> None:
    document = raw('{"list":["a","c"],"map":{"x/y":1},"gone":true}')
    patch = raw(
        '[{"op":"add","path":"/list/1","value":"b"},{"op":"add","path":"/list/-","value":"d"},'
        '{"op":"test","path":"/map/x~1y","value":1.0},{"op":"replace","path":"/map/x~1y","value":2},'
        '{"op":"move","from":"/gone","path":"/there"},{"op":"copy","from":"/list/0","path":"/first"}]'
    )
    assert json.loads(bytes(json_patch(document, patch))) == {
        "list": ["a", "b", "c", "d"],
        "map": {"x/y": 2},
        "there": True,
        "first": "a",
    }


@pytest.mark.parametrize(
    ("patch", "error"),
    [
        ('[{"op":"test","path":"/a","value":2}]', PatchTestError),
        ('[{"op":"remove","path":"/b"}]', PatchTestError),
        ('[{"op":"replace","path":"/list/9","value":1}]', PatchTestError),
        ('[{"op":"jump","path":"/a"}]', PatchError),
        ('[{"op":"add","path":"a","value":1}]', PatchError),
        ('[{"op":"add","path":"/a"}]', PatchError),
    ],
)
def test_a_json_patch_that_cannot_be_applied_names_its_operation(patch: str, error: type[PatchError]) -> None:
    with pytest.raises(error, match="operation 0"):
        json_patch(raw('{"a":1,"list":[0]}'), raw(patch))


def test_a_strategic_patch_merges_containers_by_name_and_deletes_by_directive() -> None:
    document = raw('{"spec":{"containers":[{"name":"a","image":"1","tty":true},{"name":"b","image":"2"}]}}')
    patch = raw(
        '{"spec":{"$setElementOrder/containers":[{"name":"c"},{"name":"a"}],'
        '"containers":[{"name":"a","image":"9"},{"$patch":"delete","name":"b"},{"name":"c","image":"3"}]}}'
    )
    assert json.loads(bytes(strategic_merge_patch(document, patch)))["spec"]["containers"] == [
        {"name": "c", "image": "3"},
        {"name": "a", "image": "9", "tty": True},
    ]


def test_a_strategic_patch_replaces_arrays_without_a_key_and_maps_on_demand() -> None:
    document = raw('{"spec":{"args":[1,2],"selector":{"matchLabels":{"a":"1"}}},"metadata":{"finalizers":["x","y"]}}')
    patch = raw(
        '{"spec":{"args":[3],"selector":{"$patch":"replace","matchLabels":{"b":"2"}}},'
        '"metadata":{"$deleteFromPrimitiveList/finalizers":["x"]}}'
    )
    assert json.loads(bytes(strategic_merge_patch(document, patch))) == {
        "spec": {"args": [3], "selector": {"matchLabels": {"b": "2"}}},
        "metadata": {"finalizers": ["y"]},
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def reference_merge(target: object, patch: object) -> object:
    """RFC 7396, as its pseudo-code says."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = reference_merge(result.get(name), value)
    return result


@given(JSON, JSON)
def test_merge_patch_equals_the_rfc_for_any_document(document: object, patch: object) -> None:
    patched = merge_patch(raw(json.dumps(document)), raw(json.dumps(patch)))
    assert json.loads(bytes(patched)) == reference_merge(document, patch)
