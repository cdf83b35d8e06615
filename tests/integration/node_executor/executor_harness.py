"""A real executor process on a real server, and pods placed on it as the scheduler would."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from cotenant.api.objects.pod import decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.resizing import stated
from cotenant.events.envelope import Event, Payload
from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import NodeSLORendered
from cotenant.events.node.runs import ContainerRun, ExecutorStatus, RunStatus, reports_stop
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.requests import Adopted, LogsRequest, adopt_subject, logs_subject
from cotenant.events.resizes import PlacementResize
from cotenant.log.contract import EXECUTION, LOG, TOMBSTONE_TTL_SECONDS, USAGE, Stored, Write
from cotenant.log.nats.log import NatsLog, connect
from cotenant.log.nats.streams import StreamSizes
from cotenant.model.subjects import placement_subject, slo_subject
from cotenant_node_executor.targets.cgroup.driver import open_driver
from cotenant_node_executor.targets.interface import CgroupDriver, Knob
from tests.builders import container, encoded, pod_document

NODE = "host.test"
NAMESPACE = "default"
WAIT_SECONDS = 600.0 if os.environ.get("COTENANT_GUEST_LAYOUT") else 90.0
"""Long enough for a crowded machine, or an emulated one; nobody waits for it where all is well."""
SEEN_BY_PODS = "/run"
"""Pods have a /tmp of their own."""
INTERPRETER = "/usr/bin/python3"
"""One that nobody may run; the tests' own may lie in a folder that only root can enter."""


def pod_manifest(name: str, script: str, **spec: Any) -> dict[str, Any]:
    """A pod of one container that runs a Python script; `spec` overrides fields of the pod's spec."""
    run = {"command": [INTERPRETER, "-u", "-c", script], **spec.pop("container", {})}
    members = {"runtimeClassName": "process", "restartPolicy": "Never", "containers": [container(**run)], **spec}
    return pod_document(name, namespace=NAMESPACE, uid="", **members)


def alive(pid: int) -> bool:
    """Whether there is a process of this number."""
    return Path(f"/proc/{pid}").exists()


