"""The demonstration's latency-sensitive service: a real HTTP server that burns real CPU for every request.

In: `--port`, `--work` (rounds of PBKDF2 per request; about 0.4 ms of CPU per thousand). Out: `GET /` answers after
that work; `GET /stats` returns the number of answered requests, the CPU seconds used so far, and the p50 and p99 of
the last ten seconds, measured from the moment a connection's request line was read. Standard library only and one
file, so that any Python 3.8 can run it as any user.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import sys
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WINDOW_SECONDS = 10.0
MAX_SAMPLES = 20_000
MAX_CONNECTIONS = 512
IDLE_SECONDS = 30


class Latencies:
    """The latencies of the last seconds, bounded in number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, float]] = deque(maxlen=MAX_SAMPLES)
        self.answered = 0

    def add(self, at: float, milliseconds: float) -> None:
        """Count one answered request."""
        with self._lock:
            self.answered += 1
            self._samples.append((at, milliseconds))

    def percentiles(self, now: float) -> dict[str, float]:
        """p50 and p99 of the window in milliseconds, and the rate in requests per second."""
        with self._lock:
            while self._samples and self._samples[0][0] < now - WINDOW_SECONDS:
                self._samples.popleft()
            ordered = sorted(milliseconds for _, milliseconds in self._samples)
        if not ordered:
            return {"p50_ms": 0.0, "p99_ms": 0.0, "rate": 0.0}
        return {
            "p50_ms": nearest_rank(ordered, 50),
            "p99_ms": nearest_rank(ordered, 99),
            "rate": len(ordered) / WINDOW_SECONDS,
        }


def nearest_rank(ordered: list[float], percent: int) -> float:
    """The nearest-rank percentile of a sorted list that is not empty."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


class DemoServer(ThreadingHTTPServer):
    """A thread per connection; connections beyond the bound are closed at once."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, work: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.work = work
        self.latencies = Latencies()
        self.room = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def process_request_thread(self, request, client_address) -> None:  # type: ignore[no-untyped-def]
        """Serve one connection if there is room for it."""
        if not self.room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    server: DemoServer
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Work and answer, or return the statistics."""
        began = time.monotonic()
        if self.path == "/stats":
            statistics = {
                "answered": self.server.latencies.answered,
                "cpu_seconds": time.process_time(),
                **self.server.latencies.percentiles(began),
            }
            self._answer(json.dumps(statistics).encode())
            return
        digest = hashlib.pbkdf2_hmac("sha256", b"request", b"salt", self.server.work)
        self._answer(digest.hex().encode())
        done = time.monotonic()
        self.server.latencies.add(done, (done - began) * 1000)

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing per request."""


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--work", type=int, default=12_000)
    arguments = parser.parse_args()
    server = DemoServer(arguments.port, arguments.work)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"serving on http://127.0.0.1:{server.server_address[1]}, {arguments.work} rounds a request", flush=True)
    server.serve_forever(poll_interval=0.5)


if __name__ == "__main__":
    main()
