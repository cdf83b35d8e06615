"""Checks beyond a payload's types: its times are within the bounds, and it names the same entity as its subject.

In: a payload's class (or a view of it, which may lack fields), the pattern of its subject. Out: a function from a payload and
its subject to the error, empty if valid. A time without a zone, or so extreme that adding a duration overflows
`datetime`, makes rules raise; a payload about another entity makes a service write repeatedly to a subject from which it does
not read that fact.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import inspect

from cotenant.model.bounds import EARLIEST_YEAR, LATEST_YEAR
from cotenant.model.subjects import decode_token

YEARS = f"within the years {EARLIEST_YEAR} to {LATEST_YEAR}"
Check = Callable[[Any, str], str]
Times = Callable[[Any], str]


def check_of(cls: type[msgspec.Struct], subject: str) -> Check:
    """Return the check of a payload's class; `subject` is its pattern, such as `node.{node}.run.{namespace}.{name}`."""
    times = _times_of(inspect.type_info(cls), cls.__name__)
    fields = set(cls.__struct_fields__)
    pattern = subject.split(".")
    tokens = [(at, name) for at, token in enumerate(pattern) if (name := token.strip("{}")) != token and name in fields]
    words, first = len(pattern), pattern[0]
    # Nearly every subject is its pattern filled in, which is quick to check if the payload has all the fields.
    template = ".".join("%s" if "{" in token else token for token in pattern)
    values = attrgetter(*(name for _, name in tokens)) if 1 < len(tokens) == template.count("%s") else None

    def check(payload: Any, given: str) -> str:
        if tokens and (values is None or template % values(payload) != given):
            parts = given.split(".")
            if len(parts) == words and parts[0] == first:
                for at, field in tokens:
                    named, token = getattr(payload, field), parts[at]
                    if token != named and decode_token(token) != named:
                        return f"{field} {named[:100]!r} is not that of its subject"
        return times(payload) if times is not None else ""

    return check


def _times_of(info: inspect.Type, where: str) -> Times | None:
    """Return the check of all times below a value of a type; None where there can be none. Types are not recursive."""
    if isinstance(info, inspect.Metadata):
        return _times_of(info.type, where)
    if isinstance(info, inspect.DateTimeType):
        return lambda value: _wrong(value, where) if value is not None else ""
    if isinstance(info, inspect.UnionType):
        found = [check for each in info.types if (check := _times_of(each, where)) is not None]
        return found[0] if found else None
    if isinstance(info, (inspect.VarTupleType, inspect.ListType)):
        item = _times_of(info.item_type, where)
        return (lambda values: next((wrong for value in values if (wrong := item(value))), "")) if item is not None else None
    if isinstance(info, inspect.StructType):
        return _times_of_struct(info)
    return None


def _times_of_struct(info: inspect.StructType) -> Times | None:
    fields = [
        (field.name, check) for field in info.fields if (check := _times_of(field.type, field.encode_name)) is not None
    ]
    if not fields:
        return None

    def times(value: Any) -> str:
        if value is not None:
            for name, check in fields:
                # Most times and parts of an event are absent.
                part = getattr(value, name)
                if part is not None and (wrong := check(part)):
                    return wrong
        return ""

    return times


def _wrong(time: datetime, where: str) -> str:
    if time.tzinfo is None:
        return f"{where} {time.isoformat()} has no time zone"
    if EARLIEST_YEAR <= time.year <= LATEST_YEAR:
        return ""
    return f"{where} {time.isoformat()} is not {YEARS}"
