"""Who may do what on a real nats-server: services their own, nodes their own, nobody else anything; and what a thief gets."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from nats.errors import Error as NatsError

from cotenant.events import Event
from cotenant.events.node.usage import UsageSample
from cotenant.log.contract import EXECUTION, HISTORY, LOG, USAGE, Stored, Write
from cotenant.log.nats.access import Access
from cotenant.log.nats.log import NatsLog, connect
from cotenant.log.nats.republished import RepublishedReader
from cotenant.model.subjects import LOG_IDENTITY
from cotenant_console.nats_access.roles import NATS_ROLES, SERVICE_ROLES
from tests.contract.test_republished import fact, read, store
from tests.secured_nats import SecuredNats

WAIT_SECONDS = 60
VICTIM = "b.example"
TOKEN = "b%2Eexample"


@pytest.fixture(scope="module")
def cell() -> Iterator[SecuredNats]:
    made = SecuredNats()
    made.start()
    yield made
    made.close()


@pytest.fixture
async def administrator(cell: SecuredNats) -> AsyncIterator[NatsLog]:
    made = await cell.administrator()
    yield made
    await made.close()


class Thief:
    """Somebody with others' credentials: what the server refuses them, and what they hear."""

    def __init__(self, log: NatsLog) -> None:
        self.log = log
        self.heard: list[tuple[str, bytes]] = []
        self.refusals: list[str] = []

        async def note(error: Exception) -> None:
            self.refusals.append(str(error))

        log.client._error_cb = note

    async def send(self, subject: str, body: bytes = b"{}", reply: str = "", headers: dict[str, str] | None = None) -> None:
        await self.log.client.publish(subject, body, reply=reply, headers=headers)

    async def settled(self) -> None:
        """Wait until the server has dealt with all that was sent. (nats-py's first ping overtakes what it still buffers.)"""
        for _ in range(2):
            await self.log.client.flush()

    async def listen(self, subject: str) -> None:
        await self.log.client.subscribe_raw(subject, lambda name, _, __, data: self.heard.append((name.decode(), data)))

    async def ask(self, subject: str, body: Any = None) -> bytes:
        """The answer; empty where the server refuses the request and so does not answer it."""
        before, inbox = len(self.refusals), self.log.client.new_inbox()
        answers: asyncio.Queue[bytes] = asyncio.Queue()
        subscription = await self.log.client.subscribe_raw(inbox, lambda _, __, block, data: answers.put_nowait(block + data))
        try:
            await self.send(subject, msgspec.json.encode(body) if body is not None else b"", reply=inbox)
            await self.settled()
            if len(self.refusals) > before:
                return b""
            async with asyncio.timeout(WAIT_SECONDS):
                return await answers.get()
        finally:
            await self.log.client.unsubscribe_raw(subscription)


@pytest.fixture
async def thief(cell: SecuredNats, administrator: NatsLog) -> AsyncIterator[Thief]:
    """With the credentials of node n."""
    made = Thief(await cell.connect(cell.node("n"), "thief"))
    yield made
    await made.log.close()


async def contents(log: NatsLog) -> dict[str, int]:
    """How many messages each subject of each stream holds."""
    found: dict[str, int] = {}
    for stream in (LOG, USAGE, EXECUTION):
        reply = await log.client.request(f"$JS.API.STREAM.INFO.{stream}", b'{"subjects_filter":">"}')
        found |= msgspec.json.decode(reply.data)["state"].get("subjects") or {}
    return found


# -- what a node can do ------------------------------------------------------------------------------------------------


