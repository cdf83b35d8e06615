"""The patch of `apply`: the three-way merge of kubectl's client-side apply, as a JSON merge patch.

In: the document applied last (from its annotation), the document given now, the document stored. Out: the patch
that adds and changes members of the given one and removes members that it no longer has, without changing those of others.
Lists of objects that are keyed (containers by `name`, ports by `containerPort`, tolerations by `key`) are merged
item by item as strategic merge does; other lists are replaced whole. (Source: Kubernetes declarative configuration,
"merge changes to map and list fields".)
"""

from __future__ import annotations

import json

from cotenant_console.api.client import Document, Json, text_at

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MERGE_KEYS: dict[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "taints": "key",
    "conditions": "type",
}


def annotated(document: Document) -> Document:
    """The document with the annotation that the next apply compares with: itself, without that annotation."""
    bare = without_annotation(document)
    metadata = dict(_mapping(bare.get("metadata")))
    annotations = dict(_mapping(metadata.get("annotations")))
    annotations[LAST_APPLIED] = json.dumps(bare, separators=(",", ":"), sort_keys=True) + "\n"
    metadata["annotations"] = annotations
    return {**bare, "metadata": metadata}


def without_annotation(document: Document) -> Document:
    """The document without the last-applied annotation."""
    metadata = dict(_mapping(document.get("metadata")))
    annotations = {key: value for key, value in _mapping(metadata.get("annotations")).items() if key != LAST_APPLIED}
    if "annotations" in metadata:
        metadata["annotations"] = annotations
    return {**document, "metadata": metadata}


def last_applied(stored: Document) -> Document:
    """The document applied last, from the stored object; empty if it was never applied or the annotation is damaged."""
    text = text_at(stored, "metadata", "annotations", LAST_APPLIED)
    try:
        document = json.loads(text) if text else {}
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def apply_patch(given: Document, stored: Document) -> Document:
    """The JSON merge patch from `stored` to `given`; empty if nothing is to change."""
    desired = merged(last_applied(stored), annotated(given), stored)
    assert isinstance(desired, dict)
    return merge_difference(stored, desired)


def merged(original: Json, given: Json, stored: Json, name: str = "") -> Json:
    """The value that a field must have; `name` is the field's name, which decides how a list is keyed."""
    if isinstance(given, dict) and isinstance(stored, dict):
        before = original if isinstance(original, dict) else {}
        kept = {key: value for key, value in stored.items() if key in given or key not in before}
        for key, value in given.items():
            kept[key] = merged(before.get(key), value, stored.get(key), key)
        return {key: value for key, value in kept.items() if value is not None}
    merge_key = MERGE_KEYS.get(name)
    if merge_key and _keyed(given, merge_key) and _keyed(stored, merge_key):
        return _merged_list(*(_by_key(items, merge_key) for items in (original, given, stored)))
    return given


def merge_difference(stored: Document, desired: Document) -> Document:
    """The JSON merge patch (RFC 7386) from one document to another."""
    patch: Document = {key: None for key in stored if key not in desired}
    for key, wanted in desired.items():
        present = stored.get(key)
        if isinstance(wanted, dict) and isinstance(present, dict):
            below = merge_difference(present, wanted)
            if below:
                patch[key] = below
        elif key not in stored or not _same(present, wanted):
            patch[key] = wanted
    return patch


def _merged_list(original: dict[str, Json], given: dict[str, Json], stored: dict[str, Json]) -> Json:
    """Given items in their order, merged with the stored ones; then items that others added and this client never applied."""
    items = [merged(original.get(key), item, stored.get(key)) if key in stored else item for key, item in given.items()]
    return items + [item for key, item in stored.items() if key not in given and key not in original]


def _by_key(items: Json, key: str) -> dict[str, Json]:
    return {text_at(item, key): item for item in items} if _keyed(items, key) and isinstance(items, list) else {}


def _keyed(items: Json, key: str) -> bool:
    """Whether every item is an object with this key and no two have the same."""
    if not isinstance(items, list):
        return False
    names = [text_at(item, key) for item in items]
    return all(names) and len(set(names)) == len(names)


def _same(left: Json, right: Json) -> bool:
    """Equality under which 1 is not true, as it is in Python."""
    return left == right and json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def _mapping(value: Json) -> Document:
    return value if isinstance(value, dict) else {}
