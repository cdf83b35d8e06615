"""A gateway of its own process, and what tests of its HTTP API say to it."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.builders import pod_document
from tests.nats_server import free_port

PROGRAM = Path(sys.executable).parent / "cotenant-gateway"
PODS = "/api/v1/namespaces/default/pods"
WAIT_SECONDS = 90
MERGE = {"Content-Type": "application/merge-patch+json"}
with_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed: its commands are not tried"
)


class GatewayProcess:
    """A gateway of its own process."""

    def __init__(self, nats_url: str, replica: str = "g1", *options: str, before: Sequence[str] = ()) -> None:
        """`before`: a command that runs the gateway's, such as unshare."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        arguments = ["--nats", nats_url, "--http-port", str(self.port), "--replica", replica, "--log-level", "WARNING"]
        self.process = subprocess.Popen([*before, PROGRAM, *arguments, *options])

    async def ready(self) -> None:
        """Wait until /readyz says so, within a bound."""
        async with aiohttp.ClientSession() as session, asyncio.timeout(WAIT_SECONDS):
            while True:
                try:
                    async with session.get(f"{self.url}/readyz") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)

    async def kubectl(self, home: Path, *arguments: str) -> str:
        """Run a kubectl command against it, within a bound, and return what it prints; it must succeed."""
        process = await asyncio.create_subprocess_exec(
            *("kubectl", f"--server={self.url}", f"--cache-dir={home}/cache", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        )
        async with asyncio.timeout(WAIT_SECONDS):
            output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

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


async def body_of(response: aiohttp.ClientResponse, status: int) -> Any:
    """An answer's JSON; its status must be this one."""
    text = await response.text()
    assert response.status == status, text
    return json.loads(text)
