"""A year of a small cell on a real server in minutes: does anything grow?

LIVE pods, of which REPLACED end and come again under other names each virtual day, a node that is replaced each day, and a
service that starts again each day. The bench writes what users, scheduler and executors would; the services follow as processes
of their own. TTLs are scaled: a tombstone stays TTL_SECONDS instead of five minutes, and so do the start markers that the bench
writes.

Out, at the end of the first day, of each month and of the last day, once that day's tombstones have expired: LOG's messages,
subjects (at last also the families of subjects that have grown), bytes, and its folder; seconds to load all of it; resident
memory of each service and of the server. Ratios compare the last day with the first (load) and with
the first month (memory: by then caches are full).

    python -m tests.bench year            YEAR_DAYS=365 YEAR_REPLACED=1000
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import uvloop

from cotenant.engine.commit import Identity
from cotenant.engine.load import Load
from cotenant.events.commits import Commit
from cotenant.events.envelope import Event, Payload
from cotenant.events.node.runs import ContainerRun, ExecutorStatus, RunPhase, RunStatus
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.log.contract import LOG, TOMBSTONE_TTL_SECONDS, Stored, Write
from cotenant.log.nats.jetstream import JetStream
from cotenant.log.storing import store_batch
from cotenant.model.subjects import (
    commit_subject,
    executor_subject,
    node_subject,
    placement_subject,
    pod_subject,
    run_subject,
)
from cotenant_console.api.client import Client, text_at
from cotenant_console.api.credentials import Server
from cotenant_console.pki.identity import GATEWAY_NAMES, prepared
from cotenant_console.up.nats_server import free_port
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_verification.bench.over_http.processes import memory_mib
from cotenant_verification.bench.testbed import BenchError, Testbed
from tests.builders import encoded, node_document, pod_document, stored

DAYS = int(os.environ.get("YEAR_DAYS", "365"))
LIVE = 1_000
REPLACED = int(os.environ.get("YEAR_REPLACED", "1000"))
NODES = 20
MONTH = 30
TTL_SECONDS = 15
"""Longer than a service on a crowded machine is behind: it would miss tombstones that expire before it reads them."""
TOGETHER = 750
"""Messages in one batch: the six of each pod that is replaced stay in order, whatever batch they come to."""
MAX_LAG = 3_000
"""The writer waits while the gateway is further behind than that."""
LAG_SECONDS = 300
SETTLED_SECONDS = TTL_SECONDS + 2
"""The subjects of LOG are as many as they were this long ago: no tombstone is left to expire."""
LOADS = 3
TRIES = 20
FOLLOWING = {
    "scheduler": "cotenant_scheduler",
    "quota-tree": "cotenant_quota_tree",
    "batch-resource-calculator": "cotenant_batch_resource_calculator",
    "descheduler-arbiter": "cotenant_descheduler_arbiter",
}


class Figures(msgspec.Struct):
    """What was seen at the end of a day."""

    day: int
    messages: int
    subjects: int
    kib: int
    folder_kib: int
    load_cpu_seconds: float
    """Of the reader and its fold: on a crowded machine wall time says more about the others."""
    load_seconds: float
    memory_mib: dict[str, int]
    families: Counter[str]
    """Subjects by their first token, those of nodes by the third."""


class Year:
    """The writer."""

    def __init__(self, testbed: Testbed, api: Client) -> None:
        self.testbed = testbed
        self.api = api
        self.live: deque[tuple[str, str]] = deque()
        """Name and node, the oldest first."""
        self._made = 0
        self._prior = 0
        """Sequence of the last batch's record, which the next one expects: a batch that nobody answered is not stored twice."""
        self._ids = 0

    def _event(self, subject: str, data: Payload, *, ends: bool = False) -> Event:
        self._ids += 1
        return Event(
            subject=subject,
            data=data,
            id=f"year/{self._ids}",
            source="/cell/year/0",
            time=datetime.now(UTC),
            tombstone=ends,
            ttl_seconds=TOMBSTONE_TTL_SECONDS if ends else 0,
        )

    def _pod(self) -> Iterator[Event]:
        """A new pod, placed and running."""
        self._made += 1
        name, node = f"pod-{self._made:07}", f"node-{self._made % NODES}"
        self.live.append((name, node))
        document = pod_document(name, labels={"app": "year"}, requests={"cpu": "10m", "memory": "16Mi"}, schedulerName="year")
        uid = document["metadata"]["uid"]
        yield self._event(pod_subject("default", name), stored(document))
        place = Placement(node=node, namespace="default", name=name, uid=uid, pod=encoded(document), bound_at=datetime.now(UTC))
        yield self._event(placement_subject(node, "default", name), place)
        main = ContainerRun(name="main", state="running", ready=True)
        run = RunStatus(node=node, namespace="default", name=name, uid=uid, phase=RunPhase.RUNNING, containers=(main,))
        yield self._event(run_subject(node, "default", name), run)

    def _end(self) -> Iterator[Event]:
        """The oldest pod ends: its report first, so that no service has anything left to do."""
        name, node = self.live.popleft()
        uid = f"uid-{name}"
        run = RunStatus(node=node, namespace="default", name=name, uid=uid, phase=RunPhase.STOPPED)
        yield self._event(run_subject(node, "default", name), run, ends=True)
        gone = Placement(node=node, namespace="default", name=name, uid=uid, phase=PlacementPhase.GONE)
        yield self._event(placement_subject(node, "default", name), gone, ends=True)
        yield self._event(pod_subject("default", name), ObjectDeleted(uid=uid), ends=True)

    def _node(self, name: str) -> Iterator[Event]:
        figures = {"cpu": 16_000, "memory": 64 << 30, "pods": 200}
        yield self._event(node_subject(name), stored(node_document(name)))
        yield self._event(executor_subject(name), ExecutorStatus(node=name, boot="1", capacity=figures, allocatable=figures))

    async def begin(self) -> None:
        """The cell before its first day."""
        for number in range(NODES):
            await self._store([*self._node(f"node-{number}")])
        pods = [event for _ in range(LIVE) for event in self._pod()]
        for first in range(0, len(pods), TOGETHER):
            await self._store(pods[first : first + TOGETHER])

    async def day(self, number: int) -> None:
        """One day."""
        events = [event for _ in range(REPLACED) for event in (*self._end(), *self._pod())]
        events += self._node(f"spare-{number}")
        if number > 1:
            before = f"spare-{number - 1}"
            events.append(self._event(node_subject(before), ObjectDeleted(), ends=True))
            events.append(self._event(executor_subject(before), ExecutorStatus(node=before), ends=True))
        identity = Identity(service="year", replica=f"host-{number}")
        marker = Load(identity, (">",), 1).marker(datetime.now(UTC))
        events.append(msgspec.structs.replace(marker, ttl_seconds=TTL_SECONDS))
        for first in range(0, len(events), TOGETHER):
            await self._store(events[first : first + TOGETHER])
            await self._in_time()

    async def _store(self, events: list[Event]) -> None:
        record = Commit(prior=self._prior, folded=0, now=datetime.now(UTC), count=len(events), replica="year")
        first = self._event(commit_subject("year", "0"), record)
        writes = [Write(event=first, expected=self._prior), *(Write(event=event) for event in events)]
        outcome = await store_batch(self.testbed.log, writes, tries=TRIES)
        if not isinstance(outcome, Stored):
            raise BenchError(f"a batch was not stored in {TRIES} tries: {outcome.reason}")
        self._prior = outcome.first

    async def _in_time(self) -> None:
        """Wait for the gateway: it must follow, not load again and again."""
        deadline = time.monotonic() + LAG_SECONDS
        while True:
            listed = await asyncio.to_thread(self.api.get, "/api/v1/namespaces", {"limit": "1"})
            folded, last = int(text_at(listed, "metadata", "resourceVersion")), await self.testbed.log.last_sequence(LOG)
            if last - folded < MAX_LAG:
                return
            if time.monotonic() > deadline:
                raise BenchError(f"the gateway has folded {folded} of {last}: {self.testbed.tail('gateway')}")
            await asyncio.sleep(0.05)

    async def look(self, day: int) -> Figures:
        """The figures at the end of a day, once its tombstones have expired."""
        await self._in_time()
        families = await self._settled()
        cpu, seconds, subjects = min([await self._load() for _ in range(LOADS)])
        info = (await self.testbed.log.client.jetstream().stream_info(LOG)).state
        memory = {name: memory_mib(process.pid) for name, process in self.testbed.processes.items()}
        folder = self.testbed.folder
        size = sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if "streams/LOG" in str(path) and _is_file(path))
        kib = info.bytes >> 10
        return Figures(day, info.messages, subjects, kib, size >> 10, round(cpu, 3), round(seconds, 3), memory, families)

    async def _settled(self) -> Counter[str]:
        """Wait until no tombstone expires any more; returns the subjects by family."""
        deadline, before = time.monotonic() + LAG_SECONDS, -1
        while (now := sum((found := await self._families()).values())) != before and time.monotonic() < deadline:
            before = now
            await asyncio.sleep(SETTLED_SECONDS)
        return found

    async def _families(self) -> Counter[str]:
        api, found, listed = JetStream(self.testbed.log.client), Counter[str](), 0
        while True:
            page = await api.subjects(LOG, ">", listed)
            found.update(_family(subject) for subject in page.subjects)
            listed += len(page.subjects)
            if not page.subjects or listed >= page.total:
                return found

    async def _load(self) -> tuple[float, float, int]:
        """CPU and wall seconds that it takes to load all of LOG into a read model, and the subjects that there are."""
        log = self.testbed.log
        subjects = (await JetStream(log.client).subjects(LOG, ">")).total
        started, began, core, read = time.perf_counter(), time.process_time(), GatewayCore(), 0
        reader = await log.follow(LOG, [">"])
        while read < subjects and (events := await reader.pull(1000, 0.2)):
            read += len(events)
            for event in events:
                core.apply(event)
        core.loaded()
        cpu, seconds = time.process_time() - began, time.perf_counter() - started
        await reader.close()
        return cpu, seconds, read


