"""The streams' and consumers' API of a JetStream server, as far as cotenant asks for it: requests and answers as structs.

In: a connection. Out: streams declared, consumers made and removed, single messages, a stream's end. A refusal is a BusError
where nothing can go on without what was asked for. No answer within ANSWER_SECONDS is one of API_ERRORS.
"""

from __future__ import annotations

import base64
import logging
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import nats

from cotenant.log.contract import EXTENSIONS, LOG, extension_bytes
from cotenant.log.nats.streams import StreamSizes, stream_configs
from cotenant.log.nats.wire import BusClient, parse_headers

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
API_ERRORS = (nats.errors.Error, TimeoutError, OSError)
_NAME_IN_USE = 10058
_NO_STREAM = 10059
_NO_STORAGE = 10047
_STORE_FAILED = 10077
_ACCOUNT_LIMIT = 10002
MAX_BYTES_TEXT = "maximum bytes exceeded"
NO_SPACE_TEXT = "no space left"
MIN_LOG_BYTES = 64 << 20
"""The least that LOG is declared with on a server that has not the storage for more."""

T = TypeVar("T")


class BusError(RuntimeError):
    """The server refused what a bus needs; the text says what and why."""


class NoStreamError(BusError):
    """The server has no such stream: it was set up again, or the stream was removed."""


class ApiError(msgspec.Struct):
    """Why the server refused."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    error: ApiError | None = None


class _StoredMessage(msgspec.Struct):
    seq: int
    subject: str = ""
    data: str = ""
    hdrs: str = ""
    time: str = ""


class _GetAnswer(msgspec.Struct):
    message: _StoredMessage | None = None
    error: ApiError | None = None


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
    error: ApiError | None = None


class StreamLimits(msgspec.Struct):
    """A stream's bounds; negative or 0: none."""

    max_bytes: int = -1
    max_msgs_per_subject: int = -1


class StreamInfo(msgspec.Struct):
    """When a stream was created, its bounds and its state."""

    created: str = ""
    config: StreamLimits = msgspec.field(default_factory=StreamLimits)
    state: StreamState = msgspec.field(default_factory=StreamState)
    error: ApiError | None = None


def _is_no_storage(error: ApiError | None) -> bool:
    return error is not None and error.err_code == _NO_STORAGE


def is_no_space(error: ApiError) -> bool:
    """Whether a message was refused because its stream is at its bound, or the server at that of its storage."""
    if error.err_code == _STORE_FAILED:
        return MAX_BYTES_TEXT in error.description or NO_SPACE_TEXT in error.description
    return error.err_code in (_NO_STORAGE, _ACCOUNT_LIMIT)


def _kept(there: StreamLimits, config: dict[str, Any]) -> dict[str, int]:
    """Return the limits of LOG that were changed to make room on it: `cotenant.log.contract.Bounded`."""
    kept = {}
    if 0 < there.max_msgs_per_subject < config["max_msgs_per_subject"]:
        kept["max_msgs_per_subject"] = there.max_msgs_per_subject
    bound = config["max_bytes"]
    if bound < there.max_bytes <= bound + EXTENSIONS * extension_bytes(bound):
        kept["max_bytes"] = there.max_bytes
    return kept


