"""Runs a benchmark of real control groups on a nats-server of its own, as root."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine

from tests.nats_server import NatsServer


def run_as_root(figure: str, measure: Callable[[str], Coroutine[None, None, None]]) -> None:
    """Run `measure` with the server's address; where it cannot, say that `figure` is left out."""
    if os.geteuid() != 0:
        print(f"{figure} skipped: needs root")
        return
    server = NatsServer()
    server.start()
    try:
        asyncio.run(measure(server.url))
    finally:
        server.close()
