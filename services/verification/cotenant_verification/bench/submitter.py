"""The process that submits pods: batches of at most 500 to the log, as the gateway writes what arrives together; or, where
there is a gateway, by its API: one request a pod, over CONNECTIONS connections.

In: a file with the workload as JSON, a rate (0: as fast as they are stored). Out, to a file: for each pod the clock at which
its batch or its request was handed over (nanoseconds, the machine's monotonic clock).
"""

from __future__ import annotations

import array
import asyncio
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from cotenant.log.contract import WORTH_A_BATCH, Stored, Write
from cotenant.log.nats.log import connect
from cotenant_console.api.credentials import Server
from cotenant_verification.bench.workload import NAMESPACE, BenchWorkload, pod_document, pod_event

if TYPE_CHECKING:
    import aiohttp

BATCH = 500
TICK_SECONDS = 0.005
"""Pods that are due within one tick share a batch, as requests that arrive together do."""
CONNECTIONS = 64
TRIES = 10
AGAIN_SECONDS = 1.0
"""A request that is answered with 503 is retried after Retry-After; its clock keeps running."""


class Orders(msgspec.Struct, frozen=True):
    """What to submit: pods `first` to `last` - 1."""

    url: str
    workload: BenchWorkload
    rate: float
    first: int
    last: int
    out: str
    gateway: Server | None = None
    """None: the pods are written to the log."""


class _Pace:
    """How many pods are due."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._started = time.monotonic()

    async def due(self, done: int) -> int:
        """Wait until a pod is due; return the number of pods that are."""
        orders = self._orders
        while orders.rate:
            due = min(orders.last, orders.first + int((time.monotonic() - self._started) * orders.rate) + 1)
            if due > done:
                return due
            await asyncio.sleep(TICK_SECONDS if orders.rate > 1 / TICK_SECONDS else 1 / orders.rate / 4)
        return orders.last


async def _write(orders: Orders, times: array.array[int]) -> None:
    log = await connect(orders.url, "bench-submitter")
    pace = _Pace(orders)
    done = orders.first
    while done < orders.last:
        upto = min(await pace.due(done), done + BATCH)
        now = datetime.now(UTC)
        writes = [Write(event=pod_event(orders.workload, i, now), expected=0) for i in range(done, upto)]
        clock = time.monotonic_ns()
        batches = [writes] if len(writes) >= WORTH_A_BATCH else [[write] for write in writes]
        for outcome in await asyncio.gather(*map(log.append, batches)):
            if not isinstance(outcome, Stored):
                raise RuntimeError(f"pods were not stored: {outcome.reason}")
        for i in range(done, upto):
            times[i - orders.first] = clock
        done = upto
    await log.close()


async def _request(orders: Orders, times: array.array[int]) -> None:
    # A process that writes to the log need not import aiohttp.
    from cotenant_verification.http_sessions import http_session

    gateway = orders.gateway
    assert gateway is not None
    numbers: asyncio.Queue[int | None] = asyncio.Queue(CONNECTIONS)
    url = f"{gateway.url}/api/v1/namespaces/{NAMESPACE}/pods"
    headers = {"Content-Type": "application/json"}

    async def client(session: aiohttp.ClientSession) -> None:
        while (i := await numbers.get()) is not None:
            body = pod_document(orders.workload, i, datetime.now(UTC))
            times[i - orders.first] = time.monotonic_ns()
            for left in reversed(range(TRIES)):
                async with session.post(url, data=body, headers=headers) as answer:
                    reply = await answer.read()
                # Whether an unanswered write was stored is not known: then the pod may be there already.
                if answer.status == 201 or (answer.status == 409 and left < TRIES - 1):
                    break
                if answer.status != 503 or not left:
                    raise RuntimeError(f"the gateway refused a pod with {answer.status}: {reply[:300].decode()}")
                await asyncio.sleep(AGAIN_SECONDS)

    async def hand_out() -> None:
        pace = _Pace(orders)
        done = orders.first
        while done < orders.last:
            upto = await pace.due(done)
            for i in range(done, upto):
                await numbers.put(i)
            done = upto
        for _ in range(CONNECTIONS):
            await numbers.put(None)

    async with http_session(gateway.credentials, connections=CONNECTIONS) as session, asyncio.TaskGroup() as group:
        group.create_task(hand_out())
        for _ in range(CONNECTIONS):
            group.create_task(client(session))


async def _submit(orders: Orders) -> array.array[int]:
    times = array.array("q", [0]) * (orders.last - orders.first)
    await (_request if orders.gateway else _write)(orders, times)
    return times


def main() -> None:
    """Run; the first argument is the file with the orders."""
    orders = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Orders)
    Path(orders.out).write_bytes(uvloop.run(_submit(orders)).tobytes())


if __name__ == "__main__":
    main()
