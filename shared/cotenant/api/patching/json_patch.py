"""JSON patch (RFC 6902): add, remove, replace, move, copy, test, at most 10,000 operations.

Members that the operations do not name stay byte for byte. The document is opened along the operations' paths, each level once,
so that many operations cost what they read and copy, which is bounded (`Work`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

import msgspec

from cotenant.api.edits import same_json
from cotenant.api.patching.errors import MAX_DEPTH, PatchError, PatchTestError, Work
from cotenant.api.splices import (
    NULL,
    DocumentError,
    elements,
    is_array,
    is_object,
    members,
    raw,
)

MAX_OPERATIONS = 10_000
MOVED_ELEMENTS_PER_BYTE = 8
"""Moving so many elements of an array by one place takes less time than reading a byte of JSON."""


class _Operation(msgspec.Struct, frozen=True):
    op: str
    path: str
    source: str = msgspec.field(default="", name="from")
    value: msgspec.Raw = msgspec.Raw(b"")


_Node = Union[msgspec.Raw, "dict[str, _Node]", "list[_Node]"]
"""A value of an open document: verbatim, or a container on an operation's path."""
_Open = Union["dict[str, _Node]", "list[_Node]"]
_OPERATIONS = msgspec.json.Decoder(list[_Operation])


def json_patch(document: msgspec.Raw, patch: msgspec.Raw) -> msgspec.Raw:
    """Return the document after an RFC 6902 patch. Raises DocumentError, PatchError, PatchTestError, PatchTooLargeError."""
    try:
        operations = _OPERATIONS.decode(patch)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DocumentError(f"a JSON patch is an array of operations: {error}") from error
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(f"the patch has {len(operations)} operations: at most {MAX_OPERATIONS} are accepted")
    tree = _Tree(document)
    for index, operation in enumerate(operations):
        try:
            _apply(tree, operation)
        except PatchError as error:
            raise type(error)(f"operation {index} ({operation.op} {operation.path[:200]}): {error}") from error
    return tree.document()


def _apply(tree: _Tree, operation: _Operation) -> None:
    path = _pointer(operation.path)
    if operation.op in ("add", "replace", "test") and not bytes(operation.value):
        raise PatchError("needs a value")
    if operation.op == "add":
        tree.put(path, operation.value, insert=True)
    elif operation.op == "replace":
        tree.put(path, operation.value, insert=False)
    elif operation.op == "remove":
        tree.take(path)
    elif operation.op == "test":
        found = tree.read(path)
        if not same_json(found, operation.value):
            raise PatchTestError(f"the value is {bytes(found)[:200].decode(errors='replace')}")
    elif operation.op == "copy":
        tree.put(path, tree.read(_pointer(operation.source)), insert=True)
    elif operation.op == "move":
        origin = _pointer(operation.source)
        if path[: len(origin)] == origin and path != origin:
            raise PatchError("cannot move a value into itself")
        tree.put(path, tree.take(origin), insert=True)
    else:
        raise PatchError("unknown operation: expected add, remove, replace, move, copy or test")


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    if not text.startswith("/"):
        raise PatchError(f"path {text!r} must start with '/'")
    path = [token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/")]
    if len(path) > MAX_DEPTH:
        raise PatchError(f"the path is deeper than {MAX_DEPTH} levels")
    return path


def _index(token: str, length: int, *, insert: bool) -> int:
    if token == "-" and insert:
        return length
    if not token.isascii() or not token.isdigit() or (len(token) > 1 and token[0] == "0"):
        raise PatchTestError(f"{token!r} is not an array index")
    index = int(token) if len(token) < 10 else length + 1
    if index > length or (index == length and not insert):
        raise PatchTestError(f"index {token} is out of the array's {length} elements")
    return index


class _Tree:
    """A document whose levels on the operations' paths are open, each decoded once; the rest is verbatim."""

    def __init__(self, document: msgspec.Raw) -> None:
        self._work = Work()
        self._top: list[_Node] = [document]
        """The document, in a list of one, so that it can be replaced like any other value."""

    def document(self) -> msgspec.Raw:
        """Return the document as it is now."""
        return self._closed(self._top[0])

    def read(self, path: Sequence[str]) -> msgspec.Raw:
        """Return a copy of the value at a path."""
        value = self._closed(_at(*self._place(path)))
        self._work.spend(len(value))
        return value

    def take(self, path: Sequence[str]) -> _Node:
        """Remove the value at a path and return it; without the whole document there is `null`."""
        holder, place = self._place(path)
        value = _at(holder, place)
        if holder is self._top:
            self._top[0] = NULL
        elif isinstance(holder, list):
            self._shift(holder, _number(place))
            del holder[_number(place)]
        else:
            del holder[str(place)]
        return value

    def put(self, path: Sequence[str], value: _Node, *, insert: bool) -> None:
        """Put a value at a path: replace the present one, or, with `insert`, add it (before an array's element)."""
        holder, place = self._place(path, insert=insert)
        if insert and isinstance(holder, list) and holder is not self._top:
            self._shift(holder, _number(place))
            holder.insert(_number(place), value)
        else:
            _put(holder, place, value)

    def _shift(self, holder: list[_Node], place: int) -> None:
        """Count what an insertion or a removal moves: the elements behind it."""
        self._work.spend((len(holder) - place) // MOVED_ELEMENTS_PER_BYTE)

    def _place(self, path: Sequence[str], *, insert: bool = False) -> tuple[_Open, int | str]:
        """Return the container and the place in it of a path; with `insert` the place may be new. Raises PatchTestError."""
        holder: _Open = self._top
        place: int | str = 0
        for depth, token in enumerate(path):
            holder = self._opened(holder, place, token)
            last = insert and depth == len(path) - 1
            if isinstance(holder, list):
                place = _index(token, len(holder), insert=last)
            elif token in holder or last:
                place = token
            else:
                raise PatchTestError(f"no member {token!r} on the path")
        return holder, place

    def _opened(self, holder: _Open, place: int | str, token: str) -> _Open:
        inner = _at(holder, place)
        if not isinstance(inner, msgspec.Raw):
            return inner
        self._work.spend(len(inner))
        if is_object(inner):
            opened: _Open = {**members(inner)}
        elif is_array(inner):
            opened = [*elements(inner)]
        else:
            raise PatchTestError(f"no member {token!r} on the path")
        _put(holder, place, opened)
        return opened

    def _closed(self, value: _Node) -> msgspec.Raw:
        if isinstance(value, msgspec.Raw):
            return value
        try:
            closed = raw(value)
        except RecursionError as error:
            raise DocumentError("the JSON document is nested too deeply") from error
        self._work.spend(len(closed))
        return closed


def _at(holder: _Open, place: int | str) -> _Node:
    return holder[_number(place)] if isinstance(holder, list) else holder[str(place)]


def _put(holder: _Open, place: int | str, value: _Node) -> None:
    if isinstance(holder, list):
        holder[_number(place)] = value
    else:
        holder[str(place)] = value


def _number(place: int | str) -> int:
    assert isinstance(place, int)
    return place
