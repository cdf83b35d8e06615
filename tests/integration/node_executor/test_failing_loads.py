"""An executor whose loads of LOG fail in a row: it goes on protecting services, begins nothing, and does nothing twice."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import pytest

from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.log.contract import LOG
from cotenant.log.nats import confined, republished
from cotenant.log.nats.log import NatsLog, connect
from cotenant_node_executor.core.node import ExecutorNode
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.runtime.interface import Order, Start
from cotenant_node_executor.simulated.machine import SimulatedMachine
from tests.integration.node_executor.executor_harness import Harness, alive
from tests.integration.node_executor.test_enforcement import CPUS, QUOTA, batch_pod, is_wide, service_pod, shrunk
from tests.integration.node_executor.test_executor_shell import NODE, WAIT_SECONDS, living, new_node, place
from tests.nats_server import NatsServer
from tests.swallowing_proxy import SwallowingProxy, swallowing_proxy

LOAD = (b"SUB republished.", b"CONSUMER.CREATE.")
"""What a load begins with, and what it asks for after it knows which LOG it reads, and where that ends."""


@pytest.fixture
async def others(nats_server: NatsServer) -> AsyncIterator[NatsLog]:
    """What the rest of the cell reads and writes."""
    log = await connect(nats_server.url, "others")
    await log.declare()
    yield log
    await log.close()


@pytest.fixture
async def proxy(nats_server: NatsServer) -> AsyncIterator[SwallowingProxy]:
    async with swallowing_proxy(nats_server.port) as made:
        yield made


@pytest.fixture
async def log(others: NatsLog, proxy: SwallowingProxy) -> AsyncIterator[NatsLog]:
    """The executor's, through the proxy."""
    made = await connect(proxy.url, "executor")
    yield made
    await made.close()


class Watched:
    """A node whose samples are counted, with the containers that were started on its machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node = new_node()
        self.samples = 0
        self.started: list[str] = []
        self._changed = asyncio.Event()
        machine = self.node.machine
        assert isinstance(machine, SimulatedMachine)
        observe, carry_out = machine.observe, machine.carry_out

        def observed(now: datetime, *, sample: bool) -> Observation:
            self.samples += sample
            self._changed.set()
            return observe(now, sample=sample)

        def carried_out(orders: Sequence[Order], now: datetime) -> None:
            self.started += [order.pod.uid for order in orders if isinstance(order, Start)]
            carry_out(orders, now)

        monkeypatch.setattr(machine, "observe", observed)
        monkeypatch.setattr(machine, "carry_out", carried_out)

    async def sampled(self, more: int) -> None:
        """Wait for so many samples more."""
        until = self.samples + more
        async with asyncio.timeout(WAIT_SECONDS):
            while self.samples < until:
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


async def failed_loads(count: int, caplog: pytest.LogCaptureFixture) -> None:
    """Wait until so many loads have broken off: each is followed by another, as was the state that had become too old."""
    async with asyncio.timeout(WAIT_SECONDS):
        while caplog.text.count("loading the log again") < 1 + count:  # noqa: ASYNC110 - a line of the log wakes nobody
            await asyncio.sleep(0.01)


class Told:
    """The phases that were reported of each pod, in order."""

    def __init__(self) -> None:
        self.phases: dict[str, list[RunPhase]] = {}
        self._changed = asyncio.Event()

    async def follow(self, log: NatsLog) -> None:
        reader = await log.follow(LOG, [f"node.{NODE}.run.>"], after=0)
        while True:
            for event in await reader.pull(100, 30.0):
                if isinstance(event.data, RunStatus):
                    self.phases.setdefault(event.data.name, []).append(event.data.phase)
                    self._changed.set()

    async def wait(self, name: str, phase: RunPhase) -> None:
        """Wait until a pod's last report has this phase."""
        async with asyncio.timeout(WAIT_SECONDS):
            while self.phases.get(name, [])[-1:] != [phase]:
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def told(others: NatsLog) -> AsyncIterator[Told]:
    made = Told()
    following = asyncio.ensure_future(made.follow(others))
    yield made
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, proxy: SwallowingProxy, caplog: pytest.LogCaptureFixture) -> None:
    """From the first look at LOG on, the node is told to load it again; a load does not wait long for an answer."""
    caplog.set_level("INFO")
    monkeypatch.setattr(confined, "READ_SECONDS", 0.2)
    monkeypatch.setattr(confined, "TRIES", 2)


async def away(monkeypatch: pytest.MonkeyPatch, proxy: SwallowingProxy) -> None:
    """Have the node load LOG again, and nothing come through once it does."""
    proxy.swallow_from(*LOAD)
    monkeypatch.setattr(republished, "AWAY_SECONDS", 0.0)
    async with asyncio.timeout(WAIT_SECONDS):
        await proxy.swallowed.wait()


