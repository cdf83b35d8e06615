"""The event that cores fold and decide, and its form on the wire.

On the wire an event is a CloudEvents 1.0 JSON object (structured mode) with the extensions `causes` (list of
`STREAM:sequence`), `actor`, `commit` (the record of a commit that is this one event) and W3C `traceparent`. Its `type` is the
payload's versioned name (`cotenant.placement.v1`). Unknown fields are ignored; an unknown type is skipped and counted;
anything else that does not decode is an EventError, which the reader turns into a dead letter. So is a message with a time
outside of the bounds, and one whose payload names another entity than its subject (`events.checks`).

Over 300 lines: what encodes and what decodes a message are one format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

import msgspec

from cotenant.events.checks import YEARS, Check, check_of
from cotenant.model.bounds import EARLIEST_YEAR, LATEST_YEAR
from cotenant.model.trace_context import traceparent_of

_REGISTRY: dict[str, type[Payload]] = {}
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {}


class Payload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of every payload. A subclass names its wire type: `TYPE = "cotenant.placement.v1"`; that registers it.

    SUBJECT names the fields in the subject's tokens: `node.{node}.run.{namespace}.{name}`. Empty: not checked.
    Payloads, their parts and events hold plain data without reference cycles: the garbage collector does not track them.
    """

    TYPE: ClassVar[str] = ""
    SUBJECT: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if own := cls.__dict__.get("TYPE"):
            _REGISTRY[own] = cls


def null_document() -> msgspec.Raw:
    """Return the JSON null that stands for an absent document."""
    return msgspec.Raw(b"null")


def empty_document() -> msgspec.Raw:
    """Return the empty JSON object."""
    return msgspec.Raw(b"{}")


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of the structs that payloads are made of."""


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One fact. A core builds subject, data and causes (and tombstone, replaces, ttl_seconds); the shell adds the rest when it
    is stored.

    `sequence` is the position on `stream`, 0 until stored. `time` is the decision's `now`, UTC.
    `tombstone`: the entity has ended; the subject then holds nothing else, and nothing after `ttl_seconds`.
    `replaces` removes the subject's earlier messages too, of an entity that goes on (`cotenant.log.contract.replaces`).
    `ttl_seconds` 0: the stream's own retention. `traceparent` is what came over the wire, or continues the trace of the
    first cause (`model.trace_context`); where it is empty, the one that follows from causes and id is encoded.
    """

    subject: str
    data: Payload
    causes: tuple[str, ...] = ()
    time: datetime | None = None
    id: str = ""
    source: str = ""
    actor: str = ""
    traceparent: str = ""
    stream: str = "LOG"
    sequence: int = 0
    tombstone: bool = False
    replaces: bool = False
    ttl_seconds: int = 0
    follows: int = 0
    """If it removes earlier messages of its subject: the sequence that it was expected to follow, if known."""
    commit: Payload | None = None
    """The record of a commit that is this one event (`events.commits.Commit`); None: its record is a message of its own, or its
    writer does not decide."""

    @property
    def ref(self) -> str:
        """How other events name this one as their cause: `LOG:123`."""
        return f"{self.stream}:{self.sequence}"


class EventError(ValueError):
    """A message that is not an event; the text says what is wrong with it."""


class UnknownEventTypeError(EventError):
    """A well-formed CloudEvent of a type that this version does not know."""


_ABSENT = msgspec.Raw(b"")


