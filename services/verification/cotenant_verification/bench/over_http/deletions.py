"""`bench deletions`: running pods of simulated nodes are deleted over HTTP by many clients at once, while others keep writing.

In: sizes, a grace period. Out: deletions answered and pods gone a second with their latencies; other writes before and
meanwhile; CPU time a deletion of each process, with and without what it takes anyway. A pod is gone when its object's
tombstone is on LOG.

The stack is that of `bench schedule --stack`; one process has the clients (`deleter`), another one creates the pods.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.log.contract import LOG
from cotenant.log.nats.reader import NatsReader
from cotenant_console.api.credentials import Server
from cotenant_verification.bench.figures import Latency, latency
from cotenant_verification.bench.over_http.deleter import Deleted, Deletions
from cotenant_verification.bench.stack import MAX_NODES, fleets, start_stack
from cotenant_verification.bench.submitter import Orders
from cotenant_verification.bench.testbed import BenchError, Testbed
from cotenant_verification.bench.workload import NAMESPACE, BenchWorkload, node_events, pod_number, quota_events, stack_events

LIMIT_SECONDS = 900.0
IDLE_SECONDS = 120.0
"""No pod started or ended for this long: the rest will not."""
ALONE_SECONDS = 10.0
OTHER_RATE = 20.0
RENEW_SECONDS = 60.0
AGAIN_SECONDS = 5.0
SAMPLE_SECONDS = 0.5


class DeletionFigures(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The measurements."""

    pods: int
    gone: int
    failed: tuple[str, ...] = ()
    answered_per_second: float
    answered_ms: Latency | None = None
    gone_per_second: float
    """From the first request to the last tombstone."""
    gone_ms: Latency | None = None
    other_writes_alone_ms: Latency | None = None
    other_writes_meanwhile_ms: Latency | None = None
    other_writes_p99_ratio: float | None = None
    cpu_ms_per_deletion: dict[str, float] = {}
    """By process, from the first request to the last tombstone; it includes the other writes."""
    own_cpu_ms_per_deletion: dict[str, float] = {}
    """The same less what the process took before, for as long: executors' reports and the other writes cost by time."""
    peak_memory_mib: dict[str, int] = {}


class _Used(msgspec.Struct, frozen=True):
    """The CPU time of each process by a moment."""

    at: float
    seconds: dict[str, float]

    @classmethod
    def by_now(cls, testbed: Testbed) -> _Used:
        return cls(time.monotonic(), testbed.cpu_seconds())


async def run(workload: BenchWorkload, clients: int, grace: int | None, say: Callable[[str], None]) -> DeletionFigures:
    """Create the pods, wait until they run, delete them; `say` gets lines of progress."""
    async with Testbed() as testbed:
        gateway = await filled(testbed, workload, say)
        out = testbed.folder / "deleted"
        end = await testbed.log.last_sequence(LOG)
        reader = await testbed.log.follow(LOG, (f"objects.core.pods.{NAMESPACE}.*",), after=end)
        reader.loaded()
        reader.max_behind = 0
        orders = Deletions(gateway, workload.pods, clients, grace, OTHER_RATE, ALONE_SECONDS, str(out))
        testbed.start_module("deleter", "cotenant_verification.bench.over_http.deleter", testbed.written(orders))
        used = [_Used.by_now(testbed)]
        gone = await _gone(testbed, reader, workload.pods, used)
        used.append(_Used.by_now(testbed))
        await testbed.ended("deleter", LIMIT_SECONDS)
        seen = msgspec.json.decode(out.read_bytes(), type=Deleted)
        return _figures(workload.pods, seen, gone, used, testbed.peak_memory_mib())