def there_again(monkeypatch: pytest.MonkeyPatch, proxy: SwallowingProxy) -> None:
    monkeypatch.setattr(republished, "AWAY_SECONDS", 3600.0)
    proxy.answer_again()


@pytest.mark.usefixtures("failing")
async def test_cycles_go_on_while_load_after_load_breaks_off(
    log: NatsLog, watched: Watched, proxy: SwallowingProxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with living(log, watched.node) as shell:
        await away(monkeypatch, proxy)
        for load in range(1, 3):
            await failed_loads(load, caplog)
            await watched.sampled(20)
        acting = shell.node
        assert acting is watched.node
        there_again(monkeypatch, proxy)
        async with asyncio.timeout(WAIT_SECONDS):
            while shell.node is acting:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)
        assert shell.node.core.loaded
        assert not acting.core.fed
        await watched.sampled(5)


@pytest.mark.usefixtures("failing")
async def test_a_pod_is_neither_started_from_an_old_state_nor_started_or_reported_twice(
    log: NatsLog,
    others: NatsLog,
    told: Told,
    watched: Watched,
    proxy: SwallowingProxy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with living(log, watched.node) as shell:
        await place(others, "before", "1h")
        await told.wait("before", RunPhase.RUNNING)
        await place(others, "ends", "4s")
        await told.wait("ends", RunPhase.RUNNING)
        await away(monkeypatch, proxy)
        await place(others, "meanwhile", "1h")
        async with asyncio.timeout(WAIT_SECONDS):
            while not has_ended(watched.node, "uid-ends"):
                await watched.sampled(1)
        await failed_loads(1, caplog)
        assert watched.started == ["uid-before", "uid-ends"]
        there_again(monkeypatch, proxy)
        await told.wait("meanwhile", RunPhase.RUNNING)
        await told.wait("ends", RunPhase.SUCCEEDED)
        await watched.sampled(5)
        assert shell.node is not watched.node
    assert watched.started == ["uid-before", "uid-ends", "uid-meanwhile"]
    assert told.phases == {
        "before": [RunPhase.RUNNING],
        "ends": [RunPhase.RUNNING, RunPhase.SUCCEEDED],
        "meanwhile": [RunPhase.RUNNING],
    }


def has_ended(node: ExecutorNode, uid: str) -> bool:
    """Whether the node has seen every container of a pod end."""
    states = node.core.seen.states.get(uid, {}) if node.core.seen is not None else {}
    return bool(states) and all(state.exited for state in states.values())


async def test_a_load_asks_once_which_log_it_reads_and_where_that_ends(
    log: NatsLog, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = type(log.client).ask_whole

    async def counted(client: object, subject: str, *arguments: object, **options: object) -> tuple[bytes, bytes]:
        asked.append(subject)
        return await ask(client, subject, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(type(log.client), "ask_whole", counted)
    async with living(log, watched.node):
        pass
    assert sum(subject.endswith(f"STREAM.INFO.{LOG}") for subject in asked) == 1, asked
    assert sum(subject == f"node.{NODE}.executor" for subject in asked) == 2, "LOG's end, and the start marker"


IMPATIENT = """
from cotenant.log.nats import confined, republished
republished.AWAY_SECONDS, confined.READ_SECONDS, confined.TRIES = 6.0, 0.5, 2
"""
"""The executor's third look at LOG, some 14 s after its load, finds that it was away for too long."""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real control group subtree")
async def test_a_service_gets_its_cpus_back_while_load_after_load_breaks_off(harness: Harness, proxy: SwallowingProxy) -> None:
    harness.folder.chmod(0o755)
    go = harness.folder / "go"
    (harness.folder / "sitecustomize.py").write_text(IMPATIENT)
    path = os.pathsep.join((str(harness.folder), os.environ.get("PYTHONPATH", "")))
    harness.start("--nats", proxy.url, prefix=("env", f"PYTHONPATH={path}"))
    await harness.node_slo(
        enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_percent=200, reserved_cpu_milli=CPUS * 1000
    )
    await harness.place(batch_pod("burner"))
    await harness.place(service_pod("service", go))
    await harness.running("burner")
    service = await harness.running("service")
    wide = int(await harness.wait("the quota is wide", lambda: is_wide(harness.number(*QUOTA)) and harness.number(*QUOTA)))
    proxy.swallow_from(*LOAD)
    async with asyncio.timeout(WAIT_SECONDS):
        await proxy.swallowed.wait()
    go.touch()
    await shrunk(harness, wide)
    go.unlink()
    async with asyncio.timeout(WAIT_SECONDS):
        while not is_wide(harness.number(*QUOTA)) or harness.said().count("loading the log again") < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert harness.said().count(": loaded,") == 1
    proxy.answer_again()
    await harness.wait("LOG is loaded", lambda: harness.said().count(": loaded,") == 2)
    assert alive(service.pid)
    assert harness.container("service") == service
