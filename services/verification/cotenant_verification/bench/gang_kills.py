"""`bench gang-kills`: the scheduler is killed while it places a gang, again and again, on the whole stack.

In: sizes of gangs, number of rounds. Each round submits a gang in one batch and kills the scheduler, then a new process places
the rest. Every second round kills it once it has sent a part of the gang: a number of bytes drawn from those that the first
gang took without a kill, after which a relay lets nothing pass; the others at a moment drawn from twice the time that the first
gang took. Out: how many batches were stored before and after the kill, and how many the server had received in part and
dropped; and the result of the independent check: every gang is placed whole by one commit, and no node started a member of it
before the commit was whole on LOG.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from nats.aio.msg import Msg

from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.log.contract import LOG, Reader
from cotenant.log.nats.jetstream import JetStream
from cotenant.log.nats.log import read_all
from cotenant_console.up.nats_server import LOOPBACK, free_port
from cotenant_node_executor.core.core import MAX_PODS
from cotenant_verification.bench.audit.verification import AuditResult, verify
from cotenant_verification.bench.stack import fleets, start_stack
from cotenant_verification.bench.testbed import BenchError, Testbed
from cotenant_verification.bench.workload import (
    node_events,
    pod_event,
    pod_name,
    pod_number,
    quota_events,
    stack_events,
    synthetic,
)
from cotenant_verification.stack_chaos.network import Relay

WATCHED = ("node.*.placement.>", "node.*.run.>")
COMMITS = "commits.scheduler.0"
ROUND_SECONDS = 180.0
MIN_SPREAD_SECONDS = 0.1
METRICS_EVERY_SECONDS = 60.0
"""Nodes' metrics expire after 180 s."""
DROPPED = f"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{LOG}"
DROPPED_SECONDS = 12.0
"""The server drops a batch of which it has a part, and says so, after 10 s without another message of it."""


class GangKills(msgspec.Struct, frozen=True, kw_only=True):
    """The result. A round is `whole` if its gang was on LOG when the killed process had ended, else `absent`."""

    rounds: int
    whole: int
    absent: int
    in_part: int
    """Batches that the server had received in part when their process was killed: of gangs that are then absent."""
    placed: int
    started: int
    """Members that their nodes reported as running."""
    verified: bool
    wrong: tuple[str, ...] = ()
    longest_round_seconds: float


class _Log:
    """LOG's events about members, in its order."""

    def __init__(self, reader: Reader, size: int) -> None:
        self._reader = reader
        self._size = size
        self.placed: dict[str, int] = {}
        """By pod, the sequence of its first placement."""
        self.started: set[str] = set()
        self.wrong: list[str] = []

    async def read(self, wait_seconds: float) -> None:
        """Read existing events, or wait a bounded time for new ones."""
        for event in await self._reader.pull(1000, wait_seconds):
            data = event.data
            if isinstance(data, Placement) and data.phase is PlacementPhase.BOUND:
                self.placed.setdefault(data.name, event.sequence)
            elif isinstance(data, RunStatus) and data.phase is RunPhase.RUNNING and data.name not in self.started:
                self.started.add(data.name)
                gang = pod_number(data.name) // self._size * self._size
                members = sum(pod_name(number) in self.placed for number in range(gang, gang + self._size))
                if members < self._size:
                    self.wrong.append(f"{data.name} runs while {members} of {self._size} members are placed ({event.ref})")


async def _spent(relay: Relay) -> None:
    """Wait until a relay has let pass as many bytes as it should."""
    try:
        await asyncio.wait_for(relay.spent.wait(), ROUND_SECONDS)
    except TimeoutError:
        raise BenchError(f"the scheduler has sent {relay.passed} bytes and no more for {ROUND_SECONDS:.0f} s") from None


async def _why(testbed: Testbed) -> str:
    """Why pods wait, as the scheduler last said of one of them."""
    for event in await read_all(testbed.log, LOG, ("waiting.>",)):
        if isinstance(event.data, Waiting) and not event.tombstone:
            reasons = (f"{each.code} {each.resource} on {each.count} nodes, {each.detail}" for each in event.data.reasons)
            return f"{event.data.name} waits: {'; '.join(reasons)}"
    return "no pod is known to wait"


