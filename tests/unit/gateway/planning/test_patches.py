"""Patches change what they name, and every other byte stays."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.api.edits import same_json
from cotenant.api.patching.errors import PatchError, PatchTestError, PatchTooLargeError
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


def numbered(count: int) -> str:
    return ",".join(f'{{"name":"c{number}","image":"{number}"}}' for number in range(count))


def test_a_json_patch_that_doubles_what_it_copies_is_refused() -> None:
    document = raw(json.dumps({"a": ["x" * 1000]}))
    patch = [{"op": "copy", "from": "/a", "path": "/a/-"} for _ in range(60)]
    with pytest.raises(PatchTooLargeError, match=r"operation \d+ \(copy /a/-\): it would read and copy more than"):
        json_patch(document, raw(json.dumps(patch)))


@pytest.mark.parametrize(
    "operation",
    [
        '{"op":"add","path":"/0","value":1}',
        '{"op":"remove","path":"/0"}',
        '{"op":"move","from":"/0","path":"/0"}',
    ],
)
def test_a_json_patch_that_moves_a_long_array_again_and_again_is_refused(operation: str) -> None:
    document = raw(f"[{','.join('1' * 700_000)}]")
    with pytest.raises(PatchTooLargeError):
        json_patch(document, raw(f"[{','.join([operation] * 9_999)}]"))


def test_ten_thousand_insertions_into_an_array_of_ten_thousand_are_made() -> None:
    document = raw(f"[{','.join('1' * 10_000)}]")
    insertion = '{"op":"add","path":"/0","value":0}'
    patched = json_patch(document, raw("[" + ",".join([insertion] * 10_000) + "]"))
    assert json.loads(bytes(patched)) == [0] * 10_000 + [1] * 10_000


def test_ten_thousand_operations_on_a_large_document_cost_what_they_touch() -> None:
    document = raw(json.dumps({"a": {str(number): "x" * 50 for number in range(10_000)}, "b": 1}))
    patch = [{"op": "replace", "path": f"/a/{number}", "value": number} for number in range(10_000)]
    patched = json.loads(bytes(json_patch(document, raw(json.dumps(patch)))))
    assert patched == {"a": {str(number): number for number in range(10_000)}, "b": 1}


def test_a_strategic_patch_of_many_elements_is_merged_by_an_index() -> None:
    """Found one by one in the list, twenty thousand elements would take many minutes."""
    document = raw(f'{{"containers":[{numbered(20_000)}]}}')
    patched = json.loads(bytes(strategic_merge_patch(document, document)))
    assert [container["name"] for container in patched["containers"]] == [f"c{number}" for number in range(20_000)]


def test_a_strategic_patch_that_names_one_large_element_again_and_again_is_refused() -> None:
    document = raw(json.dumps({"containers": [{"name": "a", "args": ["x" * 100_000]}]}))
    patch = raw(json.dumps({"containers": [{"name": "a", "image": str(number)} for number in range(10_000)]}))
    with pytest.raises(PatchTooLargeError):
        strategic_merge_patch(document, patch)


def test_elements_of_one_key_are_merged_and_deleted_one_after_the_other() -> None:
    document = raw('{"env":[{"name":"a","value":"1"},{"name":"b"},{"name":"a","value":"2"}]}')
    patch = raw('{"env":[{"$patch":"delete","name":"a"},{"name":"a","value":"3"},{"name":"c"},{"name":"c","value":"4"}]}')
    assert json.loads(bytes(strategic_merge_patch(document, patch)))["env"] == [
        {"name": "b"},
        {"name": "a", "value": "3"},
        {"name": "c", "value": "4"},
    ]


@pytest.mark.parametrize(("value", "same"), [("1", True), ("1.0", True), ("true", False), ('"1"', False), ("[1]", False)])
def test_a_test_tells_numbers_from_truth(value: str, same: bool) -> None:
    patch = raw(f'[{{"op":"test","path":"/a/0","value":{value}}}]')
    if same:
        assert json_patch(raw('{"a":[1]}'), patch)
    else:
        with pytest.raises(PatchTestError):
            json_patch(raw('{"a":[1]}'), patch)


def test_an_update_from_a_number_to_truth_is_a_change() -> None:
    assert not same_json(b'{"a":[{"b":1}]}', b'{"a":[{"b":true}]}')
    assert same_json(b'{"a":[{"b":1}],"c":null}', b'{"c": null, "a": [{"b": 1.0}]}')


def test_a_value_that_was_copied_and_changed_is_another_value() -> None:
    document = raw('{"a":{"x":[1]}}')
    patch = raw(
        '[{"op":"add","path":"/a/x/-","value":2},{"op":"copy","from":"/a","path":"/b"},{"op":"replace","path":"/b/x/0","value":9},'
        '{"op":"move","from":"/a/x","path":"/c"},{"op":"add","path":"/c/0","value":0}]'
    )
    assert json.loads(bytes(json_patch(document, patch))) == {"a": {}, "b": {"x": [9, 2]}, "c": [0, 1, 2]}


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
