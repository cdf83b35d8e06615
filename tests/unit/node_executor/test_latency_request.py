"""A service's own latency, asked over real sockets: the answer, and everything that a service may do instead."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cotenant.domain.service_latency import LatencyEndpoint, LatencyFigures
from cotenant_node_executor.sampling.latency.poller import LatencyPoller
from cotenant_node_executor.sampling.latency.readings import AskedService, ServiceReading
from cotenant_node_executor.sampling.latency.request import MOST_BYTES, RequestFailedError, ask
from tests.other_processes import wait_for

OWN = frozenset({os.getpid()})
Serve = Callable[..., LatencyEndpoint]


def answer(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}\r\n".encode() + body


def a_moment(connection: socket.socket, _seconds: float = 0.0) -> None:
    """Read the request until its end."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += connection.recv(4096)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serve each connection by a function, over loopback or a unix socket."""
    servers: list[socket.socket] = []

    def begin(respond: Callable[[socket.socket], None], *, unix: bool = False) -> LatencyEndpoint:
        server = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        file = tmp_path / "s"
        server.bind(str(file) if unix else ("127.0.0.1", 0))
        server.listen()
        servers.append(server)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        a_moment(connection)
                        respond(connection)

        threading.Thread(target=accept, daemon=True).start()
        if unix:
            return LatencyEndpoint(socket=str(file), path="/latency")
        return LatencyEndpoint(host="127.0.0.1", port=server.getsockname()[1], path="/latency")

    yield begin
    for server in servers:
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()


@pytest.mark.parametrize("unix", [False, True])
def test_a_service_says_its_latency(serve: Serve, unix: bool) -> None:
    body = b'{"p99Ms": 12.5, "oldestRequestMs": 3, "more": [1]}'
    endpoint = serve(lambda connection: connection.sendall(answer(body)), unix=unix)
    assert asyncio.run(ask(endpoint, OWN)) == LatencyFigures(12.5, 3.0)


def test_a_connection_that_stays_open_ends_with_the_stated_length(serve: Serve) -> None:
    body = b'{"p99Ms": 1}'

    def keep_open(connection: socket.socket) -> None:
        connection.sendall(answer(body, headers=f"Content-Length: {len(body)}\r\n"))
        connection.recv(1)

    assert asyncio.run(ask(serve(keep_open), OWN)) == LatencyFigures(1.0)


def drip(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"H")
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("respond", "why"),
    [
        (lambda c: c.sendall(b"rubbish\r\n\r\n{}"), "not one of HTTP"),
        (lambda c: c.sendall(b""), "not one of HTTP"),
        (lambda c: c.sendall(answer(b"", "302 Found", "Location: http://127.0.0.1:1/\r\n")), "status is 302"),
        (lambda c: c.sendall(answer(b"{}")), "neither p99Ms nor oldestRequestMs"),
        (lambda c: c.sendall(answer(b"[1]")), "cannot be read"),
        (lambda c: c.sendall(answer(b'{"p99Ms": -1}')), "not from 0"),
        (lambda c: c.sendall(answer(b'{"p99Ms": 1e18}')), "not from 0"),
        (lambda c: c.sendall(answer(b'{"p99Ms": NaN}')), "cannot be read"),
        (lambda c: c.sendall(answer(b'{"p99Ms": ' + b"[" * 2000)), "cannot be read"),
        (lambda c: c.sendall(answer(b" " * 2 * MOST_BYTES)), f"more than {MOST_BYTES} bytes"),
        (lambda c: c.recv(1), "no answer within 250 ms"),
        (drip, "no answer within 250 ms"),
    ],
)
def test_what_a_service_may_do_instead_is_said(serve: Serve, respond: Callable[[socket.socket], None], why: str) -> None:
    began = time.monotonic()
    with pytest.raises(RequestFailedError, match=why):
        asyncio.run(ask(serve(respond), OWN))
    assert time.monotonic() - began < 5.0


def test_nobody_listens(tmp_path: Path) -> None:
    for endpoint in (LatencyEndpoint(socket=str(tmp_path / "none")), LatencyEndpoint(host="127.0.0.1", port=1)):
        with pytest.raises(RequestFailedError):
            asyncio.run(ask(endpoint, OWN))


def test_a_socket_of_another_process_is_not_asked(serve: Serve) -> None:
    endpoint = serve(lambda connection: connection.sendall(answer(b'{"p99Ms": 1}')), unix=True)
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as other:
        with pytest.raises(RequestFailedError, match="another process"):
            asyncio.run(ask(endpoint, {other.pid}))
        other.communicate()


def test_the_poller_asks_all_and_a_hanging_service_delays_nobody(serve: Serve) -> None:
    good = serve(lambda connection: connection.sendall(answer(b'{"oldestRequestMs": 7}')))
    hanging = serve(lambda connection: connection.recv(1), unix=True)
    poller = LatencyPoller(lambda group: [] if group == "gone" else [*OWN], period_seconds=0.05)
    poller.ask([AskedService("a", hanging), AskedService("b", good), AskedService("gone", good)])
    try:
        wait_for("both answers", lambda: {"a", "b"} <= poller.readings.keys(), 60)
        assert poller.readings["b"] == ServiceReading(LatencyFigures(oldest_request_ms=7.0))
        assert poller.readings["a"].problem == "no answer within 250 ms"
        assert "gone" not in poller.readings
    finally:
        poller.close()
    assert poller.readings == {}


def test_the_poller_ends_with_the_last_service_and_begins_again(serve: Serve) -> None:
    good = serve(lambda connection: connection.sendall(answer(b'{"p99Ms": 7}')))
    poller = LatencyPoller(lambda _: [*OWN], period_seconds=0.01)
    for _ in range(2):
        poller.ask([AskedService("b", good)])
        wait_for("an answer", lambda: "b" in poller.readings, 60)
        poller.close()
        assert not [each for each in threading.enumerate() if each.name == "service-latency"]