class _Wire(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    specversion: str
    id: str
    source: str
    type: str
    time: datetime | None = None
    datacontenttype: str = ""
    traceparent: str = ""
    causes: tuple[str, ...] = ()
    actor: str = ""
    commit: msgspec.Raw = _ABSENT
    data: msgspec.Raw = _ABSENT


class _WireOut(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    specversion: str
    id: str
    source: str
    type: str
    time: datetime | None
    datacontenttype: str
    traceparent: str
    causes: tuple[str, ...] = ()
    actor: str = ""
    commit: Payload | None = None
    data: Payload | None = None


_WIRE_FIELDS: tuple[tuple[str, Any, Any], ...] = (
    ("id", str, ""),
    ("source", str, ""),
    ("time", datetime | None, None),
    ("traceparent", str, ""),
    ("causes", tuple[str, ...], ()),
    ("actor", str, ""),
    ("commit", msgspec.Raw, _ABSENT),
)
_WIRE_DECODER = msgspec.json.Decoder(_Wire)
_COMMIT = "cotenant.commit.v1"
"""The type of what an event's `commit` holds."""
_TYPE_MARK = b'"type":"'
_MARK_LENGTH = len(_TYPE_MARK)
_ENCODER = msgspec.json.Encoder()


class PayloadView(Payload, frozen=True, kw_only=True):
    """Base of a reader's partial decoding of a payload: the parts that it reads, others left out or as raw JSON.
    A subclass names the payload: `OF = Placement`. It is never encoded."""

    OF: ClassVar[type[Payload] | None] = None

    @classmethod
    def decoder(cls, message_of: Callable[[type[Payload]], type[msgspec.Struct]]) -> Callable[[bytes], Any]:
        """Return what decodes a whole message with this data. `message_of`: the struct of a message with given data."""
        return msgspec.json.Decoder(message_of(cls)).decode


class MessageDecoders:
    """Decoders of whole messages, found by the type's bytes: one pass where the type can be seen before decoding."""

    def __init__(self, views: Iterable[type[PayloadView]] = ()) -> None:
        self._views = {view.OF.TYPE: view for view in views if view.OF is not None}
        self._known: dict[bytes, Callable[[bytes], Any]] = {}

    def of(self, word: bytes) -> Callable[[bytes], Any] | None:
        """Return what decodes messages of a type; None for an unknown one."""
        known = self._known.get(word)
        if known is not None:
            return known
        name = word.decode(errors="replace")
        cls = _REGISTRY.get(name)
        if cls is None:
            return None

        def message_of(data: type[Payload]) -> type[msgspec.Struct]:
            # The decoder refuses a message whose type differs from the one seen in its text.
            fields: list[Any] = [("specversion", Literal["1.0"]), ("data", data), *_WIRE_FIELDS]
            return msgspec.defstruct(f"Wire{data.__name__}", fields, kw_only=True, tag_field="type", tag=name)

        view = self._views.get(name)
        decode = view.decoder(message_of) if view is not None else msgspec.json.Decoder(message_of(cls)).decode
        return self._known.setdefault(word, decode)


_CHECKS: dict[type[Payload], Check] = {}

WHOLE = MessageDecoders()
"""Every payload by its wire type."""


def payload_types() -> dict[str, type[Payload]]:
    """Return every registered payload by wire type, sorted by name."""
    return dict(sorted(_REGISTRY.items()))


def encode_event(event: Event) -> bytes:
    """Return the CloudEvents JSON of an event whose id, source and time are set."""
    return _ENCODER.encode(
        _WireOut(
            specversion="1.0",
            id=event.id,
            source=event.source,
            type=event.data.TYPE,
            time=event.time,
            datacontenttype="application/json",
            traceparent=event.traceparent or traceparent_of(event.causes, event.id),
            causes=event.causes,
            actor=event.actor,
            commit=event.commit,
            data=event.data,
        )
    )


def encode_payload(payload: Payload) -> bytes:
    """Return the JSON of a payload alone; equal payloads give equal bytes."""
    return _ENCODER.encode(payload)


def _decode_in_one(data: bytes, decoders: MessageDecoders) -> Any:
    """Return the message with its payload, decoded with the type seen in the text; None where the type is elsewhere, or
    the message is invalid."""
    start = data.find(_TYPE_MARK, 0, 512) + _MARK_LENGTH
    if start < _MARK_LENGTH:
        return None
    decode = decoders.of(data[start : data.find(b'"', start, start + 128)])
    if decode is None:
        return None
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _decode_in_two(data: bytes) -> tuple[_Wire, Payload]:
    """Decode the envelope, then the payload. Raises EventError with what is wrong."""
    try:
        wire = _WIRE_DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EventError(f"not a CloudEvent in JSON: {error}") from error
    if wire.specversion != "1.0":
        raise EventError(f"CloudEvents specversion {wire.specversion!r} is not 1.0")
    return wire, _decode_payload(wire.data, wire.type)


def _decode_payload(data: msgspec.Raw, name: str) -> Payload:
    """Decode a payload of a type. Raises EventError with what is wrong."""
    cls = _REGISTRY.get(name)
    if cls is None:
        raise UnknownEventTypeError(f"event type {name!r} is unknown to this version")
    decoder = _DECODERS.get(name)
    if decoder is None:
        decoder = _DECODERS[name] = msgspec.json.Decoder(cls)
    try:
        payload: Payload = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EventError(f"data of {name} does not fit: {error}") from error
    return payload


def _check_of(cls: type[Payload]) -> Check:
    subject = cls.SUBJECT
    if issubclass(cls, PayloadView) and cls.OF is not None:
        subject = cls.OF.SUBJECT
    return check_of(cls, subject)


def decode_event(
    data: bytes,
    *,
    subject: str,
    stream: str,
    sequence: int,
    tombstone: bool = False,
    replaces: bool = False,
    ttl_seconds: int = 0,
    follows: int = 0,
    decoders: MessageDecoders = WHOLE,
) -> Event:
    """Return the event of a stored message.

    Raises UnknownEventTypeError for a type that is not registered and EventError for everything else that is wrong: not
    JSON, not a CloudEvent, a payload whose fields have wrong types, a time outside of the bounds, another entity than the
    subject's.
    """
    wire = _decode_in_one(data, decoders)
    wire, payload = (wire, wire.data) if wire is not None else _decode_in_two(data)
    time = wire.time
    if time is not None:
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        if not EARLIEST_YEAR <= time.year <= LATEST_YEAR:
            raise EventError(f"time {time.isoformat()} is not {YEARS}")
    cls = type(payload)
    check = _CHECKS.get(cls)
    if check is None:
        check = _CHECKS[cls] = _check_of(cls)
    wrong = check(payload, subject)
    if wrong:
        raise EventError(f"data of {(getattr(cls, 'OF', None) or cls).TYPE} does not fit: {wrong}")
    return Event(
        subject=subject,
        data=payload,
        causes=wire.causes,
        time=time,
        id=wire.id,
        source=wire.source,
        actor=wire.actor,
        traceparent=wire.traceparent,
        stream=stream,
        sequence=sequence,
        tombstone=tombstone,
        replaces=replaces,
        ttl_seconds=ttl_seconds,
        follows=follows,
        commit=_decode_payload(wire.commit, _COMMIT) if wire.commit else None,
    )
