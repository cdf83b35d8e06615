"""Protobuf bodies of the few kinds that `kubectl create <kind>`, `drain` and `auth` send as such, converted to JSON.

In: `k8s\\0` and a runtime.Unknown that wraps one message. Out: the JSON document. Field numbers are those of Kubernetes'
generated.proto files. Fields that are not listed here are left out; other kinds are answered with 415.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

import msgspec

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_MAX_DEPTH = 16


class ProtobufError(ValueError):
    """The bytes are not a message of a supported kind."""


class Field(msgspec.Struct, frozen=True):
    """How one field becomes JSON: text, bytes, int, bool, map, message, intorstring, time."""

    name: str
    kind: str = "text"
    repeated: bool = False
    message: Mapping[int, Field] = {}


def _message(name: str, fields: Mapping[int, Field], *, repeated: bool = False) -> Field:
    return Field(name, "message", repeated, fields)


_OWNER = {1: Field("kind"), 3: Field("name"), 4: Field("uid"), 5: Field("apiVersion"), 6: Field("controller", "bool")}
_META = {
    1: Field("name"),
    2: Field("generateName"),
    3: Field("namespace"),
    5: Field("uid"),
    6: Field("resourceVersion"),
    11: Field("labels", "map"),
    12: Field("annotations", "map"),
    13: _message("ownerReferences", _OWNER, repeated=True),
    14: Field("finalizers", repeated=True),
}
_METADATA = _message("metadata", _META)
_EXPRESSION = {1: Field("key"), 2: Field("operator"), 3: Field("values", repeated=True)}
_SELECTOR = {1: Field("matchLabels", "map"), 2: _message("matchExpressions", _EXPRESSION, repeated=True)}
_DELETE_OPTIONS = {
    1: Field("gracePeriodSeconds", "int"),
    2: _message("preconditions", {1: Field("uid"), 2: Field("resourceVersion")}),
    4: Field("propagationPolicy"),
    5: Field("dryRun", repeated=True),
}
_RULE = {
    number: Field(name, repeated=True)
    for number, name in enumerate(("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"), 1)
}
_ROLE = {1: _METADATA, 2: _message("rules", _RULE, repeated=True)}
_AGGREGATION = _message("aggregationRule", {1: _message("clusterRoleSelectors", _SELECTOR, repeated=True)})
_SUBJECT = {1: Field("kind"), 2: Field("apiGroup"), 3: Field("name"), 4: Field("namespace")}
_BINDING = {
    1: _METADATA,
    2: _message("subjects", _SUBJECT, repeated=True),
    3: _message("roleRef", {1: Field("apiGroup"), 2: Field("kind"), 3: Field("name")}),
}
_ASKED = {
    1: _message(
        "resourceAttributes",
        {
            number: Field(name)
            for number, name in enumerate(("namespace", "verb", "group", "version", "resource", "subresource", "name"), 1)
        },
    ),
    2: _message("nonResourceAttributes", {1: Field("path"), 2: Field("verb")}),
}
_ASKED_OF = {**_ASKED, 3: Field("user"), 4: Field("groups", repeated=True), 6: Field("uid")}
_REFERENCE = {
    number: Field(name)
    for number, name in enumerate(("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"), 1)
}
_BOUND_TO = {1: Field("kind"), 2: Field("apiVersion"), 3: Field("name"), 4: Field("uid")}
_TOKEN_REQUEST = {
    1: Field("audiences", repeated=True),
    3: _message("boundObjectRef", _BOUND_TO),
    4: Field("expirationSeconds", "int"),
}
_TOKEN_REVIEW = {1: Field("token"), 2: Field("audiences", repeated=True)}
_KINDS: Mapping[tuple[str, str], Mapping[int, Field]] = {
    ("rbac.authorization.k8s.io/v1", "Role"): _ROLE,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): {**_ROLE, 3: _AGGREGATION},
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): _BINDING,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): _BINDING,
    ("authentication.k8s.io/v1", "SelfSubjectReview"): {1: _METADATA},
    ("authentication.k8s.io/v1", "TokenRequest"): {1: _METADATA, 2: _message("spec", _TOKEN_REQUEST)},
    ("authentication.k8s.io/v1", "TokenReview"): {1: _METADATA, 2: _message("spec", _TOKEN_REVIEW)},
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): {1: _METADATA, 2: _message("spec", _ASKED)},
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"): {1: _METADATA, 2: _message("spec", {1: Field("namespace")})},
    ("authorization.k8s.io/v1", "SubjectAccessReview"): {1: _METADATA, 2: _message("spec", _ASKED_OF)},
    ("authorization.k8s.io/v1", "LocalSubjectAccessReview"): {1: _METADATA, 2: _message("spec", _ASKED_OF)},
    ("v1", "Namespace"): {1: _METADATA, 2: _message("spec", {1: Field("finalizers", repeated=True)})},
    ("v1", "ConfigMap"): {
        1: _METADATA,
        2: Field("data", "map"),
        3: Field("binaryData", "bytesmap"),
        4: Field("immutable", "bool"),
    },
    ("v1", "ServiceAccount"): {
        1: _METADATA,
        2: _message("secrets", _REFERENCE, repeated=True),
        3: _message("imagePullSecrets", {1: Field("name")}, repeated=True),
        4: Field("automountServiceAccountToken", "bool"),
    },
    ("scheduling.k8s.io/v1", "PriorityClass"): {
        1: _METADATA,
        2: Field("value", "int"),
        3: Field("globalDefault", "bool"),
        4: Field("description"),
        5: Field("preemptionPolicy"),
    },
    ("policy/v1", "PodDisruptionBudget"): {
        1: _METADATA,
        2: _message(
            "spec",
            {
                1: Field("minAvailable", "intorstring"),
                2: _message("selector", _SELECTOR),
                3: Field("maxUnavailable", "intorstring"),
                4: Field("unhealthyPodEvictionPolicy"),
            },
        ),
    },
    ("policy/v1", "Eviction"): {1: _METADATA, 2: _message("deleteOptions", _DELETE_OPTIONS)},
    ("v1", "DeleteOptions"): _DELETE_OPTIONS,
}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ProtobufError("the message is truncated")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ProtobufError(f"wire type {wire} is not understood")
        if at + length > len(data):
            raise ProtobufError("the message is truncated")
        yield number, data[at : at + length]
        at += length


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ProtobufError("a number where text was expected")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError as error:
        raise ProtobufError("a text is not UTF-8") from error


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ProtobufError("text where a number was expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def _int_or_string(data: bytes) -> int | str:
    parts = dict(_fields(data))
    if _number(parts.get(1, 0)) == 1:
        return _text(parts.get(3, b""))
    return _number(parts.get(2, 0))


def _value(field: Field, value: int | bytes, depth: int) -> object:
    if field.kind == "int":
        return _number(value)
    if field.kind == "bool":
        return bool(_number(value))
    if field.kind == "message":
        return _object(_bytes(value), field.message, depth + 1)
    if field.kind == "intorstring":
        return _int_or_string(_bytes(value))
    return _text(value)


def _object(data: bytes, fields: Mapping[int, Field], depth: int = 0) -> dict[str, object]:
    if depth > _MAX_DEPTH:
        raise ProtobufError("the message is nested too deeply")
    found: dict[str, object] = {}
    maps: dict[str, dict[str, str]] = {}
    lists: dict[str, list[object]] = {}
    for number, value in _fields(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.kind in ("map", "bytesmap"):
            entry = dict(_fields(_bytes(value)))
            inner = entry.get(2, b"")
            shown = _text(inner) if field.kind == "map" else base64.b64encode(_bytes(inner)).decode()
            maps.setdefault(field.name, {})[_text(entry.get(1, b""))] = shown
        elif field.repeated:
            lists.setdefault(field.name, []).append(_value(field, value, depth))
        else:
            decoded = _value(field, value, depth)
            # Kubernetes writes every field; empty ones mean absent.
            if decoded not in ("", {}):
                found[field.name] = decoded
    return {**found, **maps, **lists}


def as_json(body: bytes) -> bytes:
    """Return the JSON document of a protobuf body. Raises ProtobufError."""
    if not body.startswith(_MAGIC):
        raise ProtobufError("the body does not begin like a Kubernetes protobuf message")
    unknown = dict(_fields(body[len(_MAGIC) :]))
    type_meta = dict(_fields(_bytes(unknown.get(1, b""))))
    api_version, kind = _text(type_meta.get(1, b"")), _text(type_meta.get(2, b""))
    fields = _KINDS.get((api_version, kind)) or (_DELETE_OPTIONS if kind == "DeleteOptions" else None)
    if fields is None:
        raise ProtobufError(f"{api_version}, Kind={kind} is not understood as protobuf: send JSON")
    document = _object(_bytes(unknown.get(2, b"")), fields)
    return msgspec.json.encode({"apiVersion": api_version, "kind": kind, **document})
