"""The pods of a colocation benchmark, through the gateway of its stack.

In: cases, programs. Out: running service pods, neighbour pods that come and go. Pods name their node: there is one, and the
executor admits them. Neighbours are best-effort pods without amounts, so that no quota of their own limits them, and
usage by other programs of the machine does not keep them waiting. Bounds: RUNNING_SECONDS, GONE_SECONDS.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cotenant.kinds.config_maps import CONFIG_MAPS
from cotenant.kinds.nodes import NODES
from cotenant.kinds.pods import PODS
from cotenant_console.api.client import Client, Document, Json, StatusError, list_at, mapping_at, text_at
from cotenant_console.api.credentials import Server
from cotenant_console.demo.interpreter import Interpreter
from cotenant_verification.bench.testbed import BenchError

NAMESPACE = "colocation"
RUNNING_SECONDS, GONE_SECONDS = 120.0, 90.0
POLL_SECONDS = 0.25
ENDED = ("Failed", "Succeeded")
T = TypeVar("T")

THRESHOLDS: Document = {
    "enable": True,
    "cpuSuppressPolicy": "cpuset",
    "cpuSuppressThresholdPercent": 100,
    "memoryEvictThresholdPercent": 70,
    "memoryEvictLowerPercent": 65,
}
"""No quota: a quota bounds what best-effort takes, and does not make a service faster."""


class ColocationPods:
    """One cluster with one node."""

    def __init__(self, server: Server, interpreter: Interpreter) -> None:
        self._client = Client(server)
        self._thread = ThreadPoolExecutor(1, "colocation")
        """A connection is not for several threads at once; a cancelled call still ends before the next one begins."""
        self._interpreter = interpreter
        self._node = ""

    async def prepare(self, cpu_qos: Document) -> None:
        """Make the namespace, and configure protection without quotas; `cpu_qos`: of the class LS."""
        await self._call(lambda: self._client.create("/api/v1/namespaces", _namespace()))
        nodes = await self._call(lambda: self._client.get(NODES.path()))
        self._node = text_at(list_at(nodes, "items")[0], "metadata", "name")
        qos: Document = {
            "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2, **cpu_qos}},
            "beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}},
        }
        strategies = {"resource-threshold-config": THRESHOLDS, "resource-qos-config": qos}
        data: Document = {name: json.dumps({"clusterStrategy": strategy}) for name, strategy in strategies.items()}
        path = CONFIG_MAPS.path("koordinator-system", "slo-controller-config")
        await self._call(lambda: self._client.merge_patch(path, {"data": data}))

    async def start(self, documents: Sequence[Document]) -> None:
        """Create pods and wait until they run. Raises BenchError."""
        for document in documents:
            await self._create(document)
        names = {text_at(document, "metadata", "name") for document in documents}
        await self._until(
            lambda phases: all(phases.get(name) in ("Running", *ENDED) for name in names), RUNNING_SECONDS, "run", names
        )

    async def _create(self, document: Document) -> None:
        await self._call(lambda: self._client.create(PODS.path(NAMESPACE), document))

    async def delete(self, names: Sequence[str]) -> None:
        """Delete pods at once and wait until they are gone. Raises BenchError."""
        for name in names:
            with contextlib.suppress(StatusError):
                await self._call(lambda: self._client.delete(PODS.path(NAMESPACE, name), {"gracePeriodSeconds": 0}))  # noqa: B023
        await self._until(lambda phases: not set(names) & phases.keys(), GONE_SECONDS, "be gone", set(names))

    async def ended(self, documents: Sequence[Document]) -> list[Document]:
        """Those of these pods that no longer run, or do not exist."""
        phases = await self.phases()
        return [each for each in documents if phases.get(text_at(each, "metadata", "name"), ENDED[0]) in ENDED]

    async def restarts(self, names: Sequence[str]) -> int:
        """How often containers of these pods were restarted."""
        listed = await self._call(lambda: self._client.get(PODS.path(NAMESPACE)))
        return sum(
            int(text_at(status, "restartCount", default="0"))
            for pod in list_at(listed, "items")
            if text_at(pod, "metadata", "name") in names
            for status in list_at(mapping_at(pod), "status", "containerStatuses")
        )

    async def phases(self) -> dict[str, str]:
        """The phase of every pod."""
        listed = await self._call(lambda: self._client.get(PODS.path(NAMESPACE)))
        return {text_at(pod, "metadata", "name"): text_at(pod, "status", "phase") for pod in list_at(listed, "items")}

    async def _until(
        self, condition: Callable[[Mapping[str, str]], bool], seconds: float, what: str, names: set[str]
    ) -> None:
        deadline = time.monotonic() + seconds
        while not condition(phases := await self.phases()):
            if time.monotonic() > deadline:
                late = {name: phases.get(name, "gone") for name in sorted(names)}
                raise BenchError(f"after {seconds:.0f} s these pods do not {what}: {late}")
            await asyncio.sleep(POLL_SECONDS)

    async def _call(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def pod(self, name: str, qos: str, arguments: Sequence[str], annotations: Mapping[str, str]) -> Document:
        """The manifest of a pod that runs one program."""
        service = qos == "LS"
        command: list[Json] = [self._interpreter.path, "-S", *arguments]
        container: Document = {"name": "main", "command": command}
        if service:
            container["resources"] = {"requests": {"cpu": "100m", "memory": "64Mi"}}
        if self._interpreter.user is not None:
            container["securityContext"] = {"runAsUser": self._interpreter.user}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": {"koordinator.sh/qosClass": qos},
                "annotations": dict(annotations),
            },
            "spec": {
                "nodeName": self._node,
                "runtimeClassName": "process",
                "priorityClassName": "koord-prod" if service else "koord-batch",
                "restartPolicy": "Always" if service else "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
            },
        }


def _namespace() -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