async def test_a_node_loads_follows_and_stores_with_its_own_credentials(cell: SecuredNats, administrator: NatsLog) -> None:
    node = await cell.connect(cell.node(VICTIM), "executor")
    await store(administrator, fact("x", 1, node=TOKEN), fact("x", 1, node="n"))
    await store(administrator, fact("x", 2, node=TOKEN))
    reader = await node.follow_republished(f"node.{TOKEN}.>")
    assert await read(reader, 1) == [("x", 2)]
    await store(administrator, fact("x", 3, node=TOKEN), fact("x", 3, node="n"))
    assert await read(reader, 1) == [("x", 3)]
    for many in (1, 20):
        events = [fact(f"run.default.pod-{many}-{number}", number, node=TOKEN) for number in range(many)]
        assert isinstance(await node.append([Write(event=event, expected=0) for event in events]), Stored)
        await read(reader, many)
    head = await node.head(events[0].subject)
    assert head is not None
    assert head.event_id == events[0].id
    assert await node.publish(Event(subject=f"usage.{TOKEN}", data=UsageSample(node=VICTIM), id="u1", stream=USAGE)) is not None
    found = await node.identity(f"node.{TOKEN}.executor")
    assert found == await administrator.identity("node.n.executor")
    await node.client.request(f"node.{TOKEN}.run.default.bad", b"this is no event")
    assert not await reader.pull(10, 1.0)
    assert f"deadletter.{LOG}.node-{TOKEN}" in await contents(administrator)
    await node.close()


# -- what a thief of a node's credentials gets -------------------------------------------------------------------------

OTHERS = (
    "objects.core.pods.default.x",
    "metrics.n",
    "node.n.placement.default.x",
    "node.n.resources",
    "node.n.slo",
    "node.n.condition",
    f"node.{TOKEN}.run.default.x",
    f"node.{TOKEN}.executor",
    f"node.{TOKEN}.placement.default.x",
    "quotas._.x",
    "waiting.default.x",
    "migrations.x",
    "evictions.default.x",
    "descheduling.n",
    "yarn.n",
    "commits.scheduler.0",
    "services.scheduler.0",
    LOG_IDENTITY,
    f"usage.{TOKEN}",
    f"execution.{TOKEN}.cgroups",
    "execution._.audit",
    "deadletter.LOG.scheduler",
    f"deadletter.LOG.node-{TOKEN}",
    f"republished.node.{TOKEN}.placement.default.x",
    "republished.node.n.placement.default.x",
    f"cotenant.node.{TOKEN}.logs",
    f"cotenant.node.{TOKEN}.adopt",
    "cotenant.gateway.evict.descheduler-arbiter",
    "cotenant.gateway.evict.n",
    f"cotenant.gateway.node-evict.{TOKEN}",
    "cotenant.gateway.reserve.descheduler-arbiter",
    "$SRV.PING",
    "$SYS.REQ.SERVER.PING",
    "$JS.EVENT.ADVISORY.STREAM.CREATED.LOG",
    "_INBOX.gateway.x",
    "_R_.x",
)


async def test_a_thief_stores_nothing_but_the_nodes_own_and_reaches_nobody(thief: Thief, administrator: NatsLog) -> None:
    before = await contents(administrator)
    for subject in OTHERS:
        for headers in (None, {"Nats-Rollup": "sub"}):
            await thief.send(subject, headers=headers)
    await thief.settled()
    assert len(thief.refusals) == 2 * len(OTHERS), thief.refusals
    await administrator.client.flush()
    assert await contents(administrator) == before


async def test_a_thief_listens_to_nothing_but_the_nodes_own(thief: Thief, administrator: NatsLog) -> None:
    wanted = (
        ">", "*", "objects.>", "node.>", "node.n.>", "republished.>", "republished.node.>", f"republished.node.{TOKEN}.>",
        "_INBOX.>", f"_INBOX.{TOKEN}.>", "_INBOX.gateway.>", "_R_.>", "usage.>", "execution.>", "commits.>", "$JS.>", "$SYS.>",
        "$JS.API.>", "$JS.EVENT.>", f"cotenant.node.{TOKEN}.logs", "cotenant.node.>", "cotenant.gateway.evict.*", "$SRV.>",
        "$SRV.PING.cotenant-gateway",
    )  # fmt: skip
    for subject in wanted:
        await thief.listen(subject)
    await thief.settled()
    refused = {text.split('"')[1] for text in thief.refusals}
    assert {subject for subject in wanted if subject.lower() not in refused} == set()
    await store(administrator, fact("x", 1, node=TOKEN), fact("x", 2, node=TOKEN))
    await administrator.last_sequence(LOG)
    await thief.settled()
    assert thief.heard == []


