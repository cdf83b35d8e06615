"""`bench colocation`: pairs of windows in which a service runs alone, beside neighbours, and beside them without control.

In: cases, the protection class, how many pairs of how many seconds. Out: `CaseFigures`. Everything runs in a group with limits
(`ground`). The service's pods stay for a whole case and get their orders over a local port; neighbours are created for a window
and deleted after it, so that they do not affect the next one. The three windows of a pair follow each other and have
the same arrivals. Without control, service and neighbours are plain processes of one flat group.

A window begins SETTLE_SECONDS after its neighbours run. Bound: `longest`. Over 300 lines: the three windows of a pair share
the pods, the executor and the arrivals.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from msgspec import Struct

from cotenant.events.node.execution import Execution
from cotenant.log.contract import EXECUTION
from cotenant.log.nats.log import connect
from cotenant_console.api.client import Document, StatusError, UnreachableError
from cotenant_console.api.endpoint import read_endpoint
from cotenant_console.nats_access.finding import access_of
from cotenant_console.nats_access.roles import READER
from cotenant_console.up.figures import CpuReading, cpu_percent, cpu_reading
from cotenant_verification.bench.colocation.cases import REQUEST_MS, Case
from cotenant_verification.bench.colocation.exchange import LEAD_SECONDS, Exchange
from cotenant_verification.bench.colocation.figures import CaseFigures, LatencyWindow, medians, over_ideal, ratio, window
from cotenant_verification.bench.colocation.goals import goal_of, missed
from cotenant_verification.bench.colocation.ground import Ground
from cotenant_verification.bench.colocation.pods import ColocationPods
from cotenant_verification.bench.colocation.trace import EDGE_SECONDS, CounterReading, Trace, programs, read, trace
from cotenant_verification.bench.over_http.processes import stack
from cotenant_verification.bench.testbed import BenchError

SETTLE_SECONDS = 2.0
NEIGHBOURS_SETTLE_SECONDS = 7.0
"""After the neighbours' start: the stack, which starts them, runs on the same CPUs."""
WARM_UP_SECONDS = 15.0
"""Of load before the first pair: what the node's agent does for threads follows from what they used."""
REPLACE_SECONDS = 0.5
SETUP_SECONDS, CASE_SECONDS, PAIR_SECONDS = 240.0, 240.0, 150.0
"""Bounds of the start and end of the stack and of a case, and of a pair's time beside its three windows."""
CPU_CLASS = "cotenant.io/cpu-class"
WORDS = 160
PULL_LIMIT = 500
REMEMBERED = 200


class ColocationOptions(Struct, frozen=True):
    """The user's choice."""

    cases: tuple[Case, ...]
    protection: str = "fair"
    pairs: int = 5
    seconds: float = 20.0
    uncontrolled: int = 5
    """In how many of the pairs the neighbours also run without control."""

    @property
    def longest(self) -> float:
        """Seconds after which the benchmark gives up."""
        a_case = CASE_SECONDS + self.pairs * (3 * self.seconds + PAIR_SECONDS)
        return SETUP_SECONDS + len(self.cases) * a_case


async def run(options: ColocationOptions, say: Callable[[str], None]) -> list[CaseFigures]:
    """Run the cases one after the other. Raises BenchError."""
    try:
        with Ground(realtime=options.protection == "realtime") as ground:
            async with asyncio.timeout(options.longest), Exchange() as exchange:
                folder = ground.folder / "data"
                folder.mkdir()
                say("starting the stack")
                flags = ("--allow-root-pods",) if ground.interpreter.user == 0 else ()
                own = stack(folder, 0, flags=flags, environment=ground.environment, started=ground.watch_stack)
                async with own as (_, gateway):
                    pods = ColocationPods(gateway, ground.interpreter)
                    await pods.prepare({"cpuClass": options.protection})
                    async with _executor(folder) as executor:
                        around = ground, exchange, pods, executor, say
                        return [await _Measured(options, case, *around).run() for case in options.cases]
    except TimeoutError as error:
        raise BenchError(f"the benchmark did not end within {options.longest:.0f} s") from error
    except (StatusError, UnreachableError) as error:
        raise BenchError(f"the stack refused: {error}") from error


class _Executor:
    """The executor's events since the counts were last taken."""

    def __init__(self) -> None:
        self.topics: Counter[str] = Counter()
        self.words: dict[str, str] = {}
        self.executed: deque[tuple[float, str]] = deque(maxlen=REMEMBERED)
        """Its last events, with the monotonic time."""

    def since(self, began: float) -> list[str]:
        """Its events since, the oldest first."""
        return [f"+{at - began:.1f} s {text}" for at, text in self.executed if at >= began]

    def taken(self) -> tuple[dict[str, int], tuple[str, ...]]:
        found = dict(self.topics), tuple(f"{topic}: {words}" for topic, words in sorted(self.words.items()))
        self.topics, self.words = Counter(), {}
        return found


