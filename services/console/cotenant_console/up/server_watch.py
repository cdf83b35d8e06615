"""Whether nats-server must be restarted, and the restart.

In: the server's `/healthz` (monitoring port), and the free bytes of the disk that it stores on. Out: a
verdict; `keep_storing` restarts the server where that helps.

A stream whose write has failed, for lack of space or because of the disk, stores no further writes and does not answer
them until nats-server (2.14 and later) is restarted; some failures turn JetStream off altogether. A restart
helps once there is space, not before.

Bounds: a check every LOOK_SECONDS, RESTART_PAUSE_SECONDS between restarts.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

LOOK_SECONDS = 2.0
RESTART_PAUSE_SECONDS = 15.0
ANSWER_SECONDS = 3.0
SPACE_BYTES = 4 << 20
"""With less on the disk the next write could fail again."""
CURABLE = ("write error", "not enabled")
"""The server's texts about a stream that accepts no writes, and about disabled JetStream."""


@dataclass(frozen=True)
class ServerFault:
    """The server's fault; empty: none known. `restart`: a restart helps now."""

    fault: str = ""
    restart: bool = False

    def __str__(self) -> str:
        if not self.fault:
            return "nats-server stores writes"
        if self.restart:
            return f"nats-server must be restarted: {self.fault}"
        return f"nats-server stores no writes, and there is no space yet: {self.fault}"


def server_fault(address: str, port: int) -> str:
    """Return the server's reported fault that a restart would cure. Empty if there is none, or it does not answer."""
    answer = _health(address, port, "/healthz")
    try:
        body = json.loads(answer[1]) if answer is not None else None
    except ValueError:
        return ""
    error = str(body.get("error", "")) if isinstance(body, dict) else ""
    return error if any(part in error for part in CURABLE) else ""


def server_answers(address: str, port: int) -> bool:
    """Whether the server with this monitoring port answers, and has JetStream."""
    answer = _health(address, port, "/healthz?js-enabled-only=true")
    return answer is not None and answer[0] == HTTPStatus.OK


def _health(address: str, port: int, path: str) -> tuple[int, bytes] | None:
    """Return status and body of the server's answer; None without one."""
    connection = http.client.HTTPConnection(address, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def verdict(address: str, port: int, store: Path) -> ServerFault:
    """Return the verdict on the server with this monitoring port and storage folder."""
    fault = server_fault(address, port)
    if not fault:
        return ServerFault()
    try:
        free = shutil.disk_usage(store).free
    except OSError:
        return ServerFault(fault)
    return ServerFault(fault, restart=free >= SPACE_BYTES)


async def keep_storing(look: Callable[[], ServerFault], restart: Callable[[ServerFault], Awaitable[None]]) -> None:
    """Check forever and restart the server if that is the cure; cancelled at the end."""
    not_before = 0.0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        found = await asyncio.to_thread(look)
        if found.restart and time.monotonic() >= not_before:
            await restart(found)
            not_before = time.monotonic() + RESTART_PAUSE_SECONDS