API = tuple(
    f"{prefix}.{request}"
    for prefix in ("$JS.API", "cotenant.log")
    for request in (
        "INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.LOG", "STREAM.INFO.USAGE", "STREAM.CREATE.X", "STREAM.UPDATE.LOG",
        "STREAM.DELETE.LOG", "STREAM.PURGE.LOG", "STREAM.SNAPSHOT.LOG", "STREAM.RESTORE.LOG", "STREAM.MSG.GET.LOG",
        "STREAM.MSG.DELETE.LOG", "STREAM.LEADER.STEPDOWN.LOG", "STREAM.PEER.REMOVE.LOG", "DIRECT.GET.LOG", "DIRECT.GET.USAGE",
        "DIRECT.GET.LOG.>", f"DIRECT.GET.LOG.node.{TOKEN}.>", "DIRECT.GET.LOG.node.*.>", "DIRECT.GET.LOG.objects.core.x",
        "DIRECT.GET.HISTORY", "CONSUMER.CREATE.LOG", "CONSUMER.CREATE.LOG.x", "CONSUMER.CREATE.LOG.node-n",
        "CONSUMER.CREATE.LOG.node-n.>", "CONSUMER.CREATE.LOG.node-n.node.*.>", "CONSUMER.CREATE.LOG.node-n.objects.>",
        f"CONSUMER.CREATE.LOG.node-n.node.{TOKEN}.>", f"CONSUMER.CREATE.LOG.node-{TOKEN}.node.n.>",
        f"CONSUMER.CREATE.LOG.node-{TOKEN}.node.{TOKEN}.>", "CONSUMER.CREATE.USAGE.node-n.usage.n",
        "CONSUMER.DURABLE.CREATE.LOG.node-n", "CONSUMER.NAMES.LOG", "CONSUMER.LIST.LOG", "CONSUMER.INFO.LOG.node-n",
        f"CONSUMER.MSG.NEXT.LOG.node-{TOKEN}", "CONSUMER.MSG.NEXT.LOG.c-0", f"CONSUMER.DELETE.LOG.node-{TOKEN}",
        "CONSUMER.PAUSE.LOG.node-n", "CONSUMER.RESET.LOG.node-n", "META.LEADER.STEPDOWN", "SERVER.REMOVE", "ACCOUNT.PURGE.x",
    )
)  # fmt: skip


async def test_a_thief_has_no_other_request_of_jetstream(thief: Thief, administrator: NatsLog) -> None:
    body = {"name": "X", "subjects": ["x"], "multi_last": [">"], "batch": 100, "seq": 1, "last_by_subj": "objects.>"}
    answered = {subject: answer for subject in API if (answer := await thief.ask(subject, body))}
    assert answered == {}
    assert await administrator._api.names() == {LOG, HISTORY, USAGE, EXECUTION}


async def test_bodies_say_nothing_that_subjects_do_not(thief: Thief, administrator: NatsLog) -> None:
    await store(administrator, fact("secret", 1, node=TOKEN), fact("own", 1, node="n"))
    get = "cotenant.log.DIRECT.GET.LOG.node.n.own"
    bodies: tuple[dict[str, Any], ...] = (
        {"multi_last": [">"], "batch": 10}, {"seq": 1}, {"last_by_subj": f"node.{TOKEN}.secret"},
        {"next_by_subj": ">", "seq": 1},
    )  # fmt: skip
    for body in bodies:
        assert (await thief.ask(get, body)).startswith(b"NATS/1.0 408"), body
    create = "cotenant.log.CONSUMER.CREATE.LOG.node-n.node.n.>"
    config = {"name": "node-n", "ack_policy": "none", "deliver_policy": "all", "filter_subject": "node.n.>"}
    changes: tuple[dict[str, Any], ...] = (
        {"filter_subject": ">"},
        {"filter_subject": f"node.{TOKEN}.>"},
        {"filter_subject": "", "filter_subjects": ["node.n.>", "objects.>"]},
        {"filter_subject": ""},
        {"durable_name": "other"},
        {"deliver_subject": "objects.core.pods.default.x"},
        {"deliver_subject": f"node.{TOKEN}.run.default.x"},
    )
    before = await contents(administrator)
    for change in changes:
        answer = await thief.ask(create, {"stream_name": LOG, "config": config | change})
        assert b'"error"' in answer, (change, answer)
    named = await thief.ask(create, {"stream_name": LOG, "config": config | {"name": "other"}})
    assert b'"name":"node-n"' in named, "the subject's name counts"
    assert b'"error"' in await thief.ask(create, {"stream_name": USAGE, "config": config | {"filter_subject": "usage.*"}})
    assert await contents(administrator) == before


