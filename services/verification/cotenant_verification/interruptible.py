"""Runs something so that Ctrl-C and SIGTERM end it cleanly: its processes are stopped and its folder is removed first."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import TypeVar

import click

Found = TypeVar("Found")


def until_told(running: Coroutine[None, None, Found]) -> Found:
    """Run to the end. Raises click.Abort after a signal."""

    async def run() -> Found:
        task = asyncio.ensure_future(running)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await task

    try:
        return asyncio.run(run())
    except asyncio.CancelledError as error:
        raise click.Abort from error
