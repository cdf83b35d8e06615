"""Annotations of a Reservation: which resources are restricted, another size, the part that no pod may use.

In: annotations. Out: parsed values; an OptionsError that names the annotation where one cannot be read. Source: Koordinator's
reservation extension.

    scheduling.koordinator.sh/reservation-restricted-options     {"resources": ["cpu"]}
    scheduling.koordinator.sh/reservation-resize-allocatable     {"resources": {"cpu": "8"}}
    node.koordinator.sh/reservation                              {"resources": {"cpu": "1"}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cotenant.domain.reservation import parse_reservation
from cotenant.domain.reservations.names import ANNOTATION_RESIZE_ALLOCATABLE, ANNOTATION_RESTRICTED_OPTIONS
from cotenant.model.bounds import saturated
from cotenant.model.names import ANNOTATION_NODE_RESERVATION
from cotenant.model.quantities import QuantityError, Scalar, resource_amount


class OptionsError(ValueError):
    """An annotation of a reservation cannot be read; the text says which and why."""


class _Restricted(msgspec.Struct, frozen=True):
    resources: list[str] = []


class _Resized(msgspec.Struct, frozen=True):
    resources: dict[str, Scalar] = {}


_RESTRICTED = msgspec.json.Decoder(_Restricted)
_RESIZED = msgspec.json.Decoder(_Resized)


def restricted_options(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the resources that are restricted; empty: all. Raises OptionsError."""
    text = annotations.get(ANNOTATION_RESTRICTED_OPTIONS)
    if not text:
        return ()
    try:
        return tuple(_RESTRICTED.decode(text).resources)
    except msgspec.DecodeError as error:
        raise OptionsError(f"annotation {ANNOTATION_RESTRICTED_OPTIONS}: {error}") from error


def restricted_resources(allocatable: Iterable[str], options: Iterable[str]) -> tuple[str, ...]:
    """Return the names that a Restricted reservation holds: those of the options that it has, all where none are given."""
    held = tuple(allocatable)
    wanted = tuple(options)
    return tuple(name for name in wanted if name in held) if wanted else held


def resized(annotations: Mapping[str, str]) -> dict[str, int]:
    """Return the amounts that replace those of the template when the reservation is bound. Raises OptionsError."""
    text = annotations.get(ANNOTATION_RESIZE_ALLOCATABLE)
    if not text:
        return {}
    try:
        resources = _RESIZED.decode(text).resources
        return {name: max(saturated(resource_amount(name, quantity)), 0) for name, quantity in resources.items()}
    except (msgspec.DecodeError, QuantityError) as error:
        raise OptionsError(f"annotation {ANNOTATION_RESIZE_ALLOCATABLE}: {error}") from error


def reserved_inside(annotations: Mapping[str, str]) -> dict[str, int]:
    """Return the part of the reservation that no pod may be given. Raises OptionsError."""
    found = parse_reservation(annotations)
    if found.error:
        raise OptionsError(found.error)
    return {name: saturated(amount) for name, amount in found.resources.items()}


def option_errors(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (annotation, what is wrong) of each annotation that cannot be read."""
    found: list[tuple[str, str]] = []
    for name, read in (
        (ANNOTATION_RESTRICTED_OPTIONS, restricted_options),
        (ANNOTATION_RESIZE_ALLOCATABLE, resized),
        (ANNOTATION_NODE_RESERVATION, reserved_inside),
    ):
        try:
            read(annotations)
        except OptionsError as error:
            found.append((name, str(error)))
    return found