async def test_an_answer_of_the_server_is_stored_nowhere_and_forges_nothing(
    cell: SecuredNats, thief: Thief, administrator: NatsLog
) -> None:
    """Whoever asks the server chooses where the answer goes. What it holds is the thief's own: it may look like an object."""
    victim = await cell.connect(cell.node(VICTIM), "executor")
    reader = await victim.follow_republished(f"node.{TOKEN}.>")
    assert isinstance(reader, RepublishedReader)
    reader.loaded()
    await reader.pull(100, 0.5)
    await store(thief.log, fact("run.default.forged", 7, node="n"))
    await thief.log.client.request("node.n.run.default.headers", b"{}", headers={
        "Nats-Subject": f"node.{TOKEN}.placement.default.x", "Nats-Sequence": "9999", "Nats-Last-Sequence": "0",
    })  # fmt: skip
    create = "cotenant.log.CONSUMER.CREATE.LOG.node-n.node.n.>"
    config = {"name": "node-n", "ack_policy": "none", "deliver_policy": "all", "filter_subject": "node.n.>"}
    body = {"stream_name": LOG, "config": config}
    heard: list[bytes] = []
    await administrator.client.subscribe_raw("cotenant.>", lambda subject, *_: heard.append(subject))
    await administrator.client.flush()
    before = await contents(administrator)
    targets = (
        "objects.core.pods.default.x", "commits.scheduler.0", f"node.{TOKEN}.run.default.x", f"usage.{TOKEN}",
        "execution._.audit", f"republished.node.{TOKEN}.placement.default.x", "$JS.API.STREAM.PURGE.LOG",
        "$JS.EVENT.ADVISORY.STREAM.CREATED.LOG",
        "cotenant.gateway.evict.descheduler-arbiter", f"cotenant.node.{TOKEN}.adopt", LOG_IDENTITY,
    )  # fmt: skip
    for target in targets:
        for asked in ("run.default.forged", "run.default.headers", ">"):
            await thief.send(f"cotenant.log.DIRECT.GET.LOG.node.n.{asked}", b"", reply=target)
        await thief.send(create, msgspec.json.encode(body), reply=target)
        await thief.send("cotenant.log.CONSUMER.MSG.NEXT.LOG.node-n", b'{"batch":10,"expires":100000000}', reply=target)
        await thief.send("cotenant.log.CONSUMER.DELETE.LOG.node-n", b"", reply=target)
        await thief.send("usage.n", b"{}", reply=target, headers={"Nats-Expected-Stream": "none"})
        await thief.send("node.n.executor", b"{}", reply=target, headers={"Nats-Expected-Last-Sequence": "1"})
    await thief.ask("cotenant.log.DIRECT.GET.LOG.node.n.run.default.forged")
    assert thief.refusals == []
    await administrator.client.flush()
    assert await contents(administrator) == before
    assert heard == [], "nothing reaches the account of the services"
    await store(administrator, fact("x", 5, node=TOKEN))
    assert await read(reader, 1) == [("x", 5)]
    assert reader.gaps == 0
    await victim.close()


