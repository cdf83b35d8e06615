"""cotenant's own endpoints below `/apis/cotenant.io/v1`: events, explain, status.

* `events?since=SEQ&for=KIND/NAME&follow=1&namespace=NS`: the log's events as JSON lines: stream, sequence, time,
type, a sentence, causes, the id of its trace;
* `explain/pod/<namespace>/<name>`, `explain/node/<name>`, `explain/quota/<name>`: the chain of causes back to samples and
objects, as JSON;
* * `deadletters`: the newest messages that could not be used, by which service and why, as a list of objects;
* `status`: the services that answer, their counts, the dead letters;
* POST `nodes/<name>/adopt`: have a node's executor take LOG for its own (`cotenant admin adopt`).
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
from aiohttp import web

from cotenant.events.requests import adopt_subject
from cotenant.kinds.nodes import NODES
from cotenant.log.contract import LOG
from cotenant.log.nats.log import NatsLog
from cotenant_gateway.http.bodies import json_response
from cotenant_gateway.http.clients.limits import StreamKind
from cotenant_gateway.http.clients.streams import OpenStreams
from cotenant_gateway.http.facts.dead_letters import kept_by_stream, list_dead_letters
from cotenant_gateway.http.facts.event_stream import EventStream
from cotenant_gateway.http.facts.explaining import Explainer
from cotenant_gateway.http.logs import Ask
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.statuses import internal, no_such_path, not_found, unavailable

FACTS_PREFIX = "/apis/cotenant.io/v1"


class ServiceAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """A service that answered a ping."""

    name: str
    id: str
    version: str = ""
    metadata: dict[str, str] = {}


class FactHandlers:
    """Answers cotenant's own endpoints."""

    def __init__(self, gateway: Gateway, log: NatsLog, ask: Ask, streams: OpenStreams, stopping: asyncio.Event) -> None:
        self._gateway = gateway
        self._log = log
        self._ask = ask
        self._streams = streams
        self._explainer = Explainer(gateway, log)
        self._event_stream = EventStream(log, stopping)

    async def answer(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Dispatch on what follows the prefix."""
        parts = path.strip("/").split("/")
        if request.method == "POST" and len(parts) == 3 and (parts[0], parts[2]) == ("nodes", "adopt"):
            return await self._adopt(parts[1])
        if request.method != "GET":
            raise no_such_path()
        if parts == ["events"]:
            with self._streams.open(request, StreamKind.EVENTS) as stream:
                return await self._event_stream.answer(request, stream)
        if parts == ["status"]:
            return await self._status()
        with self._streams.open(request, StreamKind.EXPLAIN):
            if parts == ["deadletters"]:
                return json_response(msgspec.json.encode(await list_dead_letters(self._log)))
            if len(parts) == 4 and parts[:2] == ["explain", "pod"]:
                return await self._explainer.pod(parts[2], parts[3])
            if len(parts) == 3 and parts[:2] == ["explain", "node"]:
                return await self._explainer.node(parts[2])
            if len(parts) == 3 and parts[:2] == ["explain", "reservation"]:
                return await self._explainer.reservation(parts[2])
            if len(parts) == 3 and parts[:2] == ["explain", "quota"]:
                return await self._explainer.quota(parts[2])
        raise no_such_path()

    async def _adopt(self, name: str) -> web.Response:
        if self._gateway.core.get(NODES, "", name) is None:
            raise not_found(NODES, name)
        try:
            answer, code, refusal = await self._ask(adopt_subject(name), b"")
        except TimeoutError as error:
            raise unavailable(f"the executor of node {name} does not answer: it cannot adopt LOG now") from error
        if code:
            raise internal(f"node {name}: {refusal}")
        return json_response(answer)

    # -- status --------------------------------------------------------------------------------------------------

    async def _status(self) -> web.Response:
        services = await self._ping()
        body = {
            "services": services,
            "folded": self._gateway.core.folded,
            "log": {"lastSequence": await self._log.last_sequence(LOG)},
            "deadLetters": await kept_by_stream(self._log),
            "unknownEventTypes": self._log.unknown_types,
            "ready": self._gateway.ready.is_set(),
        }
        return json_response(msgspec.json.encode(body))

    async def _ping(self) -> list[ServiceAnswer]:
        """Ping every service; one that does not answer within half a second counts as absent."""
        client = self._log.client
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox, pending_msgs_limit=4096)
        await client.publish("$SRV.PING", b"", reply=inbox)
        answers: dict[str, ServiceAnswer] = {}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 0.5
        while (left := deadline - loop.time()) > 0:
            try:
                message = await subscription.next_msg(timeout=left)
            except TimeoutError:
                break
            with contextlib.suppress(msgspec.MsgspecError):
                found = msgspec.json.decode(message.data, type=ServiceAnswer)
                answers[found.id] = found
        await subscription.unsubscribe()
        return sorted(answers.values(), key=lambda service: (service.name, service.id))
