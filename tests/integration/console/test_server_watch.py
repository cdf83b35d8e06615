"""A real nats-server whose disk is full: what `up` and health checks find, and when starting it again is the cure."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cotenant.events import Event, NodeResources
from cotenant.log.contract import NoAnswer, Stored, Write
from cotenant.log.nats.log import connect
from cotenant.log.nats.streams import StreamSizes
from cotenant_console.commands.admin.check_server import command as check_server
from cotenant_console.up.nats_server import LOOPBACK, ServerMember, configuration, nats_binary
from cotenant_console.up.server_watch import server_answers, verdict
from tests.nats_server import free_port
from tests.other_processes import wait_for

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root for a file system of its own"
)
MEBIBYTES = 64
STORE_BYTES = 32 << 20
WAIT_SECONDS = 60


class ServerOnSmallDisk:
    """A server whose store is a tmpfs, shared with somebody else's file."""

    def __init__(self, folder: Path) -> None:
        self.port, self.monitor_port = free_port(), free_port()
        member = ServerMember("nats-server", self.port, monitor_port=self.monitor_port)
        config, store = folder / "nats.conf", folder / "disk"
        store.mkdir()
        config.write_text(configuration(member, store / "store", STORE_BYTES))
        mounted = f'mount -t tmpfs -o size={MEBIBYTES}m tmpfs {store} && exec "$@"'
        with (folder / "server.log").open("wb") as log:
            command = ("unshare", "--mount", "sh", "-c", mounted, "sh", nats_binary(), "-c", str(config))
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.disk = Path(f"/proc/{self.process.pid}/root{store}")

    def fill(self) -> None:
        """Write somebody else's file until nothing more fits."""
        with (self.disk / "foreign").open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 14))
            except OSError:
                return

    def thread_states(self) -> set[str]:
        """Return the states of its threads, as the kernel's letters."""
        stats = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        return {stat.read_text().rpartition(")")[2].split()[0] for stat in stats}

    def check(self) -> Result:
        """Run the health check."""
        monitor = f"http://{LOOPBACK}:{self.monitor_port}"
        return CliRunner().invoke(check_server, ["--monitor", monitor, "--store", str(self.disk)])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerOnSmallDisk]:
    made = ServerOnSmallDisk(tmp_path)
    yield made
    made.process.terminate()
    made.process.wait(WAIT_SECONDS)


async def test_a_restart_is_asked_for_once_a_write_has_failed_and_there_is_space(server: ServerOnSmallDisk) -> None:
    def ask() -> str:
        return str(verdict(LOOPBACK, server.monitor_port, server.disk))

    log = await connect(f"nats://{LOOPBACK}:{server.port}", "test")
    await log.declare(sizes=StreamSizes.within(STORE_BYTES))
    write = Write(event=Event(subject="node.n.resources", data=NodeResources(node="n" * 20_000), id="1", source="/test"))
    assert isinstance(await log.append([write]), Stored)
    assert ask() == "nats-server stores writes"
    assert server.check().exit_code == 0

    server.fill()
    outcome = await log.append([write])
    while isinstance(outcome, Stored):
        outcome = await log.append([write])
    assert isinstance(outcome, NoAnswer)
    wait_for("the server to say so", lambda: "there is no space yet" in ask(), WAIT_SECONDS)
    full = server.check()
    assert (full.exit_code, "no space left on device" in full.output) == (0, True)

    (server.disk / "foreign").unlink()
    assert ask().startswith("nats-server must be restarted: JetStream stream")
    assert server.check().exit_code == 1
    await log.close()


def test_a_stopped_server_does_not_answer_and_a_continued_one_does(server: ServerOnSmallDisk) -> None:
    def does_answer() -> bool:
        return server_answers(LOOPBACK, server.monitor_port)

    wait_for("the server", does_answer, WAIT_SECONDS)
    server.process.send_signal(signal.SIGSTOP)
    try:
        wait_for("all its threads to stop", lambda: server.thread_states() == {"T"}, WAIT_SECONDS)
        assert not does_answer()
    finally:
        server.process.send_signal(signal.SIGCONT)
    wait_for("the server", does_answer, WAIT_SECONDS)


def test_a_server_that_does_not_answer_is_not_this_checks_business(tmp_path: Path) -> None:
    done = CliRunner().invoke(check_server, ["--monitor", f"http://{LOOPBACK}:{free_port()}", "--store", str(tmp_path)])
    assert done.exit_code == 0
