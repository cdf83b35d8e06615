"""Carries out the faults of a run, each at its time, and undoes it.

In: the cluster, the chosen faults. Out: the faults with their times and actual targets (a fault on the leader names the server
that led LOG at that time).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence

import msgspec

from cotenant.log.contract import LOG
from cotenant.log.nats.jetstream import API_ERRORS, BusError
from cotenant.log.nats.log import NatsLog
from cotenant_verification.stack_chaos.cluster import SERVERS, ServerCluster
from cotenant_verification.stack_chaos.faults import ALL, FILL, LEADER, MAJORITY, SKEW_SECONDS
from cotenant_verification.stack_chaos.records import Fault

KILL_AGAIN_SECONDS = 0.2
FILL_AGAIN_SECONDS = 0.2


class Nemesis:
    """One run's faults."""

    def __init__(self, cluster: ServerCluster, observer: NatsLog, began: float, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._observer = observer
        self._began = began
        self._say = say
        self.done: list[Fault] = []
        """With the targets that they had, and the time that they took."""

    async def run(self, faults: Sequence[Fault]) -> None:
        """Carry them all out; some overlap."""
        under_way: list[asyncio.Task[None]] = []
        try:
            for fault in faults:
                await asyncio.sleep(max(0.0, self._began + fault.at - time.monotonic()))
                under_way.append(asyncio.ensure_future(self._carry_out(fault)))
            await asyncio.gather(*under_way)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _carry_out(self, fault: Fault) -> None:
        targets = await self._targets(fault.target)
        at = time.monotonic() - self._began
        named = fault.target if fault.target not in (LEADER, MAJORITY) else f"{fault.target} ({', '.join(targets)})"
        self._say(str(msgspec.structs.replace(fault, at=at, target=named)))
        try:
            await asyncio.gather(*(self._do(fault.kind, target, fault.seconds) for target in targets))
        finally:
            took = time.monotonic() - self._began - at
            self.done.append(msgspec.structs.replace(fault, at=round(at, 2), seconds=round(took, 2), target=named))

    async def _targets(self, target: str) -> list[str]:
        if target == ALL:
            return list(SERVERS)
        if target not in (LEADER, MAJORITY):
            return [target]
        leader = await self.leader()
        others = [server for server in SERVERS if server != leader]
        return [leader] if target == LEADER else [leader, others[0]]

    async def leader(self) -> str:
        """The server that leads LOG; the first one if unknown."""
        with contextlib.suppress(BusError, *API_ERRORS):
            found = (await self._observer._api.info(LOG, 1.0)).cluster.leader
            if found in SERVERS:
                return found
        return SERVERS[0]

    async def _do(self, kind: str, target: str, seconds: float) -> None:
        cluster = self._cluster
        if kind == "kill":
            # Whenever it comes back, it is killed again until the time is over.
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                _signal(cluster.pid(target), signal.SIGKILL)
                await asyncio.sleep(KILL_AGAIN_SECONDS)
        elif kind == "pause":
            pid = cluster.pid(target)
            _signal(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                _signal(pid, signal.SIGCONT)
        elif kind == FILL:
            disk, ends = cluster.disks[target], time.monotonic() + seconds
            try:
                while time.monotonic() < ends:
                    await asyncio.to_thread(disk.fill)
                    await asyncio.sleep(FILL_AGAIN_SECONDS)
            finally:
                disk.empty()
        elif kind in SKEW_SECONDS:
            await cluster.restart(target, SKEW_SECONDS[kind])
            try:
                await asyncio.sleep(seconds)
            finally:
                await cluster.restart(target, 0.0)
        else:
            if kind == "part from all servers":
                relays = cluster.relays_from(target)
            else:
                peers, clients = kind != "part from clients", kind != "part from the other servers"
                relays = cluster.relays_of(target, peers=peers, clients=clients)
            for relay in relays:
                relay.cut()
            try:
                await asyncio.sleep(seconds)
            finally:
                for relay in relays:
                    relay.heal()


def _signal(pid: int, number: signal.Signals) -> None:
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