class _Configured(msgspec.Struct):
    config: dict[str, Any] = {}
    error: ApiError | None = None


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

    async def _call(self, subject: str, body: dict[str, Any], kind: type[T]) -> T:
        # Not nats-py's `request`: its wait_for swallows a cancellation that comes with the answer, and its task never ends.
        answer = await self._client.ask(f"$JS.API.{subject}", b"", msgspec.json.encode(body), seconds=ANSWER_SECONDS)
        return msgspec.json.decode(answer, type=kind)

    async def declare(self, *, replicas: int, sizes: StreamSizes) -> int:
        """Create the four streams, or bring their limits up to date; returns the bound of LOG in bytes. Safe to call from every
        service at once.

        Where the server has less storage than `sizes` asks for, LOG gets a half, a quarter, ... of it. What was changed to make
        room on a full LOG stays. A stream that is there already stays as it is where the server has no room to change it: a
        service must come back on a full disk.
        """
        bound = 0
        for config in stream_configs(replicas=replicas, sizes=sizes):
            name = config["name"]
            error, there = await self._declare(config)
            while name == LOG and _is_no_storage(error) and config["max_bytes"] > MIN_LOG_BYTES:
                config["max_bytes"] //= 2
                error, there = await self._declare(config)
            if name == LOG:
                bound = config["max_bytes"]
            if error is not None and there is not None and (_is_no_storage(error) or NO_SPACE_TEXT in error.description):
                logger.warning("stream %s keeps its limits: %s", name, error.description)
                if name == LOG:
                    bound = there.max_bytes
            elif error is not None:
                raise BusError(f"stream {name} cannot be declared: {error.description}")
        return max(bound, 0)

    async def _declare(self, config: dict[str, Any]) -> tuple[ApiError | None, StreamLimits | None]:
        """Create a stream or update it; returns why that is refused, and the limits that it had if it was there."""
        name = config["name"]
        error = (await self._call(f"STREAM.CREATE.{name}", config, _Answer)).error
        # The server counts what a stream would need before it looks whether it is there.
        if error is None or not (error.err_code == _NAME_IN_USE or _is_no_storage(error)):
            return error, None
        found = await self._call(f"STREAM.INFO.{name}", {}, StreamInfo)
        if found.error is not None:
            return error, None
        there = found.config
        wanted = config if name != LOG else {**config, **_kept(there, config)}
        return (await self._call(f"STREAM.UPDATE.{name}", wanted, _Answer)).error, there

    async def change_limits(self, stream: str, **limits: int) -> None:
        """Set some limits of a stream and leave the rest of its configuration alone. Raises BusError where that is refused."""
        found = await self._call(f"STREAM.INFO.{stream}", {}, _Configured)
        error, config = found.error, found.config
        if error is None and any(config.get(name) != value for name, value in limits.items()):
            error = (await self._call(f"STREAM.UPDATE.{stream}", {**config, **limits}, _Answer)).error
        if error is not None:
            raise BusError(f"the limits of {stream} cannot be changed: {error.description}")

    async def state(self, stream: str) -> StreamState:
        """Return where a stream begins and ends. Raises BusError where the server has no such stream, or not yet."""
        return (await self.info(stream)).state

    async def info(self, stream: str) -> StreamInfo:
        """Return a stream's state and age. Raises BusError like `state`."""
        info = await self._call(f"STREAM.INFO.{stream}", {}, StreamInfo)
        if info.error is not None:
            kind = NoStreamError if info.error.err_code == _NO_STREAM else BusError
            raise kind(f"the state of {stream} cannot be read: {info.error.description}")
        return info

    async def subjects(self, stream: str, selected: str, offset: int = 0) -> Subjects:
        """Return the subjects that a filter selects and that hold a message, from `offset` on in their sorted order; as many as
        the server puts into one answer (100,000)."""
        info = await self._call(f"STREAM.INFO.{stream}", {"subjects_filter": selected, "offset": max(offset, 0)}, _SubjectsInfo)
        if info.error is not None:
            raise BusError(f"the subjects of {stream} cannot be listed: {info.error.description}")
        found = tuple(info.state.subjects or ())
        return Subjects(found, max(info.total, len(found)))

    async def last_raw(self, stream: str, subject: str) -> tuple[bytes, int, bytes, bytes] | None:
        """Return subject, sequence, header block and data of a subject's last message, read from the leader."""
        found = (await self._call(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}, _GetAnswer)).message
        if found is None:
            return None
        return found.subject.encode(), found.seq, base64.b64decode(found.hdrs), base64.b64decode(found.data)

    async def last(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message of a subject, read from the leader; None where there is none."""
        return await self._get(stream, {"last_by_subj": subject})

    async def get(self, stream: str, sequence: int) -> StoredMessage | None:
        """Return one message; None where it is not there (any more)."""
        return await self._get(stream, {"seq": sequence})

    async def _get(self, stream: str, which: dict[str, Any]) -> StoredMessage | None:
        found = (await self._call(f"STREAM.MSG.GET.{stream}", which, _GetAnswer)).message
        if found is None:
            return None
        headers = parse_headers(base64.b64decode(found.hdrs))
        return StoredMessage(found.seq, found.subject, headers, base64.b64decode(found.data), found.time)

    async def purge(self, stream: str, filter_subject: str, keep: int) -> None:
        """Remove the messages of some subjects, but for the last `keep`."""
        body: dict[str, Any] = {"filter": filter_subject}
        if keep:
            body["keep"] = keep
        await self._call(f"STREAM.PURGE.{stream}", body, _Answer)

    async def create_consumer(self, stream: str, config: dict[str, Any], filters: tuple[str, ...]) -> None:
        """Create the consumer `config["name"]`; one with a single filter names it in the request, where it can be permitted."""
        config = {**config, **({"filter_subject": filters[0]} if len(filters) == 1 else {"filter_subjects": list(filters)})}
        suffix = f".{filters[0]}" if len(filters) == 1 else ""
        body = {"stream_name": stream, "config": config}
        answer = await self._call(f"CONSUMER.CREATE.{stream}.{config['name']}{suffix}", body, _Answer)
        if answer.error is not None:
            kind = NoStreamError if answer.error.err_code == _NO_STREAM else BusError
            raise kind(f"no consumer on {stream} for {', '.join(filters)}: {answer.error.description}")

    async def delete_consumer(self, stream: str, name: str) -> None:
        """Remove a consumer; one that is not there is no error."""
        await self._call(f"CONSUMER.DELETE.{stream}.{name}", {}, _Answer)
