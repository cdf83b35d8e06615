"""Amplified nodes: allocatable cpu and memory that are shown larger than the machine is.

In: a node's annotations and amounts, the ratios by resource. Out: amplified or raw amounts, annotation texts.

    resource-amplification-ratio   {"cpu":1.22}: ratios by resource, keys sorted, two decimals
    raw-allocatable                cpu and memory as the machine offers them

    amplified = trunc(double(milli(raw)) * ratio) in thousandths, for cpu and memory whose ratio is above 1; never the capacity

A client may write an allocatable back as displayed: an amount equal to the displayed one is the amplified one, any
other is a new raw amount. Each resource is compared separately, so that a writer of memory alone does not make amplified cpu
count as raw (Koordinator compares both together). Source: Koordinator's node status webhook and `apis/extension`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from cotenant.model.bounds import saturated
from cotenant.model.names import ANNOTATION_AMPLIFICATION_RATIO, ANNOTATION_RAW_ALLOCATABLE, CPU, MEMORY
from cotenant.model.quantities import QuantityError, Scalar, format_amount, multiply_milli, parse_milli, resource_amount

AMPLIFIED = (CPU, MEMORY)
"""The resources that amplification changes; ratios of others are only shown."""
MAX_RATIO = 1_000_000.0
"""A larger ratio is an error."""

_RATIOS = msgspec.json.Decoder(dict[str, float])
_QUANTITIES = msgspec.json.Decoder(dict[str, Scalar])


class AmplificationError(ValueError):
    """An annotation cannot be read; the message names it."""


def parse_ratios(annotations: Mapping[str, str]) -> dict[str, float]:
    """Return the amplification ratios that the annotation names; none without it. Raises AmplificationError."""
    text = annotations.get(ANNOTATION_AMPLIFICATION_RATIO)
    if not text:
        return {}
    try:
        ratios = _RATIOS.decode(text)
    except msgspec.DecodeError as error:
        raise AmplificationError(f"annotation {ANNOTATION_AMPLIFICATION_RATIO}: {error}") from error
    for resource, ratio in ratios.items():
        if not (math.isfinite(ratio) and abs(ratio) <= MAX_RATIO):
            raise AmplificationError(f"annotation {ANNOTATION_AMPLIFICATION_RATIO}: {resource} is {ratio}: no ratio")
    return ratios


def parse_raw(annotations: Mapping[str, str]) -> dict[str, Scalar] | None:
    """Return the raw amounts that the annotation names; None without it. Raises AmplificationError."""
    text = annotations.get(ANNOTATION_RAW_ALLOCATABLE)
    if not text:
        return None
    try:
        raw = _QUANTITIES.decode(text)
        for resource, quantity in raw.items():
            resource_amount(resource, quantity)
    except (msgspec.DecodeError, QuantityError) as error:
        raise AmplificationError(f"annotation {ANNOTATION_RAW_ALLOCATABLE}: {error}") from error
    return raw


def format_ratios(ratios: Mapping[str, float]) -> str:
    """Return the ratio annotation's text; empty without ratios."""
    inner = ",".join(f"{msgspec.json.encode(name).decode()}:{ratio:.2f}" for name, ratio in sorted(ratios.items()))
    return f"{{{inner}}}" if inner else ""


def format_raw(amounts: Mapping[str, int]) -> str:
    """Return the raw-allocatable annotation's text."""
    shown = {name: format_amount(name, amounts[name]) for name in AMPLIFIED if name in amounts}
    return msgspec.json.encode(shown).decode()


def amplified_milli(milli: int, ratio: float) -> int:
    """Return an amount in thousandths, amplified; a ratio of 1 or less changes nothing."""
    return multiply_milli(milli, ratio) if ratio > 1.0 else milli


def amplified(amounts: Mapping[str, int], ratios: Mapping[str, float]) -> dict[str, int]:
    """Return the amplified cpu (milli-CPUs) and memory (bytes, rounded up) of the amounts: only these two, and
    only where a ratio above 1 changes them."""
    found: dict[str, int] = {}
    for name in AMPLIFIED:
        ratio = ratios.get(name, 0.0)
        if ratio > 1.0 and name in amounts:
            unit = 1 if name == CPU else 1000
            found[name] = saturated(-(-amplified_milli(amounts[name] * unit, ratio) // unit))
    return found


def raw_changed(old: Mapping[str, Scalar] | None, new: Mapping[str, Scalar] | None) -> bool:
    """Whether cpu or memory of the second allocatable differ from the first; not where one of them is not there.
    Raises QuantityError."""
    return old is not None and new is not None and any(_differs(old, new, name) for name in AMPLIFIED)


def _differs(old: Mapping[str, Scalar], new: Mapping[str, Scalar], name: str) -> bool:
    before, after = old.get(name), new.get(name)
    if before is None or after is None:
        return before is not after
    return parse_milli(before) != parse_milli(after)


def written_raw(
    annotations: Mapping[str, str], old: Mapping[str, Scalar] | None, new: Mapping[str, Scalar]
) -> dict[str, Scalar]:
    """Return the raw cpu and memory of an allocatable that is written over the one shown (`old`; None: nothing was shown).

    `annotations`: of the object as shown. Raises AmplificationError, QuantityError.
    """
    known = parse_raw(annotations) or {}
    raw: dict[str, Scalar] = {}
    for name in AMPLIFIED:
        if name in known and (old is None or not _differs(old, new, name)):
            raw[name] = known[name]
        elif name in new:
            raw[name] = new[name]
    return raw
