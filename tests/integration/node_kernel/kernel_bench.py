"""A node on this kernel, without a server: facts are given to it as the log would, and what it publishes is kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from cotenant.events.envelope import Event, Payload
from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import NodeSLORendered
from cotenant.events.node.runs import RunStatus
from cotenant.events.placements import Placement
from cotenant.log.contract import LOG
from cotenant.model.subjects import placement_subject, slo_subject
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.core.node import ExecutorNode, Periods
from cotenant_node_executor.host_facts import executor_status, host_facts, host_given
from cotenant_node_executor.kernel_machine import KernelMachine
from cotenant_node_executor.sampling.slow.worker import SlowWorker
from cotenant_node_executor.strategies.registry import STRATEGIES
from cotenant_node_executor.strategies.strategy import Strategy
from cotenant_node_executor.targets.cpulist import parse_cpu_list
from cotenant_node_executor.targets.interface import CgroupDriver, Knob, NodeCapabilities
from tests.builders import container, encoded, pod_document
from tests.integration.node_kernel.waiting import until

NODE, UID = "node-1", "11111111-1111-4111-8111-111111111111"
TIER, POD = "besteffort", f"besteffort/pod{UID}"
CONTAINER = f"{POD}/main"
BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
BURN = ["/bin/sh", "-c", "while :; do :; done"]


def pod_manifest(
    name: str, command: list[str], *, uid: str = UID, qos: str = "BE", amounts: dict[str, str] | None = None
) -> dict[str, Any]:
    """A pod of one container with these requests and limits."""
    amounts = BATCH if amounts is None else amounts
    return pod_document(
        name,
        uid=uid,
        labels={"koordinator.sh/qosClass": qos},
        runtimeClassName="process",
        restartPolicy="Never",
        containers=[container(command=command, requests=amounts, limits=amounts)],
    )


class Bench:
    """A node, and facts given to it as the log would."""

    def __init__(
        self,
        driver: CgroupDriver,
        capabilities: NodeCapabilities,
        folder: Path,
        strategies: Sequence[Strategy] = STRATEGIES,
        slow: SlowWorker | None = None,
    ) -> None:
        self.driver = driver
        self.cpus = len(os.sched_getaffinity(0))
        facts = host_facts(NODE, host_given(driver))
        self.machine = KernelMachine(driver, capabilities, folder, slow=slow)
        core = ExecutorCore(facts, capabilities, "boot", plain_processes=True, strategies=tuple(strategies))
        status = executor_status(facts, capabilities, "boot", "test")
        self.node = ExecutorNode(core, self.machine, status, Periods())
        self.runs: dict[str, RunStatus] = {}
        """The last reports by name."""
        self.executions: list[Execution] = []
        self.memory_collect_policy = ""
        self._sequence = 0
        self._fold(self.node.start_marker(datetime.now(UTC)))

    def _fold(self, event: Event) -> None:
        self._sequence += 1
        self.node.apply(msgspec.structs.replace(event, sequence=self._sequence))

    def tell(self, subject: str, data: Payload) -> None:
        self._fold(Event(subject=subject, data=data, time=datetime.now(UTC)))

    def place(self, manifest: dict[str, Any] | None = None) -> None:
        manifest = pod_manifest("burner", BURN) if manifest is None else manifest
        name, uid = manifest["metadata"]["name"], manifest["metadata"]["uid"]
        pod, bound = encoded(manifest), datetime.now(UTC)
        placement = Placement(node=NODE, namespace="default", name=name, uid=uid, pod=pod, bound_at=bound)
        self.tell(placement_subject(NODE, "default", name), placement)

    def slo(self, **fields: Any) -> None:
        self.tell(slo_subject(NODE), NodeSLORendered(node=NODE, **fields))

    def sections(self, **sections: Any) -> None:
        """A node SLO of these sections."""
        self.slo(spec=encoded(sections), memory_collect_policy=self.memory_collect_policy)

    def threshold(self, percent: int, policy: str) -> None:
        self.slo(
            enable=True,
            cpu_suppress_policy=policy,
            cpu_suppress_threshold_percent=percent,
            reserved_cpu_milli=self.cpus * 1000,
        )

    def step(self, *, sample: bool = True) -> None:
        for event in self.node.step(datetime.now(UTC), sample=sample):
            if event.stream == LOG:
                self._fold(event)
            if isinstance(event.data, RunStatus):
                self.runs[event.data.name] = event.data
            elif isinstance(event.data, Execution):
                self.executions.append(event.data)

    def steps_until(self, condition: Callable[[], bool]) -> bool:
        def stepped() -> bool:
            self.step()
            return condition()

        return until(stepped)

    def runs_now(self, name: str) -> bool:
        """Whether the pod was reported running."""
        return name in self.runs and self.runs[name].phase.value == "running"

    def said(self, topic: str) -> list[str]:
        return [each.summary for each in self.executions if each.topic == topic]

    def value(self, group: str, knob: Knob) -> str:
        return self.driver.read(group, knob) or ""

    def size(self, group: str) -> int:
        return len(parse_cpu_list(self.value(group, Knob.CPUSET_CPUS)))
