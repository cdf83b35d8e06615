"""The supervisor with a fork server, over real processes: forks are like processes that were started with `python -m`."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from cotenant_console.up.forking.client import ForkServer
from cotenant_console.up.supervisor import ProcessSpec, Supervised, Supervisor
from tests.other_processes import child_pid, command_lines

WAIT_SECONDS = 60
MODULES = {
    "sleeper": "import time\nif __name__ == '__main__':\n    print('up', flush=True)\n    time.sleep(600)\n",
    "teller": "import json, os, sys, threading\n"
    "print(json.dumps([sys.argv[1:], __name__, os.getsid(0) == os.getpid(), threading.active_count()]))\n"
    "sys.exit(3)\n",
    "broken": "raise RuntimeError('no such folder')\n",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(tmp_path)}


@pytest.fixture
async def supervisor(tmp_path: Path, environment: dict[str, str]) -> AsyncIterator[Supervisor]:
    made = Supervisor(tmp_path / "logs", ForkServer(environment))
    yield made
    await made.stop()


def forked(module: str, *arguments: str) -> ProcessSpec:
    return ProcessSpec(module, (sys.executable, "-m", module, *arguments), {}, forked=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110 - the condition is the kernel's, no event announces it
            await asyncio.sleep(0.01)


async def up(process: Supervised, *, other_than: int = 0) -> int:
    """The pid of a process once it runs its module."""
    await until(lambda: process.pid not in (0, other_than))
    await until(lambda: process.log.read_text().count("up\n") >= process.starts > 0)
    return process.pid


def alive(pid: int) -> bool:
    """Whether the process runs: one that has ended and that nobody has awaited yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def test_a_fork_has_its_arguments_a_session_its_exit_status_and_no_thread_beside_its_own(supervisor: Supervisor) -> None:
    supervisor.start(forked("teller", "--name", "a b"))
    await until(lambda: supervisor.crash_count >= 1)
    crash = supervisor.crashes[0]
    assert (crash.how, crash.last_line) == ("exit status 3", '[["--name", "a b"], "__main__", true, 1]')


async def test_an_exception_ends_a_fork_with_a_traceback_and_status_1(supervisor: Supervisor) -> None:
    supervisor.start(forked("broken"))
    await until(lambda: supervisor.crash_count >= 1)
    assert str(supervisor.crashes[0]) == "broken ended unexpectedly (exit status 1): RuntimeError: no such folder"


async def test_a_fork_shows_the_command_line_that_it_stands_for(supervisor: Supervisor) -> None:
    supervisor.start(forked("sleeper", "--data", "x" * 300))
    pid = await up(supervisor.processes["sleeper"])
    shown = next(line for entry, line in command_lines() if entry.name == str(pid))
    assert shown.strip() == " ".join((sys.executable, "-m", "sleeper", "--data", "x" * 300))


async def test_a_killed_fork_is_forked_again_and_its_crash_is_shown(supervisor: Supervisor) -> None:
    supervisor.start(forked("sleeper"))
    process = supervisor.processes["sleeper"]
    first = await up(process)
    os.kill(first, signal.SIGKILL)
    await up(process, other_than=first)
    assert [str(crash) for crash in supervisor.crashes] == ["sleeper ended unexpectedly (killed by SIGKILL)"]


async def test_forks_end_with_a_killed_fork_server_and_come_back_with_another_one(supervisor: Supervisor) -> None:
    supervisor.start(forked("sleeper"))
    process = supervisor.processes["sleeper"]
    first = await up(process)
    server = child_pid(os.getpid(), "up.forking.server")
    os.kill(server, signal.SIGKILL)
    again = await up(process, other_than=first)
    assert not alive(first)
    assert child_pid(os.getpid(), "up.forking.server") not in (0, server)
    assert alive(again)


async def test_an_end_leaves_neither_forks_nor_the_fork_server(supervisor: Supervisor) -> None:
    supervisor.start(forked("sleeper"))
    pid = await up(supervisor.processes["sleeper"])
    await supervisor.stop(["sleeper"])
    assert not alive(pid)
    assert child_pid(os.getpid(), "up.forking.server") == 0
    assert supervisor.crash_count == 0


@pytest.fixture
def killed_parent(tmp_path: Path, environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    code = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from cotenant_console.up.forking.client import ForkServer\n"
        "from cotenant_console.up.supervisor import ProcessSpec, Supervisor\n"
        "async def main():\n"
        f"    supervisor = Supervisor(Path({str(tmp_path / 'logs')!r}), ForkServer(dict(os.environ)))\n"
        "    supervisor.start(ProcessSpec('s', (sys.executable, '-m', 'sleeper'), {}, forked=True))\n"
        "    while not supervisor.processes['s'].pid: await asyncio.sleep(0.01)\n"
        "    print(supervisor.processes['s'].pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout is not None
    try:
        yield parent, int(parent.stdout.readline())
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()


def test_forks_end_even_when_the_supervisor_is_killed(killed_parent: tuple[subprocess.Popen[bytes], int]) -> None:
    parent, child = killed_parent
    descriptor = os.pidfd_open(child)
    try:
        parent.kill()
        parent.wait()
        assert select.select([descriptor], [], [], WAIT_SECONDS)[0]
    finally:
        os.close(descriptor)
