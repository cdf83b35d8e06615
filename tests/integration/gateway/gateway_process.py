"""A gateway of its own process, and what tests of its HTTP API say to it."""

from __future__ import annotations

import asyncio
import atexit
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cotenant_console.pki.identity import GATEWAY_NAMES, GatewayIdentity, prepared
from cotenant_verification.http_sessions import http_session
from tests.builders import pod_document
from tests.nats_server import free_port
from tests.streams import declare_streams

PROGRAM = Path(sys.executable).parent / "cotenant-gateway"
PODS = "/api/v1/namespaces/default/pods"
WAIT_SECONDS = 90
MERGE = {"Content-Type": "application/merge-patch+json"}
with_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed: its commands are not tried"
)


@cache
def shared_identity() -> GatewayIdentity:
    """Certificates and an administrator's token, the same for all gateways of a test run."""
    folder = Path(tempfile.mkdtemp(prefix="cotenant-identity-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return prepared(folder, GATEWAY_NAMES)


def refusal_to_start(nats_url: str, flags: Sequence[str]) -> str:
    """Start a gateway with flags that it must refuse; return what it says as it ends. It has to end with a failure."""
    declare_streams(nats_url)
    command = [str(PROGRAM), "--nats", nats_url, "--http-port", str(free_port()), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert done.returncode != 0
    return done.stderr + done.stdout


class GatewayProcess:
    """A gateway of its own process."""

    def __init__(
        self, nats_url: str, replica: str = "g1", *options: str, before: Sequence[str] = (), store_bytes: int = 0
    ) -> None:
        """`before`: a command that runs the gateway's, such as unshare. `store_bytes`: what the streams' sizes follow."""
        declare_streams(nats_url, store_bytes)
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        identity = shared_identity()
        self.credentials = identity.credentials
        """An administrator's."""
        arguments = ["--nats", nats_url, "--http-port", str(self.port), "--replica", replica, "--log-level", "WARNING"]
        self.process = subprocess.Popen([*before, PROGRAM, *arguments, *identity.gateway_flags(), *options])

    @property
    def kubeconfig(self) -> Path:
        """An administrator's, in a file."""
        path = shared_identity().tokens.parent / f"kubeconfig-{self.port}"
        shared_identity().write_kubeconfig(path, self.url)
        return path

    def session(self, **options: Any) -> aiohttp.ClientSession:
        """An administrator's session, to be used as a context."""
        return http_session(self.credentials, self.url, **options)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection, for bytes that no client sends."""
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.credentials.context())

    @property
    def head(self) -> str:
        """Header lines that a request of an administrator needs."""
        return f"Host: 127.0.0.1\r\nAuthorization: Bearer {self.credentials.token}\r\n"

    async def ready(self) -> None:
        """Wait until /readyz says so, within a bound."""
        async with self.session() as session, asyncio.timeout(WAIT_SECONDS):
            while True:
                try:
                    async with session.get("/readyz") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)

    async def kubectl(self, home: Path, *arguments: str, status: int = 0, editor: Path | None = None) -> str:
        """Run a kubectl command against it, within a bound, and return what it prints; it must end with this status. `editor`:
        what it edits with."""
        environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", **({"KUBE_EDITOR": str(editor)} if editor else {})}
        process = await asyncio.create_subprocess_exec(
            *("kubectl", f"--kubeconfig={self.kubeconfig}", f"--cache-dir={home}/cache", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        async with asyncio.timeout(WAIT_SECONDS):
            output, _ = await process.communicate()
        assert process.returncode == status, output.decode()
        return output.decode()

    async def explained(self, about: str) -> dict[str, Any]:
        """What `cotenant explain` says, about `pod/NAMESPACE/NAME` for example."""
        async with self.session() as session, session.get(f"/apis/cotenant.io/v1/explain/{about}") as answer:
            explained: dict[str, Any] = await body_of(answer, 200)
            return explained

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(WAIT_SECONDS)


def pod(name: str, **labels: str) -> dict[str, object]:
    """A pod's manifest."""
    return pod_document(name, namespace="", uid="", labels=labels, image="app", requests={"cpu": "100m"})


def sentences(explained: dict[str, Any], of_type: str = "") -> list[str]:
    """What an explanation says of the events that are still kept, of one type only where one is given."""
    return [link["sentence"] for link in explained["links"] if link.get("type") and of_type in link["type"]]


async def body_of(response: aiohttp.ClientResponse, status: int) -> Any:
    """An answer's JSON; its status must be this one."""
    text = await response.text()
    assert response.status == status, text
    return json.loads(text)