def _family(subject: str) -> str:
    parts = subject.split(".")
    return f"node.*.{parts[2]}" if parts[0] == "node" else parts[0]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


async def measure() -> None:
    """Print one line a figure."""
    began = time.monotonic()
    async with Testbed() as testbed:
        testbed.log.longest_ttl_seconds = TTL_SECONDS
        common = ("--nats", testbed.url, "--longest-ttl", str(TTL_SECONDS), "--log-level", "WARNING")
        port = free_port()
        identity = prepared(testbed.folder, GATEWAY_NAMES)
        testbed.start_module("gateway", "cotenant_gateway", *common, "--http-port", str(port), *identity.gateway_flags())
        for name, module in FOLLOWING.items():
            testbed.start_module(name, module, *common, "--http-port", "-1")
        api = Client(Server(f"https://127.0.0.1:{port}", identity.credentials))

        async def ready() -> bool:
            try:
                return await asyncio.to_thread(api.text, "/readyz") is not None
            except Exception:  # noqa: BLE001 - not there yet, or not ready
                return False

        await testbed.until(ready, "the gateway is ready", 120)
        year = Year(testbed, api)
        await year.begin()
        seen: list[Figures] = []
        for day in range(1, DAYS + 1):
            await year.day(day)
            if day in (1, DAYS) or day % MONTH == 0:
                seen.append(await year.look(day))
                _show(seen[-1])
        first, middle, last = seen[0], seen[min(1, len(seen) - 1)], seen[-1]
        print(f"year_wall {time.monotonic() - began:.0f} s")
        for name, seconds in testbed.cpu_seconds().items():
            print(f"year_cpu_{name} {seconds:.0f} s")
        print(f"year_load_cpu_ratio {last.load_cpu_seconds / first.load_cpu_seconds:.2f} ratio")
        print(f"year_load_ratio {last.load_seconds / first.load_seconds:.2f} ratio")
        print(f"year_log_bytes_ratio {last.kib / first.kib:.2f} ratio")
        print(f"year_log_subjects_ratio {last.subjects / first.subjects:.2f} ratio")
        for family, count in sorted((last.families - first.families).items()):
            print(f"year_grown_{family} {count} subjects")
        for name, memory in last.memory_mib.items():
            print(f"year_memory_ratio_{name} {memory / max(middle.memory_mib[name], 1):.2f} ratio")


def _show(seen: Figures) -> None:
    prefix = f"year_day_{seen.day}"
    print(f"{prefix}_log_messages {seen.messages} messages")
    print(f"{prefix}_log_subjects {seen.subjects} subjects")
    print(f"{prefix}_log_size {seen.kib} KiB")
    print(f"{prefix}_log_folder {seen.folder_kib} KiB")
    print(f"{prefix}_load_cpu {seen.load_cpu_seconds} s")
    print(f"{prefix}_load {seen.load_seconds} s")
    for name, memory in seen.memory_mib.items():
        print(f"{prefix}_memory_{name} {memory} MiB", flush=True)


if __name__ == "__main__":
    uvloop.run(measure())
