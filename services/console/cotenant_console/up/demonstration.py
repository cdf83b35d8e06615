"""The demonstration beside the stack: the service's pod, its load, and jobs that keep coming.

In: a running stack. Out: objects in the namespace `demo`, the load generator as one more supervised process, and
`Readings` for the screen. At the end the pods are deleted, so that the next start on the same data folder begins
without them.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cotenant.kinds.nodes import NODES
from cotenant.kinds.pods import PODS
from cotenant_console.api.client import Client, Document, StatusError, UnreachableError, list_at, text_at
from cotenant_console.api.credentials import Server
from cotenant_console.demo.interpreter import choose_interpreter
from cotenant_console.demo.jobs import Jobs
from cotenant_console.demo.objects import NAMESPACE, SERVICE_SCRIPT, service_pod, shared_objects
from cotenant_console.up.bootstrap import create_if_absent
from cotenant_console.up.figures import number_at
from cotenant_console.up.nats_server import LOOPBACK, free_port
from cotenant_console.up.services import environment
from cotenant_console.up.supervisor import ProcessSpec

DEMO_FILE = "demo.json"
WORK_ROUNDS = 12_000
NIGHT_RATE = 8.0
JOB_CPU_SECONDS = 2.0
JOB_BATCH_CPU_MILLI = 100
JOBS_OPEN = 12
END_SECONDS = 8.0
USAGE_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"


@dataclass(frozen=True)
class DayCurve:
    """How long a compressed day is and how high its noon."""

    day_seconds: float = 120.0
    noon_rate: float = 100.0


@dataclass(frozen=True)
class Readings:
    """The latest reports of service and load."""

    service: Document
    load: Document
    service_cpu_milli: float | None


class Demonstration:
    """Runs the demonstration on a stack. Its methods block; call them from a thread."""

    def __init__(self, gateway: Server, folder: Path, node: str, shape: DayCurve) -> None:
        self._node = node
        self.interpreter = choose_interpreter(SERVICE_SCRIPT)
        self.service_port = free_port()
        self.control_port = free_port((self.service_port,))
        self._client = Client(gateway, timeout_seconds=5)
        self._folder = folder
        self._shape = shape
        self.jobs = Jobs(self._client, self.interpreter, JOB_CPU_SECONDS, JOB_BATCH_CPU_MILLI)
        self._last_cpu: tuple[float, float] | None = None

    def declare(self) -> None:
        """Create the objects. Pods left behind by an `up` that was killed are deleted first: their ports are outdated."""
        for document in shared_objects():
            create_if_absent(self._client, document)
        self._open_node()
        self.remove_pods()
        create_if_absent(self._client, service_pod(self.interpreter, self.service_port, WORK_ROUNDS))
        (self._folder / DEMO_FILE).write_text(
            json.dumps({"service": f"{LOOPBACK}:{self.service_port}", "control": f"{LOOPBACK}:{self.control_port}"}) + "\n"
        )

    def _open_node(self) -> None:
        """Let batch work fill this node: high CPU usage is intended here, and batch resources limit batch work."""
        thresholds = json.dumps({"usageThresholds": {"cpu": 0, "memory": 95}})
        patch: Document = {"metadata": {"annotations": {USAGE_THRESHOLDS: thresholds}}}
        self._client.merge_patch(NODES.path("", self._node), patch)

    def load_process(self) -> ProcessSpec:
        """The load generator."""
        argv = (
            sys.executable,
            "-m",
            "cotenant_console.demo.load",
            "--service",
            f"{LOOPBACK}:{self.service_port}",
            "--control-port",
            str(self.control_port),
            "--day-seconds",
            f"{self._shape.day_seconds:g}",
            "--night",
            f"{NIGHT_RATE:g}",
            "--noon",
            f"{self._shape.noon_rate:g}",
        )
        return ProcessSpec("demo-load", argv, environment())

    def step(self) -> None:
        """Keep jobs coming."""
        self.jobs.step(JOBS_OPEN)

    def readings(self) -> Readings:
        """Query service and load; a report is empty if there is no answer."""
        service = _ask(self.service_port, "/stats")
        used, now = number_at(service, "cpu_seconds"), time.monotonic()
        milli = None
        if used is not None:
            if self._last_cpu is not None and now > self._last_cpu[0] and used >= self._last_cpu[1]:
                milli = 1000.0 * (used - self._last_cpu[1]) / (now - self._last_cpu[0])
            self._last_cpu = (now, used)
        return Readings(service, _ask(self.control_port, "/"), milli)

    def remove_pods(self) -> None:
        """Delete the demonstration's pods and wait, within a bound, until their processes are gone."""
        deadline = time.monotonic() + END_SECONDS
        for name in self._pod_names():
            self._delete(name)
        while self._pod_names() and time.monotonic() < deadline:
            time.sleep(0.1)

    def close(self) -> None:
        """Remove what was created. If the server is gone there is nothing left to remove."""
        try:
            self.remove_pods()
        except UnreachableError:
            pass
        finally:
            (self._folder / DEMO_FILE).unlink(missing_ok=True)
            self._client.close()

    def _pod_names(self) -> list[str]:
        listed = self._client.get(PODS.path(NAMESPACE))
        return [text_at(pod, "metadata", "name") for pod in list_at(listed, "items")]

    def _delete(self, name: str) -> None:
        try:
            self._client.delete(PODS.path(NAMESPACE, name), {"gracePeriodSeconds": 1})
        except StatusError as error:
            if error.code != 404:
                raise


def _ask(port: int, path: str) -> Document:
    """A JSON document from a loopback port, empty if there is no answer."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", path)
        answer = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else {}
