"""Events survive the wire, and what is not one is told apart."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import pytest

from cotenant.events import Event, NodeResources, ObjectStored, Placement, decode_event, encode_event, payload_types
from cotenant.events.envelope import EventError, MessageDecoders, PayloadView, UnknownEventTypeError
from cotenant.events.placements import Figure
from cotenant.log.nats.decoding import event_of
from cotenant.model.trace_context import traceparent_of
from cotenant.reference import CHANNELS, asyncapi, events_page

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def test_an_event_is_the_same_after_the_wire() -> None:
    event = Event(
        subject="node.a.placement.d.x",
        data=Placement(node="a", namespace="d", name="x", uid="u", pod=msgspec.Raw(b'{"n":1.10,"big":12345678901234567890}')),
        causes=("LOG:1", "LOG:2"),
        time=NOW,
        id="cell/scheduler/0/12/1",
        source="/cell/scheduler/0",
        traceparent=traceparent_of(("LOG:1",), "cell/scheduler/0/12/1"),
    )
    wire = encode_event(event)
    back = decode_event(wire, subject=event.subject, stream="LOG", sequence=7)
    assert back == msgspec.structs.replace(event, sequence=7)
    assert back.ref == "LOG:7"
    document = json.loads(wire)
    assert document["specversion"] == "1.0"
    assert document["type"] == "cotenant.placement.v1"
    assert b'{"n":1.10,"big":12345678901234567890}' in wire, "number literals survive"


def test_objects_are_kept_byte_for_byte() -> None:
    raw = b'{"kind":"Pod", "x":  1.500, "unknown":{"\\u00e9":[1e2]}}'
    wire = encode_event(Event(subject="objects.core.pods.d.x", data=ObjectStored(object=msgspec.Raw(raw)), id="i", source="/s"))
    back = decode_event(wire, subject="objects.core.pods.d.x", stream="LOG", sequence=1)
    assert isinstance(back.data, ObjectStored)
    assert bytes(back.data.object) == raw


class NameAndFigures(PayloadView, frozen=True, kw_only=True):
    OF = Placement
    name: str
    figures: msgspec.Raw = msgspec.Raw(b"")


@pytest.mark.parametrize("type_field", [b'"type":"%s"', b'"type" : "%s"'])
def test_a_view_is_decoded_in_the_place_of_its_payload_where_the_type_is_seen(type_field: bytes) -> None:
    wire = (
        b'{"specversion":"1.0","id":"i","source":"/s",' + type_field % b"cotenant.placement.v1" + b',"causes":["LOG:1"],"data":'
        b'{"node":"n","namespace":"d","name":"a","uid":"u","figures":[{"name":"score","value":7}]}}'
    )
    event = decode_event(wire, subject="x", stream="LOG", sequence=1, decoders=MessageDecoders([NameAndFigures]))
    assert (event.id, event.source, event.causes) == ("i", "/s", ("LOG:1",))
    if isinstance(event.data, NameAndFigures):
        assert (event.data.name, bytes(event.data.figures)) == ("a", b'[{"name":"score","value":7}]')
        assert b" " not in type_field
    else:
        assert isinstance(event.data, Placement)
        assert event.data.figures == (Figure(name="score", value=7),)


def test_the_first_type_seen_in_the_text_is_not_believed() -> None:
    wire = (
        b'{"data":{"type":"cotenant.placement.v1","node":"a"},'
        b'"specversion":"1.0","id":"i","source":"/s","type":"cotenant.noderesources.v1"}'
    )
    event = decode_event(wire, subject="x", stream="LOG", sequence=1)
    assert event.data.TYPE == "cotenant.noderesources.v1"


def test_unknown_fields_are_ignored_and_unknown_types_told_apart() -> None:
    wire = b'{"specversion":"1.0","id":"i","source":"/s","type":"%s","future":1,"data":{"node":"a","future":[]}}'
    event = decode_event(wire % b"cotenant.noderesources.v1", subject="x", stream="LOG", sequence=1)
    assert event.data.TYPE == "cotenant.noderesources.v1"
    with pytest.raises(UnknownEventTypeError, match=r"com\.example"):
        decode_event(wire % b"com.example", subject="x", stream="LOG", sequence=1)


@pytest.mark.parametrize(
    "wire",
    [
        b"",
        b"null",
        b"[]",
        b"not json",
        b'{"specversion":"0.3","id":"i","source":"/s","type":"cotenant.noderesources.v1","data":{"node":"a"}}',
        b'{"specversion":"1.0","id":"i","source":"/s","type":"cotenant.noderesources.v1","data":{"node":1}}',
        b'{"specversion":"1.0","id":"i","source":"/s","type":"cotenant.noderesources.v1"}',
        b"\xff\xff",
        b"[" * 50_000,
    ],
)
def test_what_is_not_an_event_is_an_event_error(wire: bytes) -> None:
    with pytest.raises(EventError):
        decode_event(wire, subject="x", stream="LOG", sequence=1)


def test_the_reference_names_every_type() -> None:
    types = payload_types()
    described = {wire for _, _, wire, _ in CHANNELS}
    assert set(types) == described, "a type without a channel (or the reverse) in cotenant.reference"
    page = events_page()
    assert all(f"## {wire}" in page for wire in types)
    assert set(asyncapi()["components"]["messages"]) == set(types)


@pytest.mark.parametrize(
    "time",
    [
        "2026-01-01T00:00:00",
        "0001-01-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59-14:00",
        "2262-01-01T00:00:00Z",
    ],
)
@pytest.mark.parametrize("where", ['"startedAt":"%s"', '"containers":[{"name":"a","finishedAt":"%s"}]'])
def test_a_time_that_no_duration_can_be_added_to_is_refused(time: str, where: str) -> None:
    wire = (
        '{"specversion":"1.0","id":"i","source":"/s","type":"cotenant.run.v1","data":{"node":"n","namespace":"d","name":"x",'
        '"uid":"u","phase":"running",' + where % time + "}}"
    )
    with pytest.raises(EventError, match=r"data of cotenant.run.v1 does not fit: (startedAt|finishedAt) "):
        decode_event(wire.encode(), subject="node.n.run.d.x", stream="LOG", sequence=1)


def test_the_envelopes_time_is_bounded_too() -> None:
    wire = (
        b'{"specversion":"1.0","id":"i","source":"/s","type":"cotenant.service.started.v1","time":"9999-12-31T23:59:59Z",'
        b'"data":{"service":"s"}}'
    )
    with pytest.raises(EventError, match="is not within the years 1970 to 2261"):
        decode_event(wire, subject="services.s.0", stream="LOG", sequence=1)


def test_a_payload_about_another_entity_than_its_subject_is_refused() -> None:
    wire = encode_event(Event(subject="", data=Placement(node="n", namespace="d", name="a.b", uid="u"), id="i", source="/s"))
    event = decode_event(wire, subject="node.n.placement.d.a%2Eb", stream="LOG", sequence=1)
    assert isinstance(event.data, Placement)
    with pytest.raises(EventError, match=r"cotenant.placement.v1 does not fit: name 'a.b' is not that of its subject"):
        decode_event(wire, subject="node.n.placement.d.other", stream="LOG", sequence=1)
    with pytest.raises(EventError, match="node 'n' is not"):
        decode_event(wire, subject="node.m.placement.d.a%2Eb", stream="LOG", sequence=1, decoders=MessageDecoders([WithNode]))


class WithNode(PayloadView, frozen=True, kw_only=True):
    OF = Placement
    node: str


@pytest.mark.parametrize("text", ["²s", "s", "-1s", "9" * 5000 + "s", "1.5s"])
def test_a_ttl_that_is_no_number_counts_as_none(text: str) -> None:
    wire = encode_event(Event(subject="x", data=NodeResources(node="n"), id="i", source="/s"))
    assert event_of("LOG", "node.n.resources", 1, wire, {"Nats-TTL": text, "Nats-Stream-Source": "LOG ²"}).ttl_seconds == 0
