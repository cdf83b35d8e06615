"""cotenant's own endpoints below `/apis/cotenant.io/v1`: events, explain, status.

* `events?since=SEQ&for=KIND/NAME&follow=1&namespace=NS`: the log's events as JSON lines: stream, sequence, time,
type, a sentence, causes, the id of its trace;
* `explain/pod/<namespace>/<name>`, `explain/node/<name>`, `explain/quota/<name>`, `explain/reservation/<name>`: the
chain of causes back to samples and objects, as JSON;
* `deadletters`: the newest messages that could not be used, by whom and why, as a list of objects;
* `status`: the services that answer, their counts, the dead letters;
* POST `nodes/<name>/adopt`: have a node's executor take LOG for its own (`cotenant admin adopt`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import datetime

import msgspec
from aiohttp import web

from cotenant.domain.quota.names import ROOT
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.events.objects import ObjectDeleted
from cotenant.events.quotas import QuotaRuntime
from cotenant.events.requests import adopt_subject
from cotenant.explain.causes import (
    CauseWalk,
    Explanation,
    concerns,
    event_line,
    explain_node,
    explain_pod,
    explain_quota,
    explain_reservation,
)
from cotenant.explain.quotas import runtime_reasons
from cotenant.kinds.elastic_quotas import ELASTIC_QUOTAS, published_quota
from cotenant.kinds.nodes import NODES
from cotenant.kinds.pods import PODS
from cotenant.kinds.reservations import RESERVATIONS
from cotenant.log.contract import EXECUTION, LOG
from cotenant.log.nats.log import NatsLog
from cotenant.log.nats.lookups import Lost
from cotenant.log.nats.reader import NatsReader
from cotenant.model.subjects import eviction_subject, pod_subject, quota_subject
from cotenant_gateway.http.bodies import json_response
from cotenant_gateway.http.clients.limits import MIB, StreamKind
from cotenant_gateway.http.clients.streams import OpenStream, OpenStreams
from cotenant_gateway.http.dead_letters import kept_by_stream, list_dead_letters
from cotenant_gateway.http.logs import Ask
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.statuses import bad_request, internal, no_such_path, not_found, unavailable

PREFIX = "/apis/cotenant.io/v1"
MAX_LOOKUPS = 400
LOOKUPS_AT_ONCE = 16
SILENT_SECONDS = 1.5
PULL = 500
EXECUTION_SHOWN = 2000
FOLLOW_BYTES = 2 * MIB
"""That a reader of a followed stream holds; a message is at most 1 MiB."""
EXECUTION_FILTERS = ("execution.>", "deadletter.>")


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
        self._stopping = stopping

    async def answer(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Dispatch on what follows the prefix."""
        parts = path.strip("/").split("/")
        if request.method == "POST" and len(parts) == 3 and (parts[0], parts[2]) == ("nodes", "adopt"):
            return await self._adopt(parts[1])
        if request.method != "GET":
            raise no_such_path()
        if parts == ["events"]:
            with self._streams.open(request, StreamKind.EVENTS) as stream:
                return await self._events(request, stream)
        if parts == ["status"]:
            return await self._status()
        with self._streams.open(request, StreamKind.EXPLAIN):
            if parts == ["deadletters"]:
                return json_response(msgspec.json.encode(await list_dead_letters(self._log)))
            if len(parts) == 4 and parts[:2] == ["explain", "pod"]:
                return await self._explain_pod(parts[2], parts[3])
            if len(parts) == 3 and parts[:2] == ["explain", "node"]:
                return await self._explain_node(parts[2])
            if len(parts) == 3 and parts[:2] == ["explain", "reservation"]:
                return await self._explain_reservation(parts[2])
            if len(parts) == 3 and parts[:2] == ["explain", "quota"]:
                return await self._explain_quota(parts[2])
        raise no_such_path()

    # -- explain -------------------------------------------------------------------------------------------------

    async def _walk(self, roots: Sequence[Event]) -> CauseWalk:
        walk = CauseWalk(roots)
        asked = 0
        while asked < MAX_LOOKUPS:
            wanted = walk.wanted()[:LOOKUPS_AT_ONCE]
            if not wanted:
                break
            asked += len(wanted)
            found = await asyncio.gather(*(self._log.find(ref) for ref in wanted))
            for ref, event in zip(wanted, found, strict=True):
                if isinstance(event, Lost):
                    walk.add(ref, None, event.reason)
                else:
                    walk.add(ref, event)
        return walk

    async def _explain_pod(self, namespace: str, name: str) -> web.Response:
        pod = self._gateway.core.get(PODS, namespace, name)
        subjects = [eviction_subject(namespace, name)]
        parts: list[Event] = []
        if pod is None:
            # An ended pod is explained as long as HISTORY keeps its tombstone: it names what it follows from.
            subjects.append(pod_subject(namespace, name))
        else:
            parts = list(pod.parts.values())
            if pod.stored is not None:
                parts += await self._events_at([pod.stored.sequence])
        found = await asyncio.gather(*(self._log.last_known(subject) for subject in subjects))
        uid = pod.uid if pod is not None else next((_uid_of(event) for event in reversed(found) if event is not None), "")
        roots = [*parts, *(event for event in found if event is not None and _uid_of(event) == uid)]
        if not roots:
            raise not_found(PODS, name)
        explanation = explain_pod(namespace, name, roots, await self._walk(roots))
        return json_response(msgspec.json.encode(explanation))

    async def _events_at(self, sequences: Sequence[int]) -> list[Event]:
        found = await asyncio.gather(*(self._log.find(f"{LOG}:{sequence}") for sequence in sequences))
        return [event for event in found if not isinstance(event, Lost)]

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

    async def _explain_node(self, name: str) -> web.Response:
        core = self._gateway.core
        node = core.get(NODES, "", name)
        if node is None:
            raise not_found(NODES, name)
        roots = list(node.parts.values())
        if node.stored is not None:
            roots += await self._events_at([node.stored.sequence])
        explanation: Explanation = explain_node(name, roots, await self._walk(roots))
        return json_response(msgspec.json.encode(explanation))

    async def _explain_reservation(self, name: str) -> web.Response:
        found = self._gateway.core.get(RESERVATIONS, "", name)
        if found is None or found.stored is None:
            raise not_found(RESERVATIONS, name)
        roots = [*found.parts.values(), *await self._events_at([found.stored.sequence])]
        return json_response(msgspec.json.encode(explain_reservation(name, roots, await self._walk(roots))))

    async def _explain_quota(self, name: str) -> web.Response:
        """A quota is known by its name alone."""
        quotas = list(self._gateway.core.objects(ELASTIC_QUOTAS))
        found = next((snapshot for snapshot in quotas if snapshot.address.name == name), None)
        if found is None:
            raise not_found(ELASTIC_QUOTAS, name)
        roots = list(found.parts.values())
        if found.stored is not None:
            roots += await self._events_at([found.stored.sequence])
        quota = published_quota(found)
        reasons: list[str] = []
        if quota is not None:
            above = await self._log.last_known(quota_subject(quota.tree, quota.parent or ROOT))
            parent = above.data if above is not None and isinstance(above.data, QuotaRuntime) else None
            published = (published_quota(snapshot) for snapshot in quotas if snapshot is not found)
            place = (quota.tree, quota.parent)
            siblings = [each for each in published if each is not None and (each.tree, each.parent) == place]
            reasons = list(runtime_reasons(quota, parent, siblings))
        walk = await self._walk(roots)
        explanation = explain_quota(found.address.namespace, quota, name, reasons, roots, walk)
        return json_response(msgspec.json.encode(explanation))

    # -- events --------------------------------------------------------------------------------------------------

    async def _events(self, request: web.BaseRequest, stream: OpenStream) -> web.StreamResponse:
        query = request.query
        since = query.get("since", "")
        if since and not (since.isascii() and since.isdigit() and len(since) < 20):
            raise bad_request(f"since: Invalid value: {since[:20]!r}: must be a sequence of LOG")
        about, slash, name = query.get("for", "").partition("/")
        if about and not (slash and name):
            raise bad_request(f"for: Invalid value: {query['for'][:80]!r}: must be KIND/NAME")
        wanted = (about.lower(), query.get("namespace", ""), name)
        follow = query.get("follow", "").lower() in ("1", "true")
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-cache"})
        begins = await self._log.first_sequence(LOG) if since else 0
        if since and int(since) + 1 < begins:
            response.headers["Warning"] = f'299 - "{since} is older than what LOG keeps, which begins at {LOG}:{begins}"'
        response.enable_chunked_encoding()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            async with contextlib.aclosing(self._stream(stream, int(since or "0"), follow=follow)) as found:
                async for events in found:
                    lines = [event_line(event) for event in events if concerns(event, *wanted)]
                    if lines:
                        await response.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            await response.write_eof()
        return response

    async def _stream(self, stream: OpenStream, since: int, *, follow: bool) -> AsyncGenerator[Sequence[Event]]:
        """LOG from a sequence on with EXECUTION beside it, in order of time; and with `follow` what comes, until the client is
        gone."""
        end, execution_end = await self._log.last_sequence(LOG), await self._log.last_sequence(EXECUTION)
        beside = deque(await self._last_of_execution(execution_end))
        log = await self._log.follow(LOG, (">",), after=since)
        log.loaded()
        log.max_behind = 0
        log.hold_at_most(FOLLOW_BYTES)
        execution: NatsReader | None = None
        try:
            began: datetime | None = None
            while log.position < end and not stream.gone:
                events = await log.pull(PULL, SILENT_SECONDS)
                if not events:
                    break
                if began is None:
                    began = events[0].time
                yield list(_merged(events, beside, began if since else None))
            yield [event for event in beside if not since or began is None or _is_since(event, began)]
            if not follow or stream.gone:
                return
            execution = await self._log.follow(EXECUTION, EXECUTION_FILTERS, after=execution_end)
            execution.loaded()
            execution.hold_at_most(FOLLOW_BYTES)
            while not self._stopping.is_set() and not stream.gone:
                pulls = await asyncio.gather(log.pull(PULL, 0.5), execution.pull(PULL, 0.5))
                for events in pulls:
                    if events:
                        yield events
        finally:
            await log.close()
            if execution is not None:
                await execution.close()

    async def _last_of_execution(self, end: int) -> list[Event]:
        """The last events of EXECUTION, at most EXECUTION_SHOWN."""
        found: list[Event] = []
        if not end:
            return found
        reader = await self._log.follow(EXECUTION, EXECUTION_FILTERS, after=max(0, end - EXECUTION_SHOWN))
        reader.loaded()
        try:
            while reader.position < end:
                events = await reader.pull(PULL, SILENT_SECONDS)
                if not events:
                    break
                found += events
        finally:
            await reader.close()
        return found

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
        """Ask every micro service to show itself; who does not answer within half a second is not there."""
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


def _uid_of(event: Event) -> str:
    return event.data.uid if isinstance(event.data, (EvictionOutcome, ObjectDeleted)) else ""


def _is_since(event: Event, began: datetime | None) -> bool:
    return began is None or event.time is None or event.time >= began


def _merged(events: Sequence[Event], beside: deque[Event], began: datetime | None) -> Iterator[Event]:
    """Yield the events of LOG with those of EXECUTION before each that were earlier; takes them from `beside`."""
    for event in events:
        while beside and event.time is not None and (beside[0].time is None or beside[0].time <= event.time):
            earlier = beside.popleft()
            if _is_since(earlier, began):
                yield earlier
        yield event
