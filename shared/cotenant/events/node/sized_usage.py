"""Decoding of usage messages by how many samples they have.

In: the text of a message. Out: the `UsageSample` that it is, of a subclass whose series are tuples of one length. msgspec
decodes a tuple of any length through a list, which grows while it is filled; one of a known length is allocated once.

The number of samples is read from the text of `offsetsMs`. A message with a series of another length, as that of a pod that has
just started, is decoded as a plain `UsageSample`.

Bound: one decoder for each number of samples up to MOST_SAMPLES.
"""

from collections.abc import Callable
from types import GenericAlias
from typing import Any, TypeVar, cast

import msgspec

from cotenant.events.envelope import Payload, PayloadView
from cotenant.events.node.usage import HostApplicationUsage, PodUsage, Series, UsageSample
from cotenant.model.bounds import Int64

MOST_SAMPLES = 64
_OFFSETS = b'"offsetsMs":['

_Part = TypeVar("_Part", bound=msgspec.Struct)


class UsageView(PayloadView, frozen=True, kw_only=True):
    """All of a usage message, decoded by the number of its samples."""

    OF = UsageSample

    @classmethod
    def decoder(cls, message_of: Callable[[type[Payload]], type[msgspec.Struct]]) -> Callable[[bytes], Any]:
        """Return what decodes a message by the number of its samples."""
        whole = msgspec.json.Decoder(message_of(UsageSample)).decode
        by_size: dict[int, Callable[[bytes], Any]] = {}

        def decode(text: bytes) -> Any:
            start = text.find(_OFFSETS)
            size = 1 + text.count(b",", start, text.find(b"]", start))
            if start < 0 or size > MOST_SAMPLES:
                return whole(text)
            known = by_size.get(size)
            if known is None:
                known = by_size[size] = msgspec.json.Decoder(message_of(sized(size))).decode
            try:
                return known(text)
            except msgspec.ValidationError:
                return whole(text)

        return decode


def sized(size: int) -> type[UsageSample]:
    """Return the class of messages whose series all have `size` samples, or are absent."""
    values, times = GenericAlias(tuple, (int,) * size), GenericAlias(tuple, (Int64,) * size)
    series = _narrowed(Series, cpu_milli=values, memory_bytes=values, page_cache_bytes=values, cold_bytes=values)
    pods = GenericAlias(tuple, (_narrowed(PodUsage, series=series), ...))
    hosts = GenericAlias(tuple, (_narrowed(HostApplicationUsage, series=series), ...))
    return _narrowed(
        UsageSample, offsets_ms=times, node_usage=series, system_usage=series, pods=pods, host_applications=hosts
    )


def _narrowed(base: type[_Part], **types: Any) -> type[_Part]:
    """Return a subclass with other types of these fields, which keep their defaults."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(base)}
    narrowed = msgspec.defstruct(
        base.__name__,
        [(name, type_, defaults[name]) for name, type_ in types.items()],
        bases=(base,),
        module=base.__module__,
        frozen=True,
        kw_only=True,
        rename="camel",
        omit_defaults=True,
        gc=False,
    )
    return cast(type[_Part], narrowed)
