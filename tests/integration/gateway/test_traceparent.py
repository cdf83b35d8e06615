"""A request's trace goes into what it writes, also where no collector is named; lines of the log carry a message's trace."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from cotenant.events import Event
from cotenant.log.contract import LOG
from cotenant.log.nats.log import NatsLog, connect, read_all
from cotenant.model.subjects import pod_subject
from cotenant.model.trace_context import trace_of
from tests.integration.gateway.gateway_process import MERGE, PODS, WAIT_SECONDS, GatewayProcess, body_of, pod
from tests.nats_server import NatsServer
from tests.streams import declare_streams

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
LATER = "0af7651916cd43dd8448eb211c80319c"
SPAN = "00f067aa0ba902b7"


async def writes(log: NatsLog, name: str) -> list[Event]:
    return await read_all(log, LOG, [pod_subject("default", name)])


async def test_what_a_request_writes_has_its_trace_and_its_flag(gateway: GatewayProcess, nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    async with gateway.session() as session:
        for name, header in {"a": f"00-{TRACE}-{SPAN}-00", "b": f"00-{TRACE}-{SPAN}-01", "c": "nonsense", "d": ""}.items():
            async with session.post(PODS, json=pod(name), headers={"traceparent": header} if header else {}) as answer:
                await body_of(answer, 201)
        later = {**MERGE, "traceparent": f"00-{LATER}-{SPAN}-01"}
        async with session.patch(f"{PODS}/a", data='{"metadata":{"labels":{"x":"y"}}}', headers=later) as answer:
            await body_of(answer, 200)
        created, changed = await writes(log, "a")
        async with session.delete(f"{PODS}/a", headers={"traceparent": f"00-{TRACE}-{SPAN}-01"}) as answer:
            await body_of(answer, 200)
    assert (trace_of(created.traceparent), created.traceparent[-2:]) == (TRACE, "00")
    assert (trace_of(changed.traceparent), changed.traceparent[-2:]) == (LATER, "01")
    (ended,) = await writes(log, "a")
    assert ended.tombstone
    assert trace_of(ended.traceparent) == TRACE
    assert [event.traceparent[-2:] for event in await writes(log, "b")] == ["01"]
    own = {trace_of(event.traceparent) for name in ("c", "d") for event in await writes(log, name)}
    assert len(own) == 2
    assert not own & {TRACE, LATER, ""}
    spans = [event.traceparent[36:52] for name in "abcd" for event in await writes(log, name)]
    assert len(set(spans)) == len(spans)
    assert SPAN not in spans
    await log.close()


async def test_a_line_about_a_message_carries_its_trace(nats_server: NatsServer) -> None:
    flags = ["--nats", nats_server.url, "--http-port", "-1", "--log-format", "json"]
    await asyncio.to_thread(declare_streams, nats_server.url)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cotenant_scheduler", *flags, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while b"loaded" not in await process.stderr.readline():
                pass
            log = await connect(nats_server.url, "test")
            await log.client.request("metrics.bad", f'{{"traceparent":"00-{TRACE}-{SPAN}-01","type":5}}'.encode())
            while b"dead letter" not in (line := await process.stderr.readline()):
                pass
            await log.close()
    finally:
        process.terminate()
        await process.wait()
    said = json.loads(line)
    assert (said["trace_id"], said["span_id"]) == (TRACE, SPAN)
