"""Values of the node configuration: the checks of each kind of value.

In: a value of a section of the ConfigMap `slo-controller-config` as JSON, and its path. Out: field errors. A check is made
where the value is set (0 is set, null is not); values are truncated in messages. Bound: of a list or a map MAX_LISTED are
looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import isfinite

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.validation.fields import FieldError, invalid, not_supported, quantity, required, wrong_type
from cotenant.model.quantities import QuantityError, parse_value

Json = object
Check = Callable[[str, Json], list[FieldError]]

_DURATION = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,9})?(?:ns|us|µs|μs|ms|s|m|h)){1,8}|0")
MAX_LISTED = 1_000
"""Elements of a list, or members of a map, that are checked."""


def whole(low: int, high: int | None = None) -> Check:
    """A whole number of a range, its ends included."""

    def check(field: str, value: Json) -> list[FieldError]:
        if isinstance(value, bool) or not isinstance(value, int):
            return [wrong_type(field, "must be a whole number")]
        if value < low or value > (2**63 - 1 if high is None else high):
            return [invalid(field, shown(value), f"must be at least {low}" + ("" if high is None else f" and at most {high}"))]
        return []

    return check


integer = whole(-(2**63))
"""Any whole number."""


def number(above: float | None, low: float | None, high: float | None) -> Check:
    """A number above a lower bound (inclusive or not), up to an upper one."""
    expected = "must be " + " and ".join(
        text
        for text in (
            f"above {above:g}" if above is not None else "",
            f"at least {low:g}" if low is not None else "",
            f"at most {high:g}" if high is not None else "",
        )
        if text
    )

    def check(field: str, value: Json) -> list[FieldError]:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return [wrong_type(field, "must be a number")]
        right = not isinstance(value, float) or isfinite(value)
        right = right and (above is None or value > above) and (low is None or value >= low) and (high is None or value <= high)
        return [] if right else [invalid(field, shown(value), expected)]

    return check


def flag(field: str, value: Json) -> list[FieldError]:
    """True or false."""
    return [] if isinstance(value, bool) else [wrong_type(field, "must be true or false")]


def text(field: str, value: Json) -> list[FieldError]:
    """Any text."""
    return [] if isinstance(value, str) else [wrong_type(field, "must be a text")]


def one_of(*choices: str, may_be_empty: bool = True) -> Check:
    """One of a few texts; an empty one counts as absent, where it may be empty."""

    def check(field: str, value: Json) -> list[FieldError]:
        found = text(field, value)
        if found or (value == "" and may_be_empty) or value in choices:
            return found
        return [not_supported(field, shown(value), choices)]

    return check


def mapping(field: str, value: Json) -> list[FieldError]:
    """An object that is stored as it is."""
    return [] if isinstance(value, dict) else [wrong_type(field, "must be an object")]


def amount(field: str, value: Json, resource: str = "") -> list[FieldError]:
    """A quantity: a number, or a text such as `10Gi`; of a `resource` that is named, within the bounds of amounts."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return [wrong_type(field, "must be a quantity such as 10Gi")]
    if (isinstance(value, str) and len(value) > 100) or (isinstance(value, float) and not isfinite(value)):
        return [invalid(field, shown(value), "must be a quantity such as 10Gi")]
    if isinstance(value, int) and abs(value) >= 2**63:
        return [invalid(field, shown(value), "must be within 64 bits")]
    return quantity(field, value, resource=resource)


def amounts(field: str, value: Json) -> list[FieldError]:
    """A map of resources to their quantities, each within the bounds of amounts."""
    if not isinstance(value, dict):
        return [wrong_type(field, "must be an object")]
    return [error for name, item in _given(value) for error in amount(f"{field}[{shown(name)}]", item, name)]


def bandwidth(field: str, value: Json) -> list[FieldError]:
    """A quantity of bits per second; a number is a whole one."""
    return amount(field, value) if isinstance(value, str) else whole(0)(field, value)


