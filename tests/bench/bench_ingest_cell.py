"""metrics-ingest with a whole cell of NODES nodes of PODS pods: its memory, and how long it needs to start again.

First a core in this process takes FILLING_MINUTES of samples in virtual time, so that the longest windows are full: a sample
a second, in one message a node and minute, for the last FULL_MINUTES in one every 15 s. Every second of that time it decides,
so that nodes are reported and stored one after the other. Its pods are placed; use varies by a factor of three. What it decides
last is written to a LOG on a nats-server of the bench's own, beside the nodes, executors and placements, and each node's last
messages to USAGE. Only RUN_NODES nodes are run like that; the others are written as copies of these, under names and uids of
their own.

Then the service is started on that server as a process. Out: the seconds from its start until /readyz says so, the seconds of a
core that it took, its resident memory then and SETTLED_SECONDS later, when it has taken the samples that waited. Run it alone:

    python -m tests.bench ingest_cell          NODES=10000
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

import msgspec

from cotenant.events.envelope import Event, decode_event, encode_event
from cotenant.events.node.predictions import PredictionState
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.node.usage import PodUsage, Series, UsageSample
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.log.contract import LOG, USAGE, Stored, Write
from cotenant.log.nats.log import NatsLog, connect
from cotenant.model.subjects import executor_subject, node_subject, placement_subject, usage_subject
from cotenant_metrics_ingest.core import MetricsIngestCore
from cotenant_verification.bench.over_http.processes import cpu_seconds, memory_mib
from tests.builders import encoded, node_document, pod_document, stored
from tests.nats_server import NatsServer, free_port

NODES = int(os.environ.get("NODES", "10000"))
RUN_NODES = min(NODES, int(os.environ.get("RUN_NODES", "200")))
PODS = 30
FILLING_MINUTES = 32
FULL_MINUTES = 2
PERIOD_SECONDS = 15
TOGETHER = 500
"""Messages in one batch."""
BODIES = 40
"""Different messages, of which each node sends one after the other."""
START = datetime.now(UTC) - timedelta(minutes=FILLING_MINUTES + FULL_MINUTES)
READY_SECONDS = 600
SETTLED_SECONDS = 45
"""By then what the load freed has gone back to the system (`runtime.freed_memory`)."""
_NAME = b"node-00000"
GIB = 1 << 30


def name_of(index: int) -> str:
    """A node's name; all are as long as _NAME."""
    return f"node-{index:05}"


def uid_of(node: str, pod: int) -> str:
    """A pod's uid: a UUID, as in a cluster."""
    return f"{int(node[5:]):08x}-{pod:04x}-4000-8000-000000000000"


def body(dice: random.Random, seconds: int) -> bytes:
    """A message of node 0, to be made one of others."""
    offsets = tuple(range(-1000 * (seconds - 1), 1, 1000))

    def series(cpu: int, memory: int) -> Series:
        return Series(
            cpu_milli=tuple(cpu + dice.randrange(2 * cpu) for _ in offsets),
            memory_bytes=tuple(memory + 4096 * dice.randrange(memory >> 12) for _ in offsets),
        )

    node = _NAME.decode()
    sample = UsageSample(
        node=node,
        boot="1",
        offsets_ms=offsets,
        node_usage=series(8000, 32 * GIB),
        system_usage=series(500, 2 * GIB),
        pods=tuple(
            PodUsage(
                namespace="default",
                name=f"pod-{pod:02}",
                uid=f"{node}-{pod:04x}",
                qos="LS" if pod % 3 else "BE",
                priority="koord-prod" if pod % 3 else "koord-batch",
                series=series(dice.choice((50, 100, 300)), GIB),
                throttled_permille=3,
            )
            for pod in range(PODS)
        ),
    )
    return msgspec.json.encode(sample)


_SAMPLE = msgspec.json.Decoder(UsageSample)


def message(text: bytes, index: int, counter: int, at: datetime, sequence: int) -> Event:
    """A message of a node, as it comes from the wire."""
    node = name_of(index)
    mine = text.replace(_NAME + b"-", f"{index:08x}-0000-4000-8000-00000000".encode()).replace(_NAME, node.encode())
    sample = msgspec.structs.replace(_SAMPLE.decode(mine), counter=counter)
    return Event(
        subject=usage_subject(node), data=sample, time=at, id=f"{node}/{counter}", source="/bench", stream=USAGE,
        sequence=sequence,
    )


def facts(indices: Iterable[int]) -> Iterator[Event]:
    """Nodes, executors and placements."""
    amounts = {"cpu": 32_000, "memory": 128 * GIB}
    for index in indices:
        node = name_of(index)
        yield Event(subject=node_subject(node), data=stored(node_document(node)))
        yield Event(subject=executor_subject(node), data=ExecutorStatus(node=node, allocatable=amounts))
        for pod in range(PODS):
            uid = f"{index:08x}-0000-4000-8000-00000000{pod:04x}"
            document = pod_document(
                f"pod-{pod:02}",
                uid=uid,
                requests={"cpu": "900m", "memory": "3Gi"},
                image="registry/service:1",
                created="2026-01-01T00:00:00Z",
                priority=9500 if pod % 3 else 5500,
            )
            placement = Placement(
                node=node,
                namespace="default",
                name=f"pod-{pod:02}",
                uid=uid,
                phase=PlacementPhase.BOUND,
                pod=encoded(document),
                requests={"cpu": 900, "memory": 3 * GIB},
            )
            yield Event(subject=placement_subject(node, "default", f"pod-{pod:02}"), data=placement)


