"""The streams' and consumers' API of a JetStream server, as far as cotenant uses it: requests and answers as structs.

In: a connection. Out: streams and consumers created, changed, removed; single messages; a stream's end. A refusal is a BusError
where the caller cannot continue without the answer. No answer within ANSWER_SECONDS is one of API_ERRORS. A cluster that elects
a leader drops requests, or answers that it is unavailable (`is_passing`): neither is an answer to the request. What may be
repeated is sent again every AGAIN_SECONDS, so that the answer comes soon after there is a leader.

Over 300 lines: half of it are the structs of answers.
"""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import nats

from cotenant.log.nats.frames import parse_headers
from cotenant.log.nats.wire import BusClient

ANSWER_SECONDS = 5.0
AGAIN_SECONDS = 0.5
"""After how long a request that may be repeated is sent again, as long as it has no answer."""
CATCH_UP_SECONDS = 10.0
CATCH_UP_LOOK_SECONDS = 0.2
API_ERRORS = (nats.errors.Error, TimeoutError, OSError)
_NO_STREAM = 10059
_CONSUMER_EXISTS = 10148
_UNAVAILABLE = 503
_PASSING = {
    10005,  # no suitable peers for placement: some of the servers are not up yet
    10008,  # JetStream system temporarily unavailable
    10009,  # not the leader
    10176,  # a batch is incomplete: its beginning went to a former leader
    10210,  # too many batches in progress
}
EXTENDED = "cotenant.extended_bytes"
"""Metadata of a stream: see `StreamInfo.extended`."""
BOUND = "cotenant.bound_bytes"
"""Metadata of a stream: see `StreamInfo.bound`."""
NO_STORAGE = 10047
_STORE_FAILED = 10077
_ACCOUNT_LIMIT = 10002
MAX_BYTES_TEXT = "maximum bytes exceeded"
NO_SPACE_TEXT = "no space left"

T = TypeVar("T")


class BusError(RuntimeError):
    """The server refused a request that the log depends on; the text states which and why."""


class NoStreamError(BusError):
    """The server has no such stream: it was set up again, or the stream was removed."""


class ConsumerExistsError(BusError):
    """The stream has another consumer of that name."""


class PassingError(BusError):
    """The server is temporarily unavailable: there is no leader, or not enough servers are up."""


class JetStreamError(msgspec.Struct):
    """Why the server refused."""

    code: int = 0
    err_code: int = 0
    description: str = ""

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed a little later; it was not carried out. A store without room answers
        with the same code as one without a leader, but stays as it is."""
        return (self.code == _UNAVAILABLE or self.err_code in _PASSING) and not is_no_space(self)

    def as_exception(self, what: str) -> BusError:
        """Return the error to raise: the failed request, and why."""
        text = f"{what}: {self.description}"
        if self.is_passing:
            return PassingError(text)
        return NoStreamError(text) if self.err_code == _NO_STREAM else BusError(text)


class _Answer(msgspec.Struct):
    error: JetStreamError | None = None


class _StoredMessage(msgspec.Struct):
    seq: int
    subject: str = ""
    data: str = ""
    hdrs: str = ""
    time: str = ""


class _GetAnswer(msgspec.Struct):
    message: _StoredMessage | None = None
    error: JetStreamError | None = None


class _Names(msgspec.Struct):
    streams: tuple[str, ...] | None = None
    error: JetStreamError | None = None


class StreamState(msgspec.Struct):
    """Where a stream begins and ends."""

    first_seq: int = 0
    last_seq: int = 0
    bytes: int = 0


class Subjects(msgspec.Struct, frozen=True):
    """Some of the subjects that a filter selects, and how many there are of them altogether."""

    subjects: tuple[str, ...]
    total: int


class _SubjectsState(msgspec.Struct):
    subjects: dict[str, int] | None = None


class _SubjectsInfo(msgspec.Struct):
    state: _SubjectsState = msgspec.field(default_factory=_SubjectsState)
    total: int = 0
    error: JetStreamError | None = None


class StreamCluster(msgspec.Struct):
    """Which server leads a stream, by its name; empty while none does."""

    leader: str = ""


class StreamLimits(msgspec.Struct):
    """A stream's bounds; negative or 0: none."""

    max_bytes: int = -1
    max_msgs_per_subject: int = -1