def percent_or_amount(field: str, value: Json) -> list[FieldError]:
    """A share of the node's bandwidth: a whole number is a percentage, a text a quantity of bits per second."""
    return amount(field, value) if isinstance(value, str) else whole(0, 100)(field, value)


def duration(field: str, value: Json) -> list[FieldError]:
    """A duration such as `5m`."""
    if not isinstance(value, str):
        return [wrong_type(field, "must be a duration such as 5m")]
    return [] if _DURATION.fullmatch(value) else [invalid(field, shown(value), "must be a duration such as 5m")]


def durations(field: str, value: Json) -> list[FieldError]:
    """A list of durations such as `5m`."""
    if not isinstance(value, list):
        return [wrong_type(field, "must be an array")]
    found: list[FieldError] = []
    for index, item in enumerate(value[:MAX_LISTED]):
        found += duration(f"{field}[{index}]", item)
    return found


def each_member(check: Check) -> Check:
    """A map of values that each pass a check."""

    def of_map(field: str, value: Json) -> list[FieldError]:
        if not isinstance(value, dict):
            return [wrong_type(field, "must be an object")]
        return [error for key, item in _given(value) for error in check(f"{field}[{shown(key)}]", item)]

    return of_map


def _given(value: dict[str, Json]) -> list[tuple[str, Json]]:
    """The members of a map that are checked: the first MAX_LISTED without those that are null."""
    return [(key, value[key]) for key in list(value)[:MAX_LISTED] if value[key] is not None]


def each_element(check: Check) -> Check:
    """A list of values that each pass a check."""

    def of_list(field: str, value: Json) -> list[FieldError]:
        if not isinstance(value, list):
            return [wrong_type(field, "must be an array")]
        return [error for index, item in enumerate(value[:MAX_LISTED]) for error in check(f"{field}[{index}]", item)]

    return of_list


def members_of(checks: dict[str, Check], needed: Sequence[str] = ()) -> Check:
    """An object whose members each have their check, in any case of their names; others are stored as they are."""

    def of_object(field: str, value: Json) -> list[FieldError]:
        if not isinstance(value, dict):
            return [wrong_type(field, "must be an object")]
        found = [required(f"{field}.{name}", "must be set") for name in needed if member(value, name) in (None, "")]
        for name, check in checks.items():
            given = member(value, name)
            if given is not None:
                found += check(f"{field}.{name}", given)
        return found

    return of_object


def member(value: Json, name: str) -> Json:
    """Return a member of a JSON object, its name in any case; None where it is absent or null.

    Of several spellings the last one counts, as it does where the section is read.
    """
    if not isinstance(value, dict):
        return None
    lower = name.lower()
    given = [value[key] for key in value if key.lower() == lower and value[key] is not None]
    return given[-1] if given else None


def selector_of(value: Json) -> LabelSelector:
    """Return a label selector as the calculator reads it: names in any case, null is absent. Raises ValidationError."""
    if not isinstance(value, dict):
        return msgspec.convert(value, LabelSelector)
    spelled = _spelled(value, ("matchLabels", "matchExpressions"))
    expressions = spelled.get("matchExpressions")
    if isinstance(expressions, list):
        names = ("key", "operator", "values")
        spelled["matchExpressions"] = [_spelled(each, names) if isinstance(each, dict) else each for each in expressions]
    return msgspec.convert(spelled, LabelSelector)


def _spelled(value: Json, names: Sequence[str]) -> dict[str, Json]:
    return {name: given for name in names if (given := member(value, name)) is not None}


def bits_per_second(value: Json) -> int:
    """Return a bandwidth; 0 where there is none, or it cannot be read."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return 0
    try:
        return parse_value(value)
    except QuantityError:
        return 0


def shown(value: Json) -> str:
    """Return a value as messages show it, even an integer of a thousand digits."""
    if isinstance(value, int) and not -(2**64) < value < 2**64:
        return "a number beyond 64 bits"
    return str(value)[:100]