class Cell:
    """The core, its LOG's sequences, and the events that a new process will find."""

    def __init__(self) -> None:
        self.core = MetricsIngestCore()
        self.sequence = 0
        self.usage = 0

    def fold(self, event: Event, at: datetime) -> Event:
        """Give an event its place on the log, and fold it."""
        self.sequence += 1
        stamped = msgspec.structs.replace(event, sequence=self.sequence, time=at, id=f"bench/{self.sequence}", source="/bench")
        self.core.apply(stamped)
        return stamped

    def second(self, number: int, senders: Sequence[int], bodies: Sequence[bytes]) -> list[Event]:
        """One second: the senders' messages, and what follows."""
        at = START + timedelta(seconds=number)
        for index in senders:
            self.usage += 1
            self.core.apply(message(bodies[(index + number) % BODIES], index, number, at, self.usage))
        found: list[Event] = []
        while events := self.core.decide(at):
            for event in events:
                stamped = self.fold(event, at)
                wire = encode_event(stamped)
                found.append(
                    decode_event(wire, subject=stamped.subject, stream=LOG, sequence=0, replaces=stamped.replaces)
                )
        return found


def copies(event: Event, index: int) -> Iterator[Event]:
    """The event of a node that is run, as it is and of each node that copies it."""
    yield event
    data, name = event.data, name_of(index)
    text = msgspec.json.encode(data)
    for other in range(index + RUN_NODES, NODES, RUN_NODES):
        mine = text.replace(name.encode(), name_of(other).encode()).replace(f"{index:08x}-".encode(), f"{other:08x}-".encode())
        copy = msgspec.json.decode(mine, type=type(data))
        if isinstance(copy, PredictionState):
            uids = copy.packed_pods
            ends = [uids[start + 4 : start + 16] for start in range(0, len(uids), 16)]
            copy = msgspec.structs.replace(copy, packed_pods=b"".join(other.to_bytes(4) + end for end in ends))
        subject = event.subject.replace(name, name_of(other))
        yield msgspec.structs.replace(event, subject=subject, data=copy, id=f"{event.id}/{other}")


async def store(log: NatsLog, events: Iterable[Event]) -> None:
    """Write events to LOG."""
    waiting = iter(events)
    while some := list(islice(waiting, TOGETHER)):
        outcome = await log.append([Write(event=event) for event in some])
        if not isinstance(outcome, Stored):
            raise RuntimeError(f"not stored: {outcome}")


def index_of(event: Event) -> int:
    """Which node's metrics or models an event is."""
    return int(event.subject.partition("node-")[2])


async def fill(log: NatsLog) -> None:
    """Run the cell, and leave its last state on the server."""
    cell, dice = Cell(), random.Random(1)
    await store(log, [cell.fold(event, START) for event in facts(range(RUN_NODES))])
    others = (
        msgspec.structs.replace(event, time=START, id=f"bench/{event.subject}", source="/bench")
        for event in facts(range(RUN_NODES, NODES))
    )
    await store(log, others)
    cell.core.decide(START)
    slow, quick = ([body(dice, seconds) for _ in range(BODIES)] for seconds in (60, PERIOD_SECONDS))
    filled = 60 * FILLING_MINUTES
    last: dict[str, Event] = {}
    for number in range(1, filled + 60 * FULL_MINUTES + 1):
        full = number > filled
        span = PERIOD_SECONDS if full else 60
        senders = range(number % span, RUN_NODES, span)
        for event in cell.second(number, senders, quick if full else slow):
            last[event.subject] = event
        if number > filled + 60 * (FULL_MINUTES - 1):
            at = START + timedelta(seconds=number)
            for index in senders:
                for event in copies(message(quick[(index + number) % BODIES], index, number, at, 0), index):
                    await log.publish(event)
    await store(log, (copy for event in last.values() for copy in copies(event, index_of(event))))


def start_again(url: str) -> None:
    """Start the service on what there is, and wait until it is ready."""
    port = free_port()
    command = [sys.executable, "-m", "cotenant_metrics_ingest", "--nats", url, "--http-port", str(port)]
    began = time.monotonic()
    process = subprocess.Popen(command)
    try:
        while not ready(port):
            if process.poll() is not None or time.monotonic() - began > READY_SECONDS:
                raise RuntimeError("the service did not become ready")
            time.sleep(0.05)
        print(f"ingest_cell_restart {time.monotonic() - began:.1f} s")
        print(f"ingest_cell_restart_cpu {cpu_seconds(process.pid):.1f} s")
        print(f"ingest_cell_ready_resident {memory_mib(process.pid)} MiB")
        time.sleep(SETTLED_SECONDS)
        print(f"ingest_cell_settled_cpu {cpu_seconds(process.pid):.1f} s")
        print(f"ingest_cell_settled_resident {memory_mib(process.pid)} MiB")
    finally:
        process.terminate()
        process.wait()


def ready(port: int) -> bool:
    """Whether /readyz says so."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def filled(url: str) -> None:
    """Fill a server."""
    log = await connect(url, "bench")
    await log.declare()
    await fill(log)
    await log.close()


def run() -> None:
    """Print the figures."""
    server = NatsServer(sync="1m")
    server.start()
    try:
        asyncio.run(filled(server.url))
        start_again(server.url)
    finally:
        server.close()


if __name__ == "__main__":
    run()
