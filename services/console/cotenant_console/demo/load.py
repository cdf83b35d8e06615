"""The demonstration's load generator: open loop, so that a slow service does not reduce the load.

In: the service's address, the day's curve, a control port. Out: requests at random moments (exponential gaps of a
stated seed) at the curve's rate, each timed from the moment it was due; `GET /` on the control port returns the rate,
the answered requests, and the percentiles of the idle and the loaded part of the day; `PUT /rate` with a number fixes
the rate, with `null` returns it to the curve. At most 256 requests are in progress: further due ones are
counted as dropped. The load starts once the service has answered, after a minute at most: its pod has yet to be placed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import time
from collections import deque
from dataclasses import dataclass, field

from cotenant_console.demo.curve import is_loaded, is_quiet, rate_at
from cotenant_console.demo.service import nearest_rank

MAX_UNDER_WAY = 256
MAX_IDLE = 32
MAX_SAMPLES = 50_000
REQUEST_TIMEOUT_SECONDS = 10.0
START_SECONDS = 60.0
RECENT_SECONDS = 10.0
MAX_CONTROL_BYTES = 1024


@dataclass
class DayPart:
    """The latencies of one part of the day, in milliseconds; the newest 50,000."""

    samples: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))

    def percentile(self, percent: int) -> float | None:
        """A percentile in milliseconds, None without samples."""
        return nearest_rank(sorted(self.samples), percent) if self.samples else None


@dataclass
class LoadGenerator:
    """The generator's state."""

    host: str
    port: int
    day_seconds: float
    night: float
    noon: float
    seed: int
    fixed_rate: float | None = None
    sent: int = 0
    answered: int = 0
    failed: int = 0
    dropped: int = 0
    quiet: DayPart = field(default_factory=DayPart)
    loaded: DayPart = field(default_factory=DayPart)
    recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    began: float = field(default_factory=time.monotonic)
    _idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)
    _under_way: set[asyncio.Task[None]] = field(default_factory=set)

    def rate(self) -> float:
        """Requests a second that are due now."""
        if self.fixed_rate is not None:
            return self.fixed_rate
        return rate_at(time.monotonic() - self.began, self.day_seconds, self.night, self.noon)

    async def run(self) -> None:
        """Send until cancelled, from the service's first answer on."""
        await self._first_answer()
        self.began = time.monotonic()
        gaps = random.Random(self.seed)
        due = time.monotonic()
        while True:
            rate = self.rate()
            if rate <= 0:
                await asyncio.sleep(0.1)
                due = time.monotonic()
                continue
            due += min(gaps.expovariate(rate), 1.0)
            while (ahead := due - time.monotonic()) > 0:  # noqa: ASYNC110 - in steps, so that a new rate is felt at once
                await asyncio.sleep(min(ahead, 0.1))
            if len(self._under_way) >= MAX_UNDER_WAY:
                self.dropped += 1
                continue
            self.sent += 1
            task = asyncio.create_task(self._one(due, rate))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _first_answer(self) -> None:
        """Return when the service has answered, after START_SECONDS even if it has not. These requests are not counted."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                    await self._exchange()
                break
            except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
                await asyncio.sleep(0.1)

    async def _one(self, due: float, rate: float) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                await self._exchange()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            self.failed += 1
            return
        now = time.monotonic()
        latency = (now - due) * 1000
        self.answered += 1
        self.recent.append((now, latency))
        if is_quiet(rate, self.night, self.noon):
            self.quiet.samples.append(latency)
        elif is_loaded(rate, self.night, self.noon):
            self.loaded.samples.append(latency)

    async def _exchange(self) -> None:
        """One request over an idle connection, or a new one; the connection is kept only if all went well."""
        reader, writer = (
            self._idle.pop() if self._idle else await asyncio.open_connection(self.host, self.port)
        )
        try:
            writer.write(f"GET / HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
            if b" 200 " not in head[:20] or not lengths:
                raise ValueError("the service refused a request")
            await reader.readexactly(int(lengths[0].split(b":")[1]))
        except BaseException:
            writer.close()
            raise
        if len(self._idle) < MAX_IDLE:
            self._idle.append((reader, writer))
        else:
            writer.close()

    def report(self) -> dict[str, float | int | None]:
        """The figures so far, for the screen and the summary. Times in milliseconds, rates in requests a second."""
        now = time.monotonic()
        while self.recent and self.recent[0][0] < now - RECENT_SECONDS:
            self.recent.popleft()
        ordered = sorted(latency for _, latency in self.recent)
        return {
            "rate": self.rate(),
            "fixed_rate": self.fixed_rate,
            "noon": self.noon,
            "night": self.night,
            "sent": self.sent,
            "answered": self.answered,
            "failed": self.failed,
            "dropped": self.dropped,
            "p50_ms": nearest_rank(ordered, 50) if ordered else None,
            "p99_ms": nearest_rank(ordered, 99) if ordered else None,
            "quiet_p50_ms": self.quiet.percentile(50),
            "quiet_p99_ms": self.quiet.percentile(99),
            "loaded_p50_ms": self.loaded.percentile(50),
            "loaded_p99_ms": self.loaded.percentile(99),
        }

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request on the control port."""
        try:
            async with asyncio.timeout(5):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = next(
                    (int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length:")),
                    0,
                )
                body = await reader.readexactly(min(length, MAX_CONTROL_BYTES))
                status, answer = self._steer(head.split(" ", 2)[:2], body)
                raw = json.dumps(answer).encode()
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(raw)}\r\nConnection: close\r\n\r\n".encode() + raw)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            print(f"a request on the control port was dropped: {error}", flush=True)
        finally:
            writer.close()

    def _steer(self, request: list[str], body: bytes) -> tuple[str, dict[str, float | int | None] | dict[str, str]]:
        if request == ["GET", "/"]:
            return "200 OK", self.report()
        if request == ["PUT", "/rate"]:
            try:
                wanted = json.loads(body)
            except ValueError:
                wanted = body
            if wanted is None or (isinstance(wanted, int | float) and not isinstance(wanted, bool) and 0 <= wanted <= 1e4):
                self.fixed_rate = None if wanted is None else float(wanted)
                return "200 OK", self.report()
            return "400 Bad Request", {"message": "the rate must be a number from 0 to 10000, or null for the curve"}
        return "404 Not Found", {"message": "supported: GET / and PUT /rate"}


async def serve(load: LoadGenerator, control_port: int) -> None:
    """Send and answer until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = await asyncio.start_server(load.control, "127.0.0.1", control_port)
    sending = asyncio.create_task(load.run())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({sending, stopped}, return_when=asyncio.FIRST_COMPLETED)
    server.close()
    if sending.done():
        sending.result()
    sending.cancel()


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--service", required=True, metavar="HOST:PORT")
    parser.add_argument("--control-port", type=int, required=True)
    parser.add_argument("--day-seconds", type=float, default=120.0)
    parser.add_argument("--night", type=float, default=5.0, help="requests a second at night")
    parser.add_argument("--noon", type=float, default=60.0, help="requests a second at noon")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    host, _, port = given.service.rpartition(":")
    load = LoadGenerator(host, int(port), given.day_seconds, given.night, given.noon, given.seed)
    asyncio.run(serve(load, given.control_port))


if __name__ == "__main__":
    main()