class Harness:
    """Start it, place pods, wait for facts with a bound, take everything down again."""

    def __init__(self, url: str, *, store_bytes: int = 0) -> None:
        """`store_bytes`: what the streams' sizes follow; 0: the usual ones."""
        self.url = url
        self._sizes = StreamSizes.within(store_bytes) if store_bytes else None
        self.folder = Path(tempfile.mkdtemp(prefix="cotenant-executor-", dir=SEEN_BY_PODS))
        """Tests that let pods look into it open it."""
        self.base = f"cotenant-test-{uuid4().hex[:8]}"
        self.log: NatsLog
        self.runs: dict[str, RunStatus] = {}
        self.facts: list[Event] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()
        self._placed: dict[str, Placement] = {}
        self._counter = 0
        self._driver: CgroupDriver | None = None

    async def open(self) -> None:
        """Connect, declare, follow everything."""
        self.log = await connect(self.url, "test")
        await self.log.declare(sizes=self._sizes)
        for stream, wanted in ((LOG, "node.>"), (EXECUTION, "execution.>"), (USAGE, "usage.>")):
            reader = await self.log.follow(stream, [wanted])
            reader.loaded()
            self._tasks.append(asyncio.ensure_future(self._follow(reader)))

    async def reopen(self) -> None:
        """Follow a log that is another one than before; what was read is forgotten."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.log.close()
        self._tasks, self.runs, self.facts = [], {}, []
        await self.open()

    async def _follow(self, reader: Any) -> None:
        while True:
            for event in await reader.pull(100, 1.0):
                async with self._changed:
                    if isinstance(event.data, RunStatus):
                        if event.tombstone and not reports_stop(event):
                            self.runs.pop(event.data.name, None)
                        else:
                            self.runs[event.data.name] = event.data
                    self.facts.append(event)
                    self._changed.notify_all()

    async def wait(self, what: str, predicate: Callable[[], Any]) -> Any:
        """Wait for something to become true of the facts; returns it. Fails with what is known otherwise.

        It is looked at with every fact that comes, and usage comes every second: files and processes can be waited for too.
        """
        async with self._changed:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    while not (found := predicate()):
                        await self._changed.wait()
            except TimeoutError:
                raise AssertionError(f"not within {WAIT_SECONDS} s: {what}; runs: {self.runs}; {self.said()}") from None
            return found

    def said(self) -> str:
        """The end of the executor's own log."""
        path = self.folder / "executor.log"
        return path.read_text()[-3000:] if path.exists() else ""

    # -- the executor --------------------------------------------------------------------------------------------------

    def start(self, *flags: str, prefix: Sequence[str] = ()) -> None:
        """Start the executor, behind a command where `prefix` names one; it goes on with the same folder and groups."""
        with (self.folder / "executor.log").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *prefix, sys.executable, "-m", "cotenant_node_executor", "--nats", self.url, "--node", NODE,
                    "--data", str(self.folder / "data"), "--cgroup-base", self.base, "--http-port", "-1",
                    "--report-period", "1", *flags,
                ],
                stdout=output,
                stderr=output,
            )

    def second_executor(self) -> tuple[int, str]:
        """Start another one for the same groups with a folder of its own; returns how it ended and what it said."""
        command = [sys.executable, "-m", "cotenant_node_executor", "--nats", self.url, "--node", NODE]
        command += ["--data", str(self.folder / "other"), "--cgroup-base", self.base, "--http-port", "-1"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
        return ended.returncode, ended.stderr

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As a power cut would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM, and wait for its end."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(WAIT_SECONDS)

    # -- the scheduler's part ------------------------------------------------------------------------------------------

    async def store(self, subject: str, data: Payload, *, tombstone: bool = False) -> int:
        """Store one fact on LOG."""
        self._counter += 1
        event = Event(
            subject=subject,
            data=data,
            time=datetime.now(UTC),
            id=f"test/{self._counter}",
            source="/test",
            tombstone=tombstone,
            ttl_seconds=TOMBSTONE_TTL_SECONDS if tombstone else 0,
        )
        outcome = await self.log.append([Write(event=event)])
        assert isinstance(outcome, Stored), outcome
        return outcome.first

    async def place(self, manifest: dict[str, Any], uid: str = "") -> str:
        """Bind a pod to the node; returns its uid."""
        name = manifest["metadata"]["name"]
        uid = uid or str(uuid4())
        manifest = {**manifest, "metadata": {**manifest["metadata"], "uid": uid}}
        grace = manifest["spec"].get("terminationGracePeriodSeconds", 30)
        self._placed[name] = Placement(
            node=NODE,
            namespace=NAMESPACE,
            name=name,
            uid=uid,
            pod=encoded(manifest),
            bound_at=datetime.now(UTC),
            grace_period_seconds=grace,
        )
        await self.store(placement_subject(NODE, NAMESPACE, name), self._placed[name])
        return uid

    async def resize(self, manifest: dict[str, Any]) -> None:
        """Have a placed pod resized in place to the resources of this manifest."""
        name = manifest["metadata"]["name"]
        before = self._placed[name]
        uid = before.uid
        document = msgspec.json.encode({**manifest, "metadata": {**manifest["metadata"], "uid": uid}})
        wanted = decode_pod(document)
        admitted, counted = stated(decode_pod(before.pod).spec), stated(wanted.spec)
        self._placed[name] = msgspec.structs.replace(
            before,
            pod=msgspec.Raw(document),
            requests=pod_requests(wanted),
            resize=PlacementResize(sequence=self._counter + 1, admitted=admitted, counted=counted),
        )
        await self.store(placement_subject(NODE, NAMESPACE, name), self._placed[name])

    async def end(self, name: str, grace: int | None = None) -> None:
        """Order the pod to end."""
        placement = self._placed[name]
        self._placed[name] = msgspec.structs.replace(
            placement,
            phase=PlacementPhase.TERMINATING,
            grace_period_seconds=placement.grace_period_seconds if grace is None else grace,
        )
        await self.store(placement_subject(NODE, NAMESPACE, name), self._placed[name])

    async def forget(self, name: str) -> None:
        """The placement is gone."""
        gone = msgspec.structs.replace(self._placed.pop(name), phase=PlacementPhase.GONE, pod=msgspec.Raw(b"null"))
        await self.store(placement_subject(NODE, NAMESPACE, name), gone, tombstone=True)

    async def node_slo(self, sections: Mapping[str, Any] | None = None, /, **fields: Any) -> int:
        """Render a node SLO of these sections and fields."""
        spec: dict[str, Any] = {} if sections is None else {"spec": encoded(sections)}
        return await self.store(slo_subject(NODE), NodeSLORendered(node=NODE, **spec, **fields))

    async def logs(self, name: str, **fields: Any) -> str:
        """Ask for a container's log as the gateway does. Raises LookupError with the refusal."""
        body = msgspec.json.encode(LogsRequest(namespace=NAMESPACE, name=name, **fields))
        reply = await self.log.client.request(logs_subject(NODE), body, timeout=WAIT_SECONDS)
        refusal = (reply.headers or {}).get("Nats-Service-Error", "")
        if refusal:
            raise LookupError(refusal)
        return reply.data.decode()

    async def adopt(self) -> Adopted:
        """Have the executor adopt LOG."""
        reply = await self.log.client.request(adopt_subject(NODE), b"", timeout=WAIT_SECONDS)
        assert not (reply.headers or {}).get("Nats-Service-Error"), reply.headers
        return msgspec.json.decode(reply.data, type=Adopted)

    # -- what is true --------------------------------------------------------------------------------------------------

    def container(self, name: str) -> ContainerRun | None:
        """The pod's only container as last reported."""
        run = self.runs.get(name)
        return run.containers[0] if run is not None and run.containers else None

    async def running(self, name: str) -> ContainerRun:
        """Wait until its container runs."""

        def found() -> ContainerRun | None:
            container = self.container(name)
            return container if container is not None and container.state == "running" else None

        result: ContainerRun = await self.wait(f"{name} runs", found)
        return result

    async def ended(self, name: str) -> RunStatus:
        """Wait until the pod has ended."""

        def found() -> RunStatus | None:
            run = self.runs.get(name)
            return run if run is not None and run.phase.terminal else None

        result: RunStatus = await self.wait(f"{name} has ended", found)
        return result

    def reports(self, name: str) -> list[RunStatus]:
        """All that was reported of a pod so far, also what has been overtaken."""
        return [
            e.data
            for e in self.facts
            if isinstance(e.data, RunStatus) and e.data.name == name and (not e.tombstone or reports_stop(e))
        ]

    def run_has_ended(self, name: str) -> bool:
        """Whether the last message of a pod's run is its tombstone."""
        found = [e.tombstone for e in self.facts if isinstance(e.data, RunStatus) and e.data.name == name]
        return bool(found) and found[-1]

    def statuses(self) -> list[ExecutorStatus]:
        """The executor's reports about itself."""
        return [e.data for e in self.facts if isinstance(e.data, ExecutorStatus) and not e.tombstone]

    def executions(self, topic: str) -> list[Execution]:
        """What was done, by topic."""
        return [event.data for event in self.facts if isinstance(event.data, Execution) and event.data.topic == topic]

    def causes(self, topic: str) -> list[tuple[str, ...]]:
        """The causes of each of `executions`."""
        return [tuple(event.causes) for event in self.facts if isinstance(event.data, Execution) and event.data.topic == topic]

    def summary(self, topic: str, part: str) -> str:
        """The first summary of a topic in which a text occurs, "" while there is none."""
        return next((each.summary for each in self.executions(topic) if part in each.summary), "")

    def value(self, group: str, knob: Knob) -> str:
        """What the kernel's file of a group says now, in cgroup v1's terms; empty where there is no such group."""
        if self._driver is None:
            self._driver = open_driver(self.base, NODE)
        return self._driver.read(group, knob) or ""

    def number(self, group: str, knob: Knob) -> int:
        """The same as a number."""
        return int(self.value(group, knob))

    def subtree_exists(self) -> bool:
        """Whether the executor's own root is there, in any hierarchy."""
        return any((folder / "cotenant" / NODE).is_dir() for folder in self._base_groups())

    def _base_groups(self) -> list[Path]:
        """The group of this test in each hierarchy. Only its own: groups of other tests vanish while a tree is walked."""
        root = Path("/sys/fs/cgroup")
        return [folder for folder in (root / self.base, *(each / self.base for each in root.iterdir())) if folder.is_dir()]

    async def close(self) -> None:
        """End the executor with everything that it runs, and leave nothing behind."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._process is not None and self._process.poll() is None:
            self.kill()
        await asyncio.to_thread(self._remove_groups)
        await self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _remove_groups(self) -> None:
        """Kill what is left below the base, and remove the groups of this test."""
        driver = open_driver(self.base, NODE, sandbox_dir=self.folder / "data/sandbox")
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            driver.kill("")
            if driver.close():
                for folder in self._base_groups():
                    folder.rmdir()
                return
            time.sleep(0.05)
        raise AssertionError(f"groups are left: {driver.rescan()}")
