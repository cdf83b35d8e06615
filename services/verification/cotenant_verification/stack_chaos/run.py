"""One run: the stack comes up, clients and faults run side by side, everything becomes idle, and the history is checked against
the log.

In: a seed, a span, faults. Out: a report. The stack lies in a temporary folder, which stays where something was broken.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from cotenant.engine.replay import verify
from cotenant.log.contract import LOG
from cotenant.log.nats.log import connect
from cotenant_console.commands.replay import RECOMPUTED
from cotenant_console.definitions import definitions
from cotenant_console.up.nats_server import nats_urls
from cotenant_verification.stack_chaos.check_pods import check_pods
from cotenant_verification.stack_chaos.check_reads import check_reads
from cotenant_verification.stack_chaos.check_watches import check_watches
from cotenant_verification.stack_chaos.check_writes import check_writes
from cotenant_verification.stack_chaos.clients import Registers
from cotenant_verification.stack_chaos.cluster import ServerCluster
from cotenant_verification.stack_chaos.nemesis import Nemesis
from cotenant_verification.stack_chaos.pods import BUDGETS, LABEL, PodClients
from cotenant_verification.stack_chaos.records import BrokenPromise, Fault
from cotenant_verification.stack_chaos.run_report import RunReport, longest_gaps
from cotenant_verification.stack_chaos.truth import Observer, Truth, find_truth
from cotenant_verification.stack_chaos.watchers import Watcher

SETTLE_SECONDS = 5.0
RECOMPUTED_RIGHT = "commits recompute"


async def run(
    seed: int,
    span: float,
    faults: Sequence[Fault],
    say: Callable[[str], None],
    *,
    clients: int = 6,
    keep: str = "",
    own_disks: bool = False,
) -> RunReport:
    """Carry out one run. `keep`: a folder that stays; any other is removed unless a promise was broken or the run failed.
    `own_disks`: servers store on disks that can be filled."""
    folder = Path(keep or tempfile.mkdtemp(prefix="cotenant-chaos-"))
    cluster = ServerCluster(folder, own_disks=own_disks)
    stays = True
    try:
        await cluster.start()
        report = await _under_faults(cluster, seed, span, faults, say, clients)
        stays = bool(keep or report.violations)
        report.folder = str(folder) if stays else ""
    except asyncio.CancelledError:
        stays = bool(keep)
        raise
    finally:
        await cluster.stop()
        await asyncio.to_thread(cluster.close, keep=stays)
        if not stays:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    return report


async def _under_faults(
    cluster: ServerCluster, seed: int, span: float, faults: Sequence[Fault], say: Callable[[str], None], clients: int
) -> RunReport:
    began = time.monotonic()
    log = await connect(cluster.nats_url, "chaos", cluster.access)
    urls = [nats_urls([member.port]) for member in cluster.members]
    observers = [await connect(url, "chaos", cluster.access) for url in urls]
    observer = Observer(observers)
    gateways, credentials = cluster.gateway_urls, cluster.credentials
    registers, pods = Registers(gateways, credentials, seed, began), PodClients(gateways, credentials, seed)
    nemesis = Nemesis(cluster, log, began, say)
    stop = asyncio.Event()
    looking = asyncio.ensure_future(observer.run())
    try:
        await pods.declare()
        async with _running(
            registers.run(clients, stop),
            pods.run(stop),
            *(Watcher(registers, gateway).run(stop) for gateway in cluster.gateway_urls),
            stop=stop,
        ):
            await nemesis.run(faults)
            cluster.heal()
            await asyncio.sleep(max(0.0, began + span - time.monotonic()))
        await cluster.until_ready()
        await asyncio.sleep(SETTLE_SECONDS)
        await registers.list_finally(await log.last_sequence(LOG))
        truth = await find_truth(observer, log, urls)
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        for connection in (log, *observers):
            await connection.close()
    history = registers.history
    violations = [
        *truth.violations,
        *check_writes(history.writes, truth.versions, truth.missing),
        *check_reads(history.listings, truth.versions, truth.missing),
        *check_watches(history.watches, truth.versions, truth.missing),
        *check_pods(truth.events, LABEL, BUDGETS),
    ]
    commits, differing = await asyncio.to_thread(_recomputed, truth)
    violations += differing
    return RunReport(
        seed=seed,
        seconds=span,
        faults=nemesis.done,
        writes=history.writes,
        listings=len(history.listings),
        watches=len(history.watches),
        changes=sum(len(watch.changes) for watch in history.watches),
        evictions=pods.evictions,
        log_messages=truth.end,
        missing=sorted(truth.missing),
        commits=commits,
        gaps=longest_gaps(registers.progress, nemesis.done),
        crashes=[str(crash) for crash in cluster.supervisor.crashes if "SIGKILL" not in crash.how],
        load_average=os.getloadavg(),
        violations=violations,
    )


@contextlib.asynccontextmanager
async def _running(*parts: object, stop: asyncio.Event) -> AsyncIterator[None]:
    """Run clients beside the block; at its end they are stopped. A client that fails ends the run."""
    tasks = [asyncio.ensure_future(part) for part in parts if asyncio.iscoroutine(part)]
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*tasks)


def _recomputed(truth: Truth) -> tuple[int, list[BrokenPromise]]:
    report = verify(
        truth.events, definitions(RECOMPUTED), complete_from_start=bool(truth.events) and truth.events[0].sequence == 1
    )
    if not report.differing:
        return report.verified, []
    first = report.first_difference
    text = f"{report.differing} of {report.verified} commits differ; the first: {first}"
    return report.verified, [BrokenPromise(RECOMPUTED_RIGHT, text[:2000])]