async def filled(
    testbed: Testbed, workload: BenchWorkload, say: Callable[[str], None], *, at_once: int = MAX_NODES
) -> Server:
    """Start the stack, create the pods and wait until all run; returns the gateway. `at_once`: see `start_stack`."""
    now = datetime.now(UTC)
    await testbed.write(stack_events(now))
    await testbed.write([*node_events(workload, now, lent=False), *quota_events(workload, now)])
    renewing = asyncio.ensure_future(_renew_metrics(testbed, workload, say))
    try:
        gateway = await start_stack(testbed, fleets(workload), say, at_once=at_once)
        testbed.start_scheduler()
        await testbed.scheduler_loaded()
        reader = await testbed.log.follow(LOG, (f"node.*.run.{NAMESPACE}.*",), after=await testbed.log.last_sequence(LOG))
        reader.loaded()
        reader.max_behind = 0
        submit = Orders(testbed.url, workload, 0, 0, workload.pods, str(testbed.folder / "submitted"), gateway)
        testbed.start_module("submitter", "cotenant_verification.bench.submitter", testbed.written(submit))
        running: set[str] = set()
        last = time.monotonic()
        while len(running) < workload.pods:
            for event in await reader.pull(1000, SAMPLE_SECONDS):
                if isinstance(event.data, RunStatus) and event.data.phase is RunPhase.RUNNING:
                    running.add(event.data.name)
                    last = time.monotonic()
            if time.monotonic() - last > IDLE_SECONDS:
                raise BenchError(f"only {len(running)} of {workload.pods} pods run: fewer --pods or more --nodes")
        await reader.close()
        testbed.stop("submitter")
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
    return gateway


async def _renew_metrics(testbed: Testbed, workload: BenchWorkload, say: Callable[[str], None]) -> None:
    """Nodes whose metric has expired take no pods, and filling a large cell takes longer than that on a small machine. A server
    that is too busy to answer is asked again."""
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        renewed = False
        while not renewed:
            events = node_events(workload, datetime.now(UTC), lent=False)
            try:
                await testbed.write(event for event in events if isinstance(event.data, NodeMetricComputed))
                renewed = True
            except BenchError as error:
                say(f"the nodes' metrics: {error}")
                await asyncio.sleep(AGAIN_SECONDS)


async def _gone(testbed: Testbed, reader: NatsReader, pods: int, used: list[_Used]) -> dict[int, int]:
    """When each pod was gone (nanoseconds, monotonic). `used` gets the processes' CPU time just before the first one."""
    before = used[0]
    gone: dict[int, int] = {}
    last = time.monotonic()
    while len(gone) < pods and time.monotonic() - last < IDLE_SECONDS:
        began = bool(gone)
        events = await reader.pull(1000, SAMPLE_SECONDS)
        if not began and not events:
            before = _Used.by_now(testbed)
        for event in events:
            if event.tombstone:
                last = time.monotonic()
                gone[pod_number(event.subject.rpartition(".")[2])] = time.monotonic_ns()
    await reader.close()
    used.append(before)
    return gone


def _figures(
    pods: int, seen: Deleted, gone: dict[int, int], used: Sequence[_Used], memory: dict[str, int]
) -> DeletionFigures:
    started, before, after = used
    spans = (after.at - before.at) / max(before.at - started.at, 1e-9)
    own: dict[str, float] = {}
    cpu: dict[str, float] = {}
    for name, seconds in sorted(after.seconds.items()):
        earlier = before.seconds.get(name, 0.0)
        cpu[name] = round(1e3 * (seconds - earlier) / pods, 3)
        if name in started.seconds:
            own[name] = round(1e3 * (seconds - earlier - spans * (earlier - started.seconds[name])) / pods, 3)
    alone = latency([took for due, took in seen.others if due < seen.began])
    meanwhile = latency([took for due, took in seen.others if due >= seen.began])
    seconds = (seen.ended - seen.began) / 1e9
    last = max(gone.values(), default=seen.ended)
    return DeletionFigures(
        pods=pods,
        gone=len(gone),
        failed=tuple(seen.failed[:5]),
        answered_per_second=round(pods / seconds, 1),
        answered_ms=latency(seen.answered_ms),
        gone_per_second=round(len(gone) / max((last - seen.began) / 1e9, 1e-9), 1),
        gone_ms=latency([(clock - seen.asked[number]) / 1e6 for number, clock in gone.items()]),
        other_writes_alone_ms=alone,
        other_writes_meanwhile_ms=meanwhile,
        other_writes_p99_ratio=round(meanwhile.p99 / alone.p99, 2) if alone and meanwhile and alone.p99 else None,
        cpu_ms_per_deletion=cpu,
        own_cpu_ms_per_deletion=own,
        peak_memory_mib=dict(sorted(memory.items())),
    )
