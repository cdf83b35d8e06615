"""A NATS client with little cost per message: batches leave as one buffer, deliveries reach their reader as bytes.

nats-py builds every frame and parses every header line by itself, which is most of what a small message costs, and a request
goes through a queue and two tasks each way. `BusClient` keeps its connection handling (reconnects, pings) and adds three
short cuts:

- `ask`: frames leave in one write of the caller's own; the answer to the last of them goes straight to who waits for it;
- whole messages in what was read are walked over without copying the rest of the buffer after each; anything else (a message
  that is not complete, other lines of the protocol) is left to nats-py's parser;
- `subscribe_raw`: the messages of one subscription go to a function (subject, reply, headers, data: bytes) without a stream, a
  queue, a task or a header dictionary between. What is in progress is bounded by the reader's own pull, not here.

Over 300 lines: what is sent and what is received share the state of one connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import Any, TypeVar

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.errors import AuthorizationError, ConnectionReconnectingError, NoRespondersError
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from cotenant.log.nats.access import JETSTREAM_API
from cotenant.log.nats.frames import LINE_END, frame, inline_status, whole_message

logger = logging.getLogger(__name__)

PENDING_MESSAGES = 8192
PENDING_BYTES = 16 << 20
"""Bounds of a subscription's unhandled requests."""
_OF_CREDENTIALS = ("authorization violation", "authentication")
T = TypeVar("T")
RawSink = Callable[[bytes, bytes, bytes, bytes], None]
"""subject, reply, headers, data"""


class _WireParser(Parser):
    """Dispatches whole messages; see the module."""

    def __init__(self, client: BusClient) -> None:
        super().__init__(client)
        self._client = client

    def take(self, data: bytes) -> bytes:
        """Send the whole messages at the beginning to their sinks; return what follows, from the first bytes that are something
        else. The beginning of a message is kept."""
        if self.state != AWAITING_CONTROL_LINE:
            return data
        buffer = bytes(self.buf) + data if self.buf else data
        sinks, position, messages, octets = self._client._sinks, 0, 0, 0
        while (found := whole_message(buffer, position)) is not None:
            words, reply, start, body, stop = found
            sink = sinks.get(words[2])
            if sink is None:
                break
            sink(words[1], reply, buffer[start:body], buffer[body:stop])
            messages += 1
            octets += stop - body
            position = stop + LINE_END
        self._client.stats["in_msgs"] += messages
        self._client.stats["in_bytes"] += octets
        rest = buffer[position:]
        self.buf = bytearray(rest) if found is None and rest.startswith((b"HMSG ", b"MSG ")) else bytearray()
        return b"" if self.buf else rest

    async def parse(self, data: bytes = b"") -> None:
        """Take what was read, all of it."""
        rest = self.take(data)
        while self.state == AWAITING_CONTROL_LINE and (found := whole_message(rest, 0)) is not None:
            words, reply, start, body, stop = found
            await self._client._process_msg(int(words[2]), words[1], reply, rest[body:stop], rest[start:body])
            rest = self.take(rest[stop + LINE_END :])
        if rest:
            await super().parse(rest)


class _Receiver(asyncio.Protocol):
    """Takes what arrives on a connection: messages go to their sinks at once. The rest, and what follows it until that is
    parsed, goes through nats-py's stream, whose reading task costs a wake-up more."""

    def __init__(self, parser: _WireParser, stream: asyncio.StreamReader, below: asyncio.StreamReaderProtocol) -> None:
        self._parser = parser
        self._stream: Any = stream
        self._below = below

    def data_received(self, data: bytes) -> None:
        """Take bytes. The reading task has parsed everything before them if it waits for more."""
        rest = data if self._stream._waiter is None else self._parser.take(data)
        if rest:
            self._below.data_received(rest)

    def eof_received(self) -> bool | None:
        return self._below.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._below.connection_lost(exc)

    def pause_writing(self) -> None:
        self._below.pause_writing()

    def resume_writing(self) -> None:
        self._below.resume_writing()


