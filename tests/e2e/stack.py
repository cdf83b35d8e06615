"""`cotenant up` as a user runs it, for tests: started in a folder of its own, driven by the command, ended by Ctrl-C."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from cotenant_console.api.credentials import read_kubeconfig
from tests import other_processes

BIN = Path(sys.executable).parent
WAIT_SECONDS = 240
"""Long enough for a crowded machine; nobody waits for it where all is well."""
T = TypeVar("T")


def wait_for(what: str, look: Callable[[], T | None], seconds: float = WAIT_SECONDS) -> T:
    """Wait for what the stack does, as long as a crowded machine may take."""
    return other_processes.wait_for(what, look, seconds)


class Stack:
    """A running stack."""

    def __init__(self, *flags: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cotenant-e2e-"))
        self.folder.chmod(0o755)
        self.environment = {**os.environ, "COTENANT_DATA": str(self.folder)}
        self.screen = self.folder.with_suffix(".screen")
        with self.screen.open("wb") as output:
            self.process = subprocess.Popen(
                [BIN / "cotenant", "up", "--data", str(self.folder), *flags],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )

    @property
    def endpoint(self) -> dict[str, str]:
        """The addresses of the API and of NATS."""
        found: dict[str, str] = json.loads((self.folder / "endpoint.json").read_text())
        return found

    def until_ready(self) -> None:
        """Wait until the stack says so."""

        def ready() -> bool:
            assert self.process.poll() is None, self.screen.read_text()
            return "ready after" in self.screen.read_text()

        wait_for("the stack to be ready", ready)

    def run(self, *words: str, given: str | None = None, status: int | None = 0) -> str:
        """Run the command; returns what it prints. Fails if its exit status is another one."""
        done = subprocess.run(
            [BIN / "cotenant", *words],
            input=given,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=WAIT_SECONDS,
            check=False,
        )
        output = done.stdout + done.stderr
        assert status is None or done.returncode == status, f"cotenant {' '.join(words)}: {done.returncode}\n{output}"
        return output

    def get(self, path: str) -> dict[str, Any] | None:
        """Return what the API has there; None where it has nothing, or does not answer now.

        Asked without the command: a process for every look would be most of this machine's load.
        """
        try:
            found: dict[str, Any] = json.loads(self.ask("GET", path)[1])
        except (OSError, http.client.HTTPException):
            return None
        return found

    def patch(self, path: str, change: dict[str, Any]) -> None:
        """Merge a change into an object."""
        self.ask("PATCH", path, json.dumps(change).encode(), {"Content-Type": "application/merge-patch+json"})

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[int, bytes]:
        """Return status and body of an answer. Raises HTTPError for a refusal."""
        server = read_kubeconfig(self.folder / "kubeconfig")
        credentials = server.credentials
        request = urllib.request.Request(
            f"{server.url}/{path}", data=body, headers={**headers, **credentials.headers}, method=method
        )
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS, context=credentials.context()) as answer:
            return answer.status, answer.read()

    def pod(self, name: str) -> dict[str, Any] | None:
        """Return a pod, None where there is none (or the API does not answer now)."""
        return self.get(f"api/v1/namespaces/default/pods/{name}")

    def items(self, collection: str) -> list[dict[str, Any]]:
        """Return all objects of a collection such as `api/v1/pods`, as soon as the API answers."""
        found: list[dict[str, Any]] = wait_for("the API", lambda: self.get(collection))["items"]
        return found

    def pods(self) -> list[dict[str, Any]]:
        """Return all pods, as soon as the API answers."""
        return self.items("api/v1/pods")

    def host(self) -> str:
        """Return the real node's name: the one with the process runtime's label."""

        def registered() -> str:
            for node in self.items("api/v1/nodes"):
                if node["metadata"].get("labels", {}).get("cotenant.io/runtime") == "process":
                    return str(node["metadata"]["name"])
            return ""

        return wait_for("the node", registered)

    def apply(self, *documents: dict[str, Any]) -> str:
        """Apply manifests."""
        return self.run("apply", "-f", "-", given="\n---\n".join(json.dumps(document) for document in documents))

    def runs(self, name: str) -> bool:
        """Whether a pod is Running."""
        return bool((self.pod(name) or {}).get("status", {}).get("phase") == "Running")

    def pid(self, service: str) -> int:
        """Return the process of a service (or `nats-server`) of this stack, 0 while there is none."""
        word = service if service == "nats-server" else f"cotenant_{service.replace('-', '_')}"
        return other_processes.child_pid(self.process.pid, word, without="--simulate")

    def end(self) -> int:
        """Press Ctrl-C; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(WAIT_SECONDS)

    def close(self) -> None:
        """End it and remove what it left in its data folder."""
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.screen.unlink(missing_ok=True)