@contextlib.asynccontextmanager
async def _executor(folder: Path) -> AsyncIterator[_Executor]:
    """Follow EXECUTION while the context lasts."""
    endpoint = read_endpoint(folder)
    assert endpoint is not None
    log = await connect(endpoint.nats_url, "bench", access_of(folder, READER, endpoint.nats_url))
    seen = _Executor()

    async def follow() -> None:
        reader = await log.follow(EXECUTION, ("execution.>",))
        while True:
            for event in await reader.pull(PULL_LIMIT, 1.0):
                if isinstance(event.data, Execution):
                    seen.topics[event.data.topic] += 1
                    seen.words[event.data.topic] = event.data.summary[:WORDS]
                    seen.executed.append((time.monotonic(), f"{event.data.topic}: {event.data.summary[:WORDS]}"))

    following = asyncio.ensure_future(follow())
    try:
        yield seen
    finally:
        following.cancel()
        await asyncio.wait([following], timeout=5.0)
        await log.close()


class _Measured:
    """One case."""

    def __init__(
        self,
        options: ColocationOptions,
        case: Case,
        ground: Ground,
        exchange: Exchange,
        pods: ColocationPods,
        executor: _Executor,
        say: Callable[[str], None],
    ) -> None:
        self._options, self._case, self._ground, self._exchange = options, case, ground, exchange
        self._pods, self._executor, self._say = pods, executor, say
        self._iterations = iterations_of(REQUEST_MS)
        self._plan = case.plan(options.seconds)
        self._services_ended = self._neighbours_ended = 0
        self._made = 0
        self._traces: list[tuple[LatencyWindow | None, Trace]] = []

    async def run(self) -> CaseFigures:
        """All pairs, and the figures."""
        case, options = self._case, self._options
        names = [f"{case.name}-service-{number}" for number in range(case.services)]
        annotations = {CPU_CLASS: options.protection}
        documents = [self._pods.pod(name, "LS", self._service(name), annotations) for name in names]
        self._say(f"{case.name}: {case.summary}")
        await self._pods.start(documents)
        alone: list[LatencyWindow | None] = []
        beside: list[LatencyWindow | None] = []
        uncontrolled: list[LatencyWindow | None] = []
        try:
            for pair in range(options.pairs):
                await self._exchange.until_connected(names)
                await asyncio.sleep(SETTLE_SECONDS)
                if pair == 0:
                    await self._exchange.carry_out(names, "warm-up", case.plan(WARM_UP_SECONDS), self._iterations)
                    self._executor.taken()
                alone.append(await self._window(names, pair))
                beside.append(await self._beside(names, pair))
                if pair < options.uncontrolled:
                    uncontrolled.append(await self._uncontrolled(pair))
                self._say(f"{case.name}: pair {pair + 1} of {options.pairs}: p99 {_three(alone, beside, uncontrolled)} ms")
            topics, words = self._executor.taken()
            self._services_ended += await self._pods.restarts(names)
        finally:
            for name in names:
                self._exchange.forget(name)
        await self._pods.delete(names)
        busy = medians(beside)
        over = ratio(beside, alone), over_ideal(beside)
        utilisation = busy.utilisation if busy is not None else None
        return CaseFigures(
            case=case.name,
            class_=options.protection,
            alone=medians(alone),
            beside=busy,
            uncontrolled=medians(uncontrolled),
            p99_over_alone=over[0],
            p99_over_ideal=over[1],
            uncontrolled_over_alone=ratio(uncontrolled, alone[: len(uncontrolled)]),
            utilisation=utilisation,
            pairs=options.pairs,
            seconds=options.seconds,
            services_ended=self._services_ended,
            neighbours_ended=self._neighbours_ended,
            executor=topics,
            last_words=words,
            missed=missed(goal_of(case.name, options.protection), *over, utilisation),
            trace=self._slowest(),
        )

    def _slowest(self) -> Trace | None:
        """The trace of the window with the largest p99; of one without figures, where a service ended in it."""
        found = sorted(self._traces, key=lambda each: float("inf") if each[0] is None else each[0].p99_ms)
        return found[-1][1] if found else None

    def _service(self, name: str) -> list[str]:
        arguments = [str(self._ground.service), "--port", str(self._exchange.port), "--token", self._exchange.token]
        arguments += ["--name", name, "--threads", str(self._case.threads)]
        return [*arguments, "--file", str(self._ground.writable() / name)] if self._case.files else arguments

    def _neighbour(self, kind: str, name: str) -> list[str]:
        arguments = [str(self._ground.neighbour), kind]
        return [*arguments, "--file", str(self._ground.writable() / name)] if self._case.files else arguments

    async def _window(self, names: Sequence[str], pair: int) -> LatencyWindow | None:
        """One window of these services."""
        found, utilisation = await asyncio.gather(
            self._exchange.carry_out(names, f"{self._case.name}/{pair}", self._plan, self._iterations),
            _utilisation(sum(seconds for seconds, _ in self._plan)),
        )
        records = [each for each in found.values() if each is not None]
        return window(records, os.cpu_count() or 1, utilisation) if len(records) == len(names) else None

    async def _beside(self, names: Sequence[str], pair: int) -> LatencyWindow | None:
        neighbours = [self._next(kind) for kind, count in self._case.neighbours for _ in range(count)]
        await self._pods.start(neighbours)
        keeping = asyncio.ensure_future(self._keep(neighbours))
        try:
            await asyncio.sleep(NEIGHBOURS_SETTLE_SECONDS)
            return await self._traced(names, pair)
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            await self._clean_up(neighbours)
            # A pod that was begun just now may not be in the list.
            await self._pods.delete([name for name in await self._pods.phases() if name not in names])

    async def _traced(self, names: Sequence[str], pair: int) -> LatencyWindow | None:
        """A window, and what happened in it."""
        base, began = self._ground.base, time.monotonic()
        others = await asyncio.to_thread(programs, base)
        ends = asyncio.ensure_future(self._both_ends(base))
        found = await self._window(names, pair)
        before, after = await ends
        both = others, await asyncio.to_thread(programs, base)
        self._traces.append((found, trace(before, after, both, self._executor.since(began))))
        return found

    async def _both_ends(self, base: str) -> tuple[CounterReading, CounterReading]:
        """Readings just after a window began and before it ends."""
        seconds = sum(each for each, _ in self._plan)
        await asyncio.sleep(LEAD_SECONDS + EDGE_SECONDS)
        before = await asyncio.to_thread(read, base)
        await asyncio.sleep(max(seconds - 3 * EDGE_SECONDS, EDGE_SECONDS))
        return before, await asyncio.to_thread(read, base)

    async def _clean_up(self, neighbours: Sequence[Document]) -> None:
        self._neighbours_ended += len(await self._pods.ended(neighbours))

    def _next(self, kind: str) -> Document:
        self._made += 1
        name = f"{self._case.name}-{kind}-{self._made}"
        return self._pods.pod(name, "BE", self._neighbour(kind, name), {})

    async def _keep(self, neighbours: list[Document]) -> None:
        """Replace ended neighbours, if the case requires it."""
        while self._case.replaced:
            await asyncio.sleep(REPLACE_SECONDS)
            for ended in await self._pods.ended(neighbours):
                self._neighbours_ended += 1
                neighbours.remove(ended)
                successor = self._next(str(ended["metadata"]["name"]).split("-")[1])  # type: ignore[index,call-overload]
                neighbours.append(successor)
                with contextlib.suppress(BenchError):
                    await self._pods.start([successor])

    async def _uncontrolled(self, pair: int) -> LatencyWindow | None:
        """The same as plain processes."""
        names = [f"plain-{number}" for number in range(self._case.services)]
        python = self._ground.interpreter.path
        kept = [self._ground.start([python, "-S", *self._service(name)]) for name in names]
        try:
            await self._exchange.until_connected(names)
            for kind, count in self._case.neighbours:
                for number in range(count):
                    self._ground.start([python, "-S", *self._neighbour(kind, f"plain-{kind}-{number}")])
            await asyncio.sleep(SETTLE_SECONDS)
            return await self._window(names, pair)
        finally:
            del kept
            for name in names:
                self._exchange.forget(name)
            await asyncio.to_thread(self._ground.end_plain)


async def _utilisation(seconds: float) -> float:
    """The busy share of all CPUs in a window whose order is being sent."""
    await asyncio.sleep(LEAD_SECONDS)
    before = _cpu_now()
    await asyncio.sleep(seconds)
    return cpu_percent(before, _cpu_now()) / 100


def _cpu_now() -> CpuReading:
    return cpu_reading(Path("/proc/stat").read_text())


def iterations_of(milliseconds: float) -> int:
    """How many rounds of PBKDF2 take this CPU time here: the least of several measurements."""
    rounds, least = 2000, float("inf")
    for _ in range(20):
        before = time.thread_time()
        hashlib.pbkdf2_hmac("sha256", b"request", b"salt", rounds)
        least = min(least, time.thread_time() - before)
    return max(int(rounds * milliseconds / 1e3 / least), 1)


def _three(*found: Sequence[LatencyWindow | None]) -> str:
    return " / ".join("-" if not each or (last := each[-1]) is None else f"{last.p99_ms:.2f}" for each in found)
