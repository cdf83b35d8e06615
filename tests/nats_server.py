"""A real nats-server for tests: JetStream on disk, fsync always, loopback, a free port, a folder of its own."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BINARY = Path(sys.executable).parent / "nats-server"
CLUSTER_CONFIGURATION = Path(__file__).parents[1] / "deploy" / "nats-cluster.conf"
START_SECONDS = 60

_handed_out: set[int] = set()


def free_port() -> int:
    """Return a port that was free a moment ago, below the range that the kernel hands out for outgoing connections.

    The same one is never returned twice: who asks for several listens on them later.
    """
    for port in random.sample(range(15_000, 32_000), 1000):
        if port in _handed_out:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _handed_out.add(port)
        return port
    raise OSError("no free port on 127.0.0.1")


def open_to_all(configuration: str) -> str:
    """Return a server's configuration without accounts and certificates: the log's tests are not about them."""
    return re.sub(r'(?ms)^include "pki/nats/accounts\.conf"$|^ *tls \{.*?^ *\}$', "", configuration)


class NatsServer:
    """Start, kill, start again on the same store, and clean up."""

    def __init__(self, *, sync: str = "always", environment: dict[str, str] | None = None) -> None:
        """`environment`: what deploy/nats-cluster.conf leaves open, for one server of several."""
        self.folder = Path(tempfile.mkdtemp(prefix="cotenant-nats-"))
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = dict(os.environ)
        if environment is not None:
            self._environment |= environment
            self._environment |= {"NATS_LISTEN": f"127.0.0.1:{self.port}", "NATS_STORE": str(self.store)}
            (self.folder / "server.conf").write_text(open_to_all(CLUSTER_CONFIGURATION.read_text()))
            return
        (self.folder / "server.conf").write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            "max_payload: 2MB\n"
            f'jetstream {{ store_dir: "{self.folder}/store", sync_interval: {sync}\n'
            "  limits { batch { max_msgs: 8000, max_inflight_per_stream: 50 } } }\n"
        )

    def start(self) -> None:
        """Start and wait until the port answers, at most START_SECONDS."""
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [BINARY, "-c", self.folder / "server.conf"], stdout=log, stderr=log, env=self._environment
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 5) as probe:
                    if probe.recv(4) == b"INFO":
                        return
            except OSError:
                time.sleep(0.02)
        raise RuntimeError(f"nats-server did not start: {(self.folder / 'server.log').read_text()[-500:]}")

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        """Have it do nothing until `resume`; its connections stay. On a busy machine it does not stop at once."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop it as its unit would: all that it acknowledged is on disk."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def store(self) -> Path:
        """The folder of its streams."""
        return self.folder / "store"

    def close(self) -> None:
        """Stop it and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class NatsCluster:
    """Three servers that replicate streams among them."""

    def __init__(self) -> None:
        ports = [free_port() for _ in range(3)]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        self.servers = {
            f"s{number}": NatsServer(
                environment={
                    "NATS_NAME": f"s{number}",
                    "NATS_CLUSTER": f"127.0.0.1:{port}",
                    "NATS_MONITOR": f"127.0.0.1:{free_port()}",
                    "NATS_ROUTES": f"[{routes}]",
                }
            )
            for number, port in enumerate(ports, start=1)
        }

    @property
    def url(self) -> str:
        """The addresses of all three."""
        return ",".join(server.url for server in self.servers.values())

    def start(self) -> None:
        """Start all of them; they elect their leaders by themselves."""
        for server in self.servers.values():
            server.start()

    def close(self) -> None:
        """Stop them and remove their folders."""
        for server in self.servers.values():
            server.kill()
        for server in self.servers.values():
            server.close()
