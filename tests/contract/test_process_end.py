"""A process ends when it is asked to, whatever its tasks do with a cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import pytest

from cotenant.runtime import last_tasks
from cotenant.runtime.last_tasks import end_last_tasks
from tests.nats_server import NatsServer
from tests.streams import declare_streams

END_SECONDS = 60

PROGRAM = '''
import asyncio, contextlib, sys
from cotenant.runtime.process import run_program
from cotenant.runtime.settings import parser

async def stubborn(swallowed):
    while swallowed:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        swallowed -= 1
    await asyncio.sleep(3600)

async def program(host, arguments):
    task = asyncio.ensure_future(stubborn(int(arguments.swallowed)))
    print("started", flush=True)
    await host.stopping.wait()

made = parser("stubborn", "a program with a task that swallows cancellations")
made.add_argument("--swallowed")
run_program("stubborn", made, program)
'''


@pytest.mark.parametrize(("swallowed", "status"), [("1", 0), ("1000000", 1)])
async def test_sigterm_ends_a_process_whose_tasks_swallow_cancellations(
    nats_server: NatsServer, tmp_path: Path, swallowed: str, status: int
) -> None:
    await asyncio.to_thread(declare_streams, nats_server.url)
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), "--nats", nats_server.url, "--http-port", "-1", "--swallowed", swallowed,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert await asyncio.wait_for(process.stdout.readline(), END_SECONDS) == b"started\n"
        process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(process.communicate(), END_SECONDS)
        assert process.returncode == status
        assert (b"stubborn ends although these tasks still run" in log) == bool(status)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def test_what_is_left_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_tasks, "TRIES", 2)
    monkeypatch.setattr(last_tasks, "TRY_SECONDS", 0.01)
    released = asyncio.Event()

    async def stubborn() -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    task = asyncio.create_task(stubborn(), name="stubborn")
    await asyncio.sleep(0)
    assert [left.split(" ")[0] for left in await end_last_tasks()] == ["stubborn"]
    released.set()
    await asyncio.wait_for(task, END_SECONDS)
