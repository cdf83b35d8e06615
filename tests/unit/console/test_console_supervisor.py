"""The supervisor over real processes: restarts, crashes that are shown, an end that leaves nothing."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.log.contract import HISTORY, Stored, Write
from cotenant.log.nats.log import connect
from cotenant.log.nats.streams import StreamSizes
from cotenant.log.storing import store_batch
from cotenant_console.recorded import history, opened
from cotenant_console.up.folder_lock import FolderInUseError, FolderLock
from cotenant_console.up.nats_server import answers, free_port, members, nats_processes, nats_urls
from cotenant_console.up.restarts import HEALTHY_AFTER_SECONDS, Backoff
from cotenant_console.up.supervisor import ProcessSpec, ProcessState, Supervisor
from tests.contract.toy import metric

WAIT_SECONDS = 60
SLEEPER = "import time; time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


def python(name: str, code: str, stop_seconds: float = 5.0) -> ProcessSpec:
    return ProcessSpec(name, (sys.executable, "-S", "-c", code), {}, stop_seconds)


def own_timer_slack_ns() -> int:
    return int(Path("/proc/self/timerslack_ns").read_text())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, checking often; fail after a bound."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110 - the condition is the kernel's, no event announces it
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_pause_doubles_to_its_bound_and_there_is_none_after_a_healthy_run() -> None:
    backoff, pauses = Backoff(), []
    for _ in range(8):
        backoff = backoff.after_exit(0.1)
        pauses.append(backoff.pause_seconds)
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    healthy = backoff.after_exit(HEALTHY_AFTER_SECONDS)
    assert healthy.pause_seconds == 0.0
    assert healthy.after_exit(0.1).pause_seconds == 0.25
    assert Backoff().pause_seconds == 0.0


@pytest.mark.parametrize("slack_us", [0, 1500])
async def test_a_process_gets_its_timer_slack(tmp_path: Path, slack_us: int) -> None:
    supervisor = Supervisor(tmp_path)
    reader = "print(open('/proc/self/timerslack_ns').read(), flush=True); import time; time.sleep(600)"
    supervisor.start(replace(python("reader", reader), timer_slack_us=slack_us))
    log = tmp_path / "reader.log"
    await until(lambda: log.exists() and log.read_text().endswith("\n"))
    assert int(log.read_text()) == (1000 * slack_us or own_timer_slack_ns())
    await supervisor.stop()


async def test_a_killed_process_comes_back_and_its_crash_is_shown(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start(python("sleeper", SLEEPER))
    process = supervisor.processes["sleeper"]
    await until(lambda: process.pid != 0)
    first = process.pid
    os.kill(first, signal.SIGKILL)
    await until(lambda: process.pid not in (0, first))
    assert [str(crash) for crash in supervisor.crashes] == ["sleeper ended unexpectedly (killed by SIGKILL)"]
    await supervisor.stop()
    assert not alive(process.pid or first)


@pytest.mark.parametrize("code", [SLEEPER, STUBBORN])
async def test_a_restart_that_was_ordered_is_no_crash_and_needs_no_pause(tmp_path: Path, code: str) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start(python("sleeper", code, stop_seconds=0.2))
    process = supervisor.processes["sleeper"]
    await until(lambda: process.pid != 0)
    first = process.pid
    await supervisor.restart("sleeper")
    assert not alive(first)
    await until(lambda: process.pid not in (0, first))
    assert (supervisor.crash_count, process.starts, process.backoff.pause_seconds) == (0, 2, 0.0)
    await supervisor.stop()


async def test_a_process_that_fails_is_shown_with_its_last_line(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start(python("broken", "import sys; print('no such folder'); sys.exit(3)"))
    await until(lambda: supervisor.crash_count >= 2)
    assert str(supervisor.crashes[0]) == "broken ended unexpectedly (exit status 3): no such folder"
    await supervisor.stop()
    assert supervisor.processes["broken"].state is ProcessState.STOPPED


async def test_a_program_that_does_not_exist_is_a_crash_and_not_an_end(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start(ProcessSpec("absent", ("/no/such/program",), {}))
    await until(lambda: supervisor.crash_count >= 1)
    assert "cannot be started" in str(supervisor.crashes[0])
    await supervisor.stop()


async def test_the_stages_end_one_after_another_and_a_stubborn_process_is_killed(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start(python("stubborn", STUBBORN, stop_seconds=0.2))
    supervisor.start(python("last", SLEEPER))
    pids = []
    for name in ("stubborn", "last"):
        process = supervisor.processes[name]
        await until(lambda process=process: process.pid != 0)  # type: ignore[misc]
        pids.append(process.pid)
    await until(lambda: (tmp_path / "stubborn.log").read_text() == "up\n")
    await supervisor.stop(["stubborn"], ["last"])
    assert not any(alive(pid) for pid in pids)
    assert supervisor.crash_count == 0


def test_the_processes_end_even_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from cotenant_console.up.supervisor import ProcessSpec, Supervisor\n"
        "async def main():\n"
        f"    supervisor = Supervisor(Path({str(tmp_path)!r}))\n"
        f"    supervisor.start(ProcessSpec('s', (sys.executable, '-S', '-c', {SLEEPER!r}), {{}}))\n"
        "    while not supervisor.processes['s'].pid: await asyncio.sleep(0.01)\n"
        "    print(supervisor.processes['s'].pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    descriptor = os.pidfd_open(child)
    try:
        assert alive(child)
        parent.kill()
        parent.wait()
        assert ended(descriptor)
    finally:
        os.close(descriptor)
        parent.stdout.close()


def ended(descriptor: int) -> bool:
    """Whether the process behind a pidfd ends within a bound."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(WAIT_SECONDS * 1000))


