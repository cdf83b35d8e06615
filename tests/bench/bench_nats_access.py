"""What credentials and TLS cost on NATS: writes and loads on a server that asks nobody, one that asks for credentials, and one
that also speaks TLS, in turns. CPU time of client and server together: how long it takes is mostly the disk.

    python -m tests.bench.bench_nats_access
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import uvloop

from cotenant.log.contract import LOG, Write
from cotenant.log.nats.access import NOBODY
from cotenant.log.nats.log import NatsLog, connect
from cotenant_console.nats_access.finding import access_of, keys_folder
from cotenant_console.nats_access.keys import prepared_keys
from cotenant_console.nats_access.roles import ADMINISTRATOR
from cotenant_console.pki.identity import nats_certificate
from cotenant_console.up.nats_server import LOOPBACK, Secured, answers, free_port, members, nats_processes, nats_urls
from cotenant_console.up.supervisor import Supervisor
from tests.bench.bench_readers import cpu_seconds
from tests.contract.toy import metric

WAYS = ("open", "credentials", "tls")
ROUNDS = 5
WRITES, IN_FLIGHT, BATCHES, SUBJECTS = 2000, 50, 100, 5000


async def writes(log: NatsLog) -> int:
    """Single writes, many in flight."""
    waiting = iter(range(WRITES))

    async def one() -> None:
        for number in waiting:
            await log.append([Write(event=metric(f"n{number % 500}", number))])

    await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))
    return WRITES


async def batches(log: NatsLog) -> int:
    """Batches of two, one after the other."""
    for number in range(BATCHES):
        await log.append([Write(event=metric(f"b{index}", number)) for index in range(2)])
    return BATCHES


async def load(log: NatsLog) -> int:
    """Messages of a load."""
    found = 0
    reader = await log.follow(LOG, ["metrics.*"])
    while not reader.snapshot_over:
        found += len(await reader.pull(1000, 1.0))
    await reader.close()
    return found


async def main() -> None:
    """Measure each way ROUNDS times in turns, and print medians."""
    folder = Path(tempfile.mkdtemp(prefix="cotenant-bench-"))
    supervisor = Supervisor(folder / "logs")
    logs: dict[str, NatsLog] = {}
    try:
        for way in WAYS:
            home, port = folder / way, free_port()
            home.mkdir()
            secured = None
            if way != "open":
                keys = prepared_keys(keys_folder(home))
                secured = Secured(keys.accounts_file, nats_certificate(home, (LOOPBACK,)) if way == "tls" else None)
            (spec,), _ = nats_processes(home, members([port]), secured)
            supervisor.start(type(spec)(way, spec.argv, spec.environment))
            while not await answers(port):  # noqa: ASYNC110 - a process of its own announces nothing
                await asyncio.sleep(0.05)
            url = nats_urls([port], tls=way == "tls")
            logs[way] = await connect(url, "bench", access_of(home, ADMINISTRATOR, url) if secured else NOBODY)
            await logs[way].declare()
            for first in range(0, SUBJECTS, 500):
                await logs[way].append([Write(event=metric(f"s{first + number}", 1)) for number in range(500)])
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(ROUNDS):
            for way, log in logs.items():
                for name, measured in (("writes", writes), ("batches", batches), ("load", load)):
                    server = [supervisor.processes[way].pid]
                    began = cpu_seconds(server) + time.process_time()
                    count = await measured(log)
                    used = cpu_seconds(server) + time.process_time() - began
                    found.setdefault((name, way), []).append(1e6 * used / count)
        for (name, way), values in sorted(found.items()):
            median, open_median = statistics.median(values), statistics.median(found[name, "open"])
            print(f"nats_access_{name}_{way} {median:.0f} us_of_cpu {100 * median / open_median:.0f} percent_of_open")
    finally:
        for log in logs.values():
            await log.close()
        await supervisor.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    uvloop.run(main())