class StreamInfo(msgspec.Struct):
    """When a stream was created, how, and its state."""

    created: str = ""
    config: dict[str, Any] = {}
    state: StreamState = msgspec.field(default_factory=StreamState)
    cluster: StreamCluster = msgspec.field(default_factory=StreamCluster)
    error: JetStreamError | None = None

    @property
    def limits(self) -> StreamLimits:
        """The stream's bounds."""
        return msgspec.convert(self.config, StreamLimits)

    @property
    def extended(self) -> int:
        """By how many bytes the stream is extended beyond its bound, as recorded in its metadata."""
        text = self.config.get("metadata", {}).get(EXTENDED, "0")
        return int(text) if text.isdigit() and int(text) < self.limits.max_bytes else 0

    @property
    def enforced(self) -> bool:
        """Whether the server enforces the stream's bound; it need not while the stream is far from it
        (`cotenant.log.contract.Bounded.enforce`)."""
        return self.limits.max_bytes > 0

    @property
    def bound(self) -> int:
        """The stream's bound in bytes, without what it is extended by; 0: none. One that the server does not enforce is in the
        stream's metadata."""
        if self.enforced:
            return self.limits.max_bytes - self.extended
        text = self.config.get("metadata", {}).get(BOUND, "0")
        return int(text) if text.isdigit() else 0


def is_no_space(error: JetStreamError) -> bool:
    """Whether a message was refused because its stream is at its bound, or the server at that of its storage."""
    if error.err_code == _STORE_FAILED:
        return MAX_BYTES_TEXT in error.description or NO_SPACE_TEXT in error.description
    return error.err_code in (NO_STORAGE, _ACCOUNT_LIMIT)


class StoredMessage(msgspec.Struct, frozen=True):
    """One message as a stream holds it."""

    sequence: int
    subject: str
    headers: dict[str, str]
    data: bytes
    time: str = ""
    """When the server stored it, as `stored_time` formats it."""