class BusClient(Client):
    """nats-py's client with the three short cuts."""

    def __init__(self) -> None:
        super().__init__()
        self._sinks: dict[bytes, RawSink] = {}
        """By the subscription's number in a delivery."""
        self._ps = self._parser = _WireParser(self)
        self._answers = b""
        """Prefix of the subjects of answers."""
        self._asked: dict[bytes, asyncio.Future[tuple[bytes, bytes]]] = {}
        """Header block and data of the answer, by the last token of its subject."""
        self._numbers = count(1)
        self.api = JETSTREAM_API
        """The prefix of requests to JetStream."""
        self._locks: dict[str, asyncio.Lock] = {}
        self._semaphores: dict[str, asyncio.Semaphore] = {}
        self._shared: dict[str, tuple[float, asyncio.Future[Any]]] = {}
        """When each question was last asked, and its answer."""
        self.on_reconnect: set[Callable[[], None]] = set()
        """Called after each reconnect. `stats["reconnects"]` has counted it before anything new arrives, these are later."""

    async def connect(self, *servers: Any, **options: Any) -> None:
        """Connect, and subscribe to answers."""
        options["disconnected_cb"] = self._on_disconnect
        options["reconnected_cb"] = self._notify_reconnected
        await super().connect(*servers, **options)
        inbox = self.new_inbox()
        self._answers = inbox.encode() + b"."
        await self.subscribe_raw(f"{inbox}.*", self._on_answer)

    async def _read_loop(self) -> None:
        """nats-py's, begun for each connection once it is made."""
        transport = self._transport
        if isinstance(transport, TcpTransport) and transport._io_reader is not None and transport._io_writer is not None:
            connection = transport._io_writer.transport
            below = connection.get_protocol()
            assert isinstance(below, asyncio.StreamReaderProtocol)
            connection.set_protocol(_Receiver(self._parser, transport._io_reader, below))
        await super()._read_loop()

    async def subscribe(
        self,
        subject: str,
        queue: str = "",
        cb: Callable[[Msg], Awaitable[None]] | None = None,
        future: asyncio.Future[Msg] | None = None,
        max_msgs: int = 0,
        pending_msgs_limit: int = PENDING_MESSAGES,
        pending_bytes_limit: int = PENDING_BYTES,
    ) -> Subscription:
        """nats-py's, with bounds for waiting requests: further ones are dropped without an answer."""
        return await super().subscribe(subject, queue, cb, future, max_msgs, pending_msgs_limit, pending_bytes_limit)

    @property
    def on_single_server(self) -> bool:
        """Whether this connection's server has JetStream and belongs to no cluster: then it holds the streams itself. What it
        sends arrives in order, and is lost only with the connection."""
        return bool(self._server_info.get("jetstream")) and not self._server_info.get("cluster")

    def one_at_a_time(self, name: str) -> asyncio.Lock:
        """Return the lock of an operation that two tasks of this connection must not do at once."""
        return self._locks.setdefault(name, asyncio.Lock())

    def few_at_a_time(self, name: str, most: int) -> asyncio.Semaphore:
        """Return the semaphore of an operation that at most so many tasks of this connection do at once."""
        return self._semaphores.setdefault(name, asyncio.Semaphore(most))

    async def shared(self, name: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what `ask` returns, or raise what it raises. Callers that wait while it is under way share the next answer, so
        each gets one that was asked for after it came: hundreds of nodes of one process can load at once, and a server answers
        these requests one after the other. `name`: of the question, and so of the type of its answer."""
        loop = asyncio.get_running_loop()
        came = loop.time()
        async with self.one_at_a_time(name):
            known = self._shared.get(name)
            if known is None or known[0] <= came:
                began = loop.time()
                answer: asyncio.Future[Any] = loop.create_future()
                try:
                    answer.set_result(await ask())
                except Exception as error:  # noqa: BLE001 - whatever it is, it is for each caller
                    answer.set_exception(error)
                self._shared[name] = known = (began, answer)
            result: T = known[1].result()
            return result

    async def _process_err(self, err_msg: str) -> None:
        """A connection that the server ends because of its credentials (revoked, expired, replaced) is made again, with what
        the file of credentials holds then. nats-py would close for good."""
        if any(text in err_msg.lower() for text in _OF_CREDENTIALS):
            logger.error("nats-server no longer takes these credentials: %s; connecting again", err_msg.strip())
            await self._process_op_err(AuthorizationError())
            return
        await super()._process_err(err_msg)

    async def _notify_reconnected(self) -> None:
        for call in tuple(self.on_reconnect):
            call()

    async def subscribe_raw(self, subject: str, sink: RawSink) -> Subscription:
        """Subscribe, and send the messages to the sink."""
        subscription = await self.subscribe(subject)
        self._sinks[_number(subscription)] = sink
        return subscription

    async def unsubscribe_raw(self, subscription: Subscription) -> None:
        """End a subscription; nothing more comes to its sink."""
        self._sinks.pop(_number(subscription), None)
        try:
            await subscription.unsubscribe()
        except Exception as error:  # noqa: BLE001 - nats-py raises plain errors on a closed connection
            logger.debug("unsubscribe: %s", error)

    async def ask(self, subject: str, lines: bytes, data: bytes, *, seconds: float, before: Iterable[bytes] = ()) -> bytes:
        """Send the frames `before` and then one message, in one write; return the data of its answer. Raises as `ask_whole`."""
        return (await self.ask_whole(subject, lines, data, seconds=seconds, before=before))[1]

    async def ask_whole(
        self, subject: str, lines: bytes, data: bytes, *, seconds: float, before: Iterable[bytes] = (), again: float = 0.0
    ) -> tuple[bytes, bytes]:
        """Do as `ask`; return the answer's header block, which may be empty, and its data. `again`: repeat the message (which
        must change nothing) after each so many seconds without an answer, and take the first one.

        Raises TimeoutError without an answer in time, NoRespondersError if no one is subscribed, ConnectionReconnectingError
        if the connection is lost meanwhile: an answer that was in progress is lost with it.
        """
        token = b"%x" % next(self._numbers)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[tuple[bytes, bytes]] = loop.create_future()
        self._asked[token] = answered
        deadline = loop.time() + seconds
        late: asyncio.TimerHandle | None = None
        try:
            message = frame(subject, self._answers + token, lines, data)
            await self._write(b"".join((*before, message)), deadline)
            # A timer costs less than `asyncio.timeout`: see `log.waits`.
            late = loop.call_at(deadline, _is_late, answered)
            while again and not (await asyncio.wait((answered,), timeout=again))[0]:
                await self._write(message, deadline)
            return await answered
        except TimeoutError:
            raise TimeoutError(f"no answer to {subject} within {seconds:g} s") from None
        finally:
            if late is not None:
                late.cancel()
            self._asked.pop(token, None)

    async def _write(self, frames: bytes, deadline: float) -> None:
        """Write frames to the socket; behind what nats-py still buffers, and through nats-py if there is no connection, until
        then. Nobody waits for the socket's buffer: who asks waits for the answer."""
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(frames)
        transport = self._transport
        if self._pending or not self.is_connected or transport is None:
            async with asyncio.timeout_at(deadline):
                await self._send_command(frames)
                await self._flush_pending()
        else:
            transport.write(frames)

    async def _on_disconnect(self) -> None:
        for answered in self._asked.values():
            if not answered.done():
                answered.set_exception(ConnectionReconnectingError())

    def _on_answer(self, subject: bytes, _: bytes, headers: bytes, data: bytes) -> None:
        answered = self._asked.pop(subject[len(self._answers) :], None)
        if answered is None or answered.done():
            return
        if inline_status(headers) == "503":
            answered.set_exception(NoRespondersError())
        else:
            answered.set_result((headers, data))

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> None:
        sink = self._sinks.get(b"%d" % sid)
        if sink is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        sink(bytes(subject), bytes(reply), bytes(headers or b""), bytes(data))


def _is_late(answered: asyncio.Future[tuple[bytes, bytes]]) -> None:
    if not answered.done():
        answered.set_exception(TimeoutError())


def _number(subscription: Subscription) -> bytes:
    return b"%d" % subscription._id