async def run(nodes: int, gang: int, rounds: int, seed: int, say: Callable[[str], None]) -> GangKills:
    """Carry out one run. Raises BenchError where a round does not end, or the nodes have no room for all gangs."""
    if gang * (rounds + 1) > nodes * MAX_PODS:
        needed = -(-gang * (rounds + 1) // MAX_PODS)
        raise BenchError(f"{rounds + 1} gangs of {gang} pods need {needed} nodes of {MAX_PODS} pods each, not {nodes}")
    workload = synthetic(nodes, gang * (rounds + 1), 1, gang=gang)
    chance = random.Random(seed)
    async with Testbed() as testbed:
        await testbed.write(stack_events(datetime.now(UTC)))
        await testbed.write([*node_events(workload, datetime.now(UTC), lent=False), *quota_events(workload, datetime.now(UTC))])
        await start_stack(testbed, fleets(workload), say)
        relay = Relay(free_port(testbed.ports), testbed.ports[0])
        await relay.open()
        url = f"nats://{LOOPBACK}:{relay.port}"
        testbed.start_scheduler(url)
        await testbed.scheduler_loaded()
        reader = await testbed.log.follow(LOG, WATCHED)
        reader.loaded()
        reader.max_behind = 0
        dropped: list[Msg] = []

        async def note(message: Msg) -> None:
            dropped.append(message)

        await testbed.log.client.subscribe(DROPPED, cb=note)
        log, refreshed = _Log(reader, gang), time.monotonic()
        spread, size, whole, longest = 0.0, 0, 0, 0.0
        for number in range(rounds + 1):
            if time.monotonic() - refreshed > METRICS_EVERY_SECONDS:
                refreshed = time.monotonic()
                again = node_events(workload, datetime.now(UTC), lent=False)
                await testbed.write(event for event in again if isinstance(event.data, NodeMetricComputed))
            begun, sent, done = time.monotonic(), relay.passed, number * gang
            if number % 2:
                relay.let_pass(chance.randrange(size))
            await testbed.write(pod_event(workload, i, datetime.now(UTC)) for i in range(done, done + gang))
            if number:
                await (_spent(relay) if number % 2 else asyncio.sleep(chance.uniform(0, spread)))
                testbed.kill("scheduler")
                relay.drop()
                relay.heal()
                # A server that is writing a batch counts the messages written so far: wait until it has all of them.
                await testbed.log.drained(COMMITS)
                placed = (await JetStream(testbed.log.client).subjects(LOG, WATCHED[0])).total - done
                whole += placed == gang
                if placed not in (0, gang):
                    log.wrong.append(f"round {number}: {placed} of {gang} members are placed")
                testbed.start_scheduler(url)
            while len(log.placed) < done + gang:
                await log.read(0.05)
                if time.monotonic() - begun > ROUND_SECONDS:
                    found = f"; wrong so far: {log.wrong}" if log.wrong else ", nothing wrong so far"
                    missing = f"round {number}: {len(log.placed) - done} members placed{found}; {await _why(testbed)}"
                    raise BenchError(f"{missing}: {testbed.tail('scheduler', 3000)}")
            took = time.monotonic() - begun
            if not number:
                spread, size = 2 * max(took, MIN_SPREAD_SECONDS), relay.passed - sent
            longest = max(longest, took)
            say(f"round {number}: {took:.1f} s, {len(log.started)} members run")
        deadline = time.monotonic() + ROUND_SECONDS
        while len(log.started) < workload.pods and time.monotonic() < deadline:
            await log.read(1.0)
        await asyncio.sleep(DROPPED_SECONDS)
        await relay.close()
        verdict: AuditResult = verify(await testbed.events())
        wrong = (*log.wrong, *verdict.wrong)
        return GangKills(
            rounds=rounds,
            whole=whole,
            absent=rounds - whole,
            in_part=len(dropped),
            placed=verdict.placed,
            started=len(log.started),
            verified=not wrong and verdict.placed == workload.pods,
            wrong=wrong,
            longest_round_seconds=round(longest, 1),
        )