def stored_time(nanoseconds: int) -> str:
    """Return a time since the epoch as the server writes it: RFC 3339 in UTC, no trailing zeros."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


class JetStream:
    """The API on one connection."""

    def __init__(self, client: BusClient) -> None:
        self._client = client

    async def _call(
        self, subject: str, body: dict[str, Any], kind: type[T], seconds: float = ANSWER_SECONDS, again: float = 0.0
    ) -> T:
        # Not nats-py's `request`: its wait_for swallows a cancellation that comes with the answer, and its task never ends.
        data = msgspec.json.encode(body)
        _, answer = await self._client.ask_whole(f"{self._client.api}.{subject}", b"", data, seconds=seconds, again=again)
        return msgspec.json.decode(answer, type=kind)

    async def create_stream(self, config: dict[str, Any]) -> JetStreamError | None:
        """Create a stream; returns why the server refused."""
        return (await self._call(f"STREAM.CREATE.{config['name']}", config, _Answer)).error

    async def update_stream(self, config: dict[str, Any]) -> JetStreamError | None:
        """Change a stream; returns why the server refused."""
        return (await self._call(f"STREAM.UPDATE.{config['name']}", config, _Answer)).error

    async def change_limits(self, stream: str, **limits: int) -> None:
        """Set some limits of a stream and leave the rest of its configuration alone. Raises BusError where that is refused."""
        info = await self.info(stream)
        if any(info.config.get(name) != value for name, value in limits.items()):
            await self.change(info, **limits)

    async def change(self, info: StreamInfo, **settings: Any) -> None:
        """Change settings of a stream. Raises BusError if that is refused."""
        error = await self.update_stream({**info.config, **settings})
        if error is not None:
            raise error.as_exception(f"the limits of {info.config['name']} cannot be changed")

    async def names(self) -> frozenset[str]:
        """Return the names of the existing streams. Raises BusError if the server cannot list them."""
        found = await self._call("STREAM.NAMES", {}, _Names)
        if found.error is not None:
            raise BusError(f"the streams cannot be listed: {found.error.description}")
        return frozenset(found.streams or ())

    async def state(self, stream: str) -> StreamState:
        """Return where a stream begins and ends. Raises BusError where the server has no such stream, or not yet."""
        return (await self.info(stream)).state

    async def info(self, stream: str, seconds: float = ANSWER_SECONDS) -> StreamInfo:
        """Return a stream's state and age. Raises BusError like `state`."""
        info = await self._call(f"STREAM.INFO.{stream}", {}, StreamInfo, seconds, AGAIN_SECONDS)
        if info.error is not None:
            raise info.error.as_exception(f"the state of {stream} cannot be read")
        return info

    async def info_beyond(self, stream: str, sequence: int) -> StreamInfo:
        """Return a stream's state, which should not end below a sequence that was seen. The new leader of a replicated stream
        may show less for a moment: it is asked again for CATCH_UP_SECONDS. Raises BusError like `state`."""
        deadline = asyncio.get_running_loop().time() + CATCH_UP_SECONDS
        info = await self.info(stream)
        replicated = info.config.get("num_replicas", 1) > 1
        while replicated and info.state.last_seq < sequence and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(CATCH_UP_LOOK_SECONDS)
            info = await self.info(stream)
        return info

    async def subjects(self, stream: str, selected: str, offset: int = 0) -> Subjects:
        """Return the subjects that a filter selects and that hold a message, from `offset` on in their sorted order; as many as
        the server puts into one answer (100,000)."""
        info = await self._call(f"STREAM.INFO.{stream}", {"subjects_filter": selected, "offset": max(offset, 0)}, _SubjectsInfo)
        if info.error is not None:
            raise info.error.as_exception(f"the subjects of {stream} cannot be listed")
        found = tuple(info.state.subjects or ())
        return Subjects(found, max(info.total, len(found)))

    async def last_raw(self, stream: str, subject: str) -> tuple[bytes, int, bytes, bytes] | None:
        """Return subject, sequence, header block and data of a subject's last message, read from the leader."""
        found = await self._message(stream, {"last_by_subj": subject})
        if found is None:
            return None
        return found.subject.encode(), found.seq, base64.b64decode(found.hdrs), base64.b64decode(found.data)

    async def last(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message of a subject, read from the leader; None where there is none."""
        return await self._get(stream, {"last_by_subj": subject})

    async def next(self, stream: str, subject: str, after: int) -> StoredMessage | None:
        """Return the first message of a subject behind a sequence, read from the leader; None where there is none."""
        return await self._get(stream, {"seq": after + 1, "next_by_subj": subject})

    async def get(self, stream: str, sequence: int) -> StoredMessage | None:
        """Return one message; None where it is not there (any more)."""
        return await self._get(stream, {"seq": sequence})

    async def _get(self, stream: str, which: dict[str, Any]) -> StoredMessage | None:
        found = await self._message(stream, which)
        if found is None:
            return None
        headers = parse_headers(base64.b64decode(found.hdrs))
        return StoredMessage(found.seq, found.subject, headers, base64.b64decode(found.data), found.time)

    async def _message(self, stream: str, which: dict[str, Any]) -> _StoredMessage | None:
        """Request a message from the leader. None only if it answers that there is none; raises PassingError and API_ERRORS."""
        answer = await self._call(f"STREAM.MSG.GET.{stream}", which, _GetAnswer)
        if answer.error is not None and answer.error.is_passing:
            raise answer.error.as_exception(f"a message of {stream} cannot be read")
        return answer.message

    async def purge(self, stream: str, filter_subject: str, keep: int) -> None:
        """Remove the messages of some subjects, but for the last `keep`."""
        body: dict[str, Any] = {"filter": filter_subject}
        if keep:
            body["keep"] = keep
        await self._call(f"STREAM.PURGE.{stream}", body, _Answer)

    async def create_consumer(self, stream: str, config: dict[str, Any], filters: tuple[str, ...]) -> None:
        """Create the consumer `config["name"]`; one with a single filter names it in the request, where it can be permitted.
        Raises ConsumerExistsError where there is another one of that name."""
        config = {**config, **({"filter_subject": filters[0]} if len(filters) == 1 else {"filter_subjects": list(filters)})}
        suffix = f".{filters[0]}" if len(filters) == 1 else ""
        body = {"stream_name": stream, "config": config, "action": "create"}
        # Created twice with one configuration it is the same consumer.
        answer = await self._call(f"CONSUMER.CREATE.{stream}.{config['name']}{suffix}", body, _Answer, again=AGAIN_SECONDS)
        if answer.error is not None:
            kind = {_NO_STREAM: NoStreamError, _CONSUMER_EXISTS: ConsumerExistsError}.get(answer.error.err_code, BusError)
            raise kind(f"no consumer on {stream} for {', '.join(filters)}: {answer.error.description}")

    async def delete_consumer(self, stream: str, name: str) -> None:
        """Remove a consumer; a missing one is no error."""
        await self._call(f"CONSUMER.DELETE.{stream}.{name}", {}, _Answer)