def test_a_second_up_on_the_same_folder_is_refused_by_name_of_the_first(tmp_path: Path) -> None:
    with FolderLock(tmp_path), pytest.raises(FolderInUseError, match=f"process {os.getpid()}"):
        FolderLock(tmp_path).__enter__()
    with FolderLock(tmp_path):
        pass


async def test_a_process_is_started_again_as_another_specification_has_it(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start(python("one", SLEEPER))
    await until(lambda: bool(supervisor.processes["one"].pid))
    before = supervisor.processes["one"].pid
    await supervisor.replace(python("one", SLEEPER + " # other"))
    await until(lambda: bool(supervisor.processes["one"].pid))
    assert supervisor.processes["one"].pid != before
    assert "# other" in supervisor.processes["one"].spec.argv[-1]
    assert not supervisor.crash_count, "it was asked for"
    await supervisor.stop()


async def test_the_real_nats_server_starts_and_comes_back_after_a_kill(tmp_path: Path) -> None:
    port = free_port()
    supervisor = Supervisor(tmp_path / "logs")
    supervisor.start(nats_processes(tmp_path, members([port]))[0][0])
    process = supervisor.processes["nats-server"]

    async def greeted() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not await answers(port):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    await greeted()
    os.kill(process.pid, signal.SIGKILL)
    await until(lambda: process.starts == 2)
    await greeted()
    await supervisor.stop()
    assert not await answers(port, 0.2)
    assert "sync_interval: always" in (tmp_path / "nats" / "nats-server.conf").read_text()


async def test_three_servers_hold_one_log_that_can_be_read_while_nothing_runs(tmp_path: Path) -> None:
    ports = [free_port()]
    while len(ports) < 3:
        ports.append(free_port(ports))
    supervisor = Supervisor(tmp_path / "logs")
    specs, store_bytes = nats_processes(tmp_path, members(ports))
    for spec in specs:
        supervisor.start(spec)
    assert [spec.name for spec in specs] == ["nats-server-1", "nats-server-2", "nats-server-3"]
    log = await connect(nats_urls(ports), "test")
    await log.declare(replicas=3, sizes=StreamSizes.within(store_bytes))
    outcome = await store_batch(log, [Write(event=metric("a", 1)), Write(event=metric("b", 2))])
    assert isinstance(outcome, Stored)
    async with asyncio.timeout(WAIT_SECONDS):
        while await log.last_sequence(HISTORY) < outcome.last:  # noqa: ASYNC110 - the copy announces nothing
            await asyncio.sleep(0.05)
    await log.close()
    await supervisor.stop()
    async with opened("", tmp_path) as stopped:
        assert [event.subject for event in await history(stopped)] == ["metrics.a", "metrics.b"]