async def test_revoked_credentials_are_void_and_others_go_on(administrator: NatsLog, cell: SecuredNats) -> None:
    stolen = cell.node("stolen")
    assert stolen.credentials is not None
    copy = stolen.credentials.with_name("copy.creds")
    copy.write_bytes(stolen.credentials.read_bytes())
    thief = await cell.connect(Access(copy), "thief")
    await thief.client.request("node.stolen.run.default.x", b"{}")
    assert cell.keys.revoke("stolen") == 1
    cell.reload()
    with pytest.raises(NatsError):
        await thief.client.request("node.stolen.run.default.x", b"{}", timeout=2)
    again = await cell.connect(cell.node("stolen"), "executor")
    await again.client.request("node.stolen.run.default.x", b"{}")
    await store(administrator, fact("x", 1, node="n"))
    for log in (thief, again):
        await log.client.close()


# -- services ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", [role.name for role in SERVICE_ROLES])
async def test_a_service_publishes_what_its_role_says_and_nothing_of_another(
    service: str, cell: SecuredNats, administrator: NatsLog
) -> None:
    thief = Thief(await cell.connect(cell.access(service), service))
    own = set(NATS_ROLES[service].publish)
    other = {
        _literal(subject) for role in SERVICE_ROLES if role.name != service for subject in role.publish
        if subject not in own and not subject.startswith("$JS.API.STREAM.UPDATE")
    }  # fmt: skip
    forbidden = {
        "$JS.API.STREAM.CREATE.X", "$JS.API.STREAM.DELETE.LOG", "$JS.API.STREAM.PURGE.LOG", "$JS.API.STREAM.UPDATE.HISTORY",
        "$JS.API.STREAM.MSG.DELETE.LOG", "$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.NAMES.LOG", "$SYS.REQ.SERVER.PING",
        "usage.n", "republished.node.n.x", LOG_IDENTITY,
    } | ({"$JS.API.STREAM.UPDATE.LOG"} if service != "gateway" else set())  # fmt: skip
    refused = sorted(other | forbidden)
    before = await contents(administrator)
    for subject in refused:
        await thief.send(subject)
    await thief.settled()
    assert len(thief.refusals) == len(refused), set(refused) - {text.split('"')[1] for text in thief.refusals}
    assert await contents(administrator) == before
    for subject in ("_INBOX.gateway.x" if service != "gateway" else "_INBOX.scheduler.x", "objects.>", "$JS.API.>"):
        await thief.listen(subject)
    await thief.settled()
    assert len(thief.refusals) == len(refused) + 3
    await thief.log.close()


def _literal(subject: str) -> str:
    return subject.replace("*", "x").replace(">", "x")


# -- everybody else ----------------------------------------------------------------------------------------------------


async def test_without_credentials_nobody_gets_in(cell: SecuredNats) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await connect(cell.url, "nobody")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_of_the_machine_reads_neither_credentials_nor_streams(cell: SecuredNats) -> None:
    program = (
        "import os, socket, sys\n"
        "for path in sys.argv[2:]:\n"
        "    try:\n"
        "        os.listdir(path) if os.path.isdir(path) else open(path).read()\n"
        "    except OSError:\n"
        "        continue\n"
        "    print('read', path)\n"
        "with socket.create_connection(('127.0.0.1', int(sys.argv[1])), 10) as server:\n"
        "    server.recv(65536)\n"
        "    server.sendall(b'CONNECT {\"verbose\":false}\\r\\nSUB > 1\\r\\nPING\\r\\n')\n"
        "    print(server.recv(65536).decode().strip())\n"
    )
    files = [str(cell.keys.folder), *(str(path) for path in cell.keys.folder.rglob("*")), str(cell.server.store)]
    ran = subprocess.run(
        ["/usr/bin/env", "python3", "-c", program, str(cell.server.port), *files],
        user=65534, group=65534, extra_groups=[], capture_output=True, text=True, timeout=60, check=False, cwd="/",
    )  # fmt: skip
    assert ran.stdout.strip() == "-ERR 'Authorization Violation'", ran
