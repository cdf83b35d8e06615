"""Lossless edits of JSON documents.

A document is bytes. An edit decodes only the objects on its path, one level deep (`dict[str, Raw]`), and encodes them
again; everything beside the path is carried over verbatim, so unknown fields and number literals (`1.10`, `1e400`,
integers of any size) survive.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Members = dict[str, msgspec.Raw]
"""One level of a JSON object: name to verbatim value."""

_MEMBERS = msgspec.json.Decoder(Members)
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_ENCODER = msgspec.json.Encoder()

_WHITE_SPACE = b" \t\r\n"

NULL = msgspec.Raw(b"null")
EMPTY_OBJECT = msgspec.Raw(b"{}")


class DocumentError(ValueError):
    """The bytes are not the expected JSON; the message states what and where."""


def members(document: bytes | msgspec.Raw) -> Members:
    """Return the members of a JSON object. Raises DocumentError."""
    try:
        return _MEMBERS.decode(document)
    except RecursionError as error:
        raise DocumentError("the JSON document is nested too deeply") from error
    except msgspec.MsgspecError as error:
        raise DocumentError(str(error)) from error


def elements(document: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    """Return the elements of a JSON array. Raises DocumentError."""
    try:
        return _ELEMENTS.decode(document)
    except RecursionError as error:
        raise DocumentError("the JSON document is nested too deeply") from error
    except msgspec.MsgspecError as error:
        raise DocumentError(str(error)) from error


def raw(value: object) -> msgspec.Raw:
    """Return the JSON of a value (structs, numbers, text, maps; Raw inside stays verbatim)."""
    return msgspec.Raw(_ENCODER.encode(value))


def first_byte(document: bytes | msgspec.Raw) -> int:
    """Return the first byte that is not white space; 0 where there is none."""
    for byte in memoryview(document):
        if byte not in _WHITE_SPACE:
            return byte
    return 0


def is_object(document: bytes | msgspec.Raw) -> bool:
    """Return whether the JSON is an object."""
    return first_byte(document) == 0x7B


def is_array(document: bytes | msgspec.Raw) -> bool:
    """Return whether the JSON is an array."""
    return first_byte(document) == 0x5B


def is_null(document: bytes | msgspec.Raw) -> bool:
    """Return whether the JSON is null."""
    return first_byte(document) == 0x6E


def member_object(parent: Mapping[str, msgspec.Raw], name: str) -> Members:
    """Return the members of an object-valued member; empty where it is absent or null. Raises DocumentError."""
    value = parent.get(name)
    if value is None:
        return {}
    if is_object(value):
        return members(value)
    if is_null(value):
        return {}
    raise DocumentError(f"Expected `object` - at `$.{name}`")


def put_or_drop(target: Members, name: str, value: Members) -> None:
    """Set an object-valued member, or remove it if it is empty."""
    if value:
        target[name] = raw(value)
    else:
        target.pop(name, None)


def without_nulls(document: msgspec.Raw) -> msgspec.Raw:
    """Return the document without null-valued members, at every depth: in an object null means absent."""
    if is_object(document):
        kept = {name: without_nulls(value) for name, value in members(document).items() if not is_null(value)}
        return raw(kept)
    if is_array(document):
        return raw([without_nulls(value) for value in elements(document)])
    return document
