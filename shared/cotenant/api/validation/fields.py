"""Field errors: what is wrong in an object, where, and what to do.

A validation is a pure function from a typed view to a list of `FieldError`. Reasons and texts are those of Kubernetes
(`k8s.io/apimachinery` field errors), so `kubectl` prints the texts that users know; the same text appears in the API's
`Status`, in events and in the command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TypeVar

import msgspec

from cotenant.model.bounds import MAX_AMOUNT, MAX_SECONDS
from cotenant.model.quantities import QuantityError, Scalar, format_amount, parse_nanos

T = TypeVar("T")


class FieldReason(StrEnum):
    """Why a field is refused; the values are the `reason` of a cause in a Status."""

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    TYPE_INVALID = "FieldValueTypeInvalid"
    DUPLICATE = "FieldValueDuplicate"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    NOT_FOUND = "FieldValueNotFound"


class FieldError(msgspec.Struct, frozen=True):
    """One refused field. `field` is a path such as `spec.containers[0].resources.requests[cpu]`."""

    field: str
    reason: FieldReason
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def _shown(value: object) -> str:
    if isinstance(value, str):
        return '"' + (value if len(value) <= 100 else value[:97] + "...") + '"'
    return str(value)


def required(field: str, detail: str = "") -> FieldError:
    """The field is missing or empty."""
    return FieldError(field, FieldReason.REQUIRED, f"Required value: {detail}" if detail else "Required value")


def invalid(field: str, value: object, detail: str) -> FieldError:
    """The field's value breaks a rule, which the detail states."""
    return FieldError(field, FieldReason.INVALID, f"Invalid value: {_shown(value)}: {detail}")


def wrong_type(field: str, detail: str) -> FieldError:
    """The field holds another JSON type than it must."""
    return FieldError(field, FieldReason.TYPE_INVALID, f"Invalid value: {detail}")


def duplicate(field: str, value: object) -> FieldError:
    """The value occurs twice where it must be unique."""
    return FieldError(field, FieldReason.DUPLICATE, f"Duplicate value: {_shown(value)}")


def not_supported(field: str, value: object, supported: Iterable[str]) -> FieldError:
    """The value is none of the supported ones."""
    allowed = ", ".join(f'"{item}"' for item in supported)
    return FieldError(field, FieldReason.NOT_SUPPORTED, f"Unsupported value: {_shown(value)}: supported values: {allowed}")


def forbidden(field: str, detail: str) -> FieldError:
    """The field must not be set, or not be changed."""
    return FieldError(field, FieldReason.FORBIDDEN, f"Forbidden: {detail}")


def not_found(field: str, value: object, detail: str = "") -> FieldError:
    """The value names something that does not exist."""
    text = f"Not found: {_shown(value)}"
    return FieldError(field, FieldReason.NOT_FOUND, f"{text}: {detail}" if detail else text)


_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name', or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName', or 'my.name', or '123-abc')"
)
_LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue', or 'my_value', or '12345')"
)


def dns_label(field: str, name: str) -> list[FieldError]:
    """RFC 1123 label, at most 63 characters: container and namespace names."""
    if len(name) > 63:
        return [invalid(field, name, "must be no more than 63 characters")]
    return [] if _LABEL.fullmatch(name) else [invalid(field, name, _LABEL_RULE)]


def dns_subdomain(field: str, name: str) -> list[FieldError]:
    """RFC 1123 subdomain, at most 253 characters: names of pods, nodes and most other objects."""
    if len(name) > 253:
        return [invalid(field, name, "must be no more than 253 characters")]
    return [] if _SUBDOMAIN.fullmatch(name) else [invalid(field, name, _SUBDOMAIN_RULE)]


def qualified_name(field: str, name: str) -> list[FieldError]:
    """`[prefix/]name` as of labels, annotations and resources: a DNS subdomain of 253, and 63 characters."""
    prefix, slash, rest = name.rpartition("/")
    if slash and not prefix:
        return [invalid(field, name, "prefix part must be non-empty")]
    found: list[FieldError] = []
    if prefix and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        found.append(invalid(field, name, f"prefix part {_SUBDOMAIN_RULE}"))
    if not rest:
        found.append(invalid(field, name, "name part must be non-empty"))
    elif len(rest) > 63:
        found.append(invalid(field, name, "name part must be no more than 63 characters"))
    elif not _QUALIFIED.fullmatch(rest):
        found.append(invalid(field, name, _QUALIFIED_RULE))
    return found


def label_value(field: str, value: str) -> list[FieldError]:
    """A label's value: at most 63 characters of the qualified name's alphabet, or empty."""
    if len(value) > 63:
        return [invalid(field, value, "must be no more than 63 characters")]
    return [] if not value or _QUALIFIED.fullmatch(value) else [invalid(field, value, _LABEL_VALUE_RULE)]


def labels(field: str, mapping: dict[str, str]) -> list[FieldError]:
    """Keys and values of a label map."""
    found: list[FieldError] = []
    for key, value in mapping.items():
        found += qualified_name(field, key)
        found += label_value(field, value)
    return found


def quantity(field: str, text: Scalar, *, resource: str = "", whole: bool = False) -> list[FieldError]:
    """A non-negative quantity; of a `resource` that is named, within the bounds of amounts; `whole` demands an integer count
    (extended resources)."""
    try:
        nanos = parse_nanos(text)
    except QuantityError as error:
        return [invalid(field, text, str(error))]
    if nanos < 0:
        return [invalid(field, text, "must be greater than or equal to 0")]
    if resource and nanos > MAX_AMOUNT * (10**6 if resource == "cpu" else 10**9):
        return [invalid(field, text, f"must be at most {format_amount(resource, MAX_AMOUNT)}")]
    if whole and nanos % 10**9:
        return [invalid(field, text, "must be an integer")]
    return []


def grace_period(field: str, seconds: int) -> list[FieldError]:
    """A grace period in seconds, within the bounds of durations."""
    if seconds < 0:
        return [invalid(field, seconds, "must be non-negative")]
    return [] if seconds <= MAX_SECONDS else [invalid(field, seconds, f"must be at most {MAX_SECONDS}")]


def validate_all(view: T, checks: Iterable[Callable[[T], list[FieldError]]]) -> list[FieldError]:
    """Return the errors of every check in order: all violations, not only the first."""
    return [error for check in checks for error in check(view)]
