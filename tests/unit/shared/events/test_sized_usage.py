"""A usage message is the same whether or not it is decoded by the number of its samples."""

from datetime import UTC, datetime

import msgspec
import pytest

from cotenant.events.envelope import (
    Event,
    EventError,
    MessageDecoders,
    decode_event,
    encode_event,
    encode_payload,
    payload_types,
)
from cotenant.events.node.sized_usage import MOST_SAMPLES, UsageView
from cotenant.events.node.usage import HostApplicationUsage, PodUsage, Pressure, Series, UsageSample
from cotenant.log.contract import USAGE

BY_SIZE = MessageDecoders([UsageView])


def series(size: int, factor: int = 1) -> Series:
    return Series(cpu_milli=tuple(range(factor, factor + size)), memory_bytes=tuple(range(2**40, 2**40 + size)))


def message(size: int, pods: tuple[int, ...]) -> UsageSample:
    """One of `size` samples; the pods have as many as given."""
    return UsageSample(
        node="n1",
        boot="b",
        counter=7,
        offsets_ms=tuple(range(-1000 * (size - 1), 1, 1000)),
        node_usage=msgspec.structs.replace(series(size), page_cache_bytes=(5,) * size),
        pods=tuple(
            PodUsage(namespace="d", name=f"p{place}", uid=f"u{place}", series=series(own, place), pressure=Pressure(cpu_some=3))
            for place, own in enumerate(pods)
        ),
        host_applications=(HostApplicationUsage(name="yarn", series=series(size)),),
    )


def wire(sample: UsageSample) -> bytes:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return encode_event(Event(subject="usage.n1", data=sample, time=at, id="i", source="/s", stream=USAGE))


def decoded(text: bytes) -> UsageSample:
    data = decode_event(text, subject="usage.n1", stream=USAGE, sequence=1, decoders=BY_SIZE).data
    assert isinstance(data, UsageSample)
    return data


@pytest.mark.parametrize("size", [1, 2, 15, MOST_SAMPLES])
def test_a_message_whose_series_are_of_one_length_has_the_values_of_its_text(size: int) -> None:
    sample = message(size, (size, size))
    found = decoded(wire(sample))
    assert type(found) is not UsageSample, "it was decoded by its size"
    assert msgspec.json.decode(encode_payload(found), type=UsageSample) == sample
    assert found.system_usage == Series(), "an absent series is the default one"
    assert found.pods[0].series.cold_bytes == ()
    assert found.pods[0].pressure == Pressure(cpu_some=3)


def test_what_is_not_said_is_the_same_object_as_in_a_plain_message() -> None:
    sample = UsageSample(node="n1", offsets_ms=(0,), pods=(PodUsage(namespace="d", name="p", uid="u", series=series(1)),))
    assert decoded(wire(sample)).pods[0].pressure is sample.pods[0].pressure


@pytest.mark.parametrize(
    "sample",
    [
        message(15, (15, 3)),
        message(15, (15, 0)),
        message(3, (4,)),
        message(MOST_SAMPLES + 1, (MOST_SAMPLES + 1,)),
        UsageSample(node="n1"),
        UsageSample(node='"offsetsMs":[1,2', offsets_ms=(0,), node_usage=series(1)),
    ],
)
def test_another_message_is_decoded_as_it_is(sample: UsageSample) -> None:
    found = decoded(wire(sample))
    assert encode_payload(found) == encode_payload(sample)


def test_a_message_of_changing_size_is_told_by_its_own_text() -> None:
    for size in (15, 14, 15, 16):
        assert len(decoded(wire(message(size, (size,)))).node_usage.cpu_milli) == size


@pytest.mark.parametrize("wrong", [b"1.5", b'"1"', b"null", b"true", b"[1]", b"1e3"])
def test_a_value_that_is_no_integer_is_refused_as_in_a_plain_message(wrong: bytes) -> None:
    text = wire(message(2, (2,)))
    damaged = text.replace(b'"cpuMilli":[1,2]', b'"cpuMilli":[1,' + wrong + b"]", 1)
    assert damaged != text
    said = []
    for decoders in (BY_SIZE, MessageDecoders()):
        with pytest.raises(EventError) as raised:
            decode_event(damaged, subject="usage.n1", stream=USAGE, sequence=1, decoders=decoders)
        said.append(str(raised.value))
    assert said[0] == said[1]


def test_text_that_ends_within_the_times_is_no_event() -> None:
    text = wire(message(2, (2,)))
    with pytest.raises(EventError):
        decode_event(text[: text.find(b"offsetsMs") + 14], subject="usage.n1", stream=USAGE, sequence=1, decoders=BY_SIZE)


def test_other_readers_go_on_with_the_plain_message() -> None:
    decoded(wire(message(15, (15,))))
    assert payload_types()[UsageSample.TYPE] is UsageSample
    plain = decode_event(wire(message(15, (15,))), subject="usage.n1", stream=USAGE, sequence=1).data
    assert type(plain) is UsageSample
