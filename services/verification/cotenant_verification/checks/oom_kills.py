"""Observes OOM kills by the nodes' kernels: for promise 18.

In: a node after each of its steps, with the pods that its kernel killed and every pod's memory then; manifests as the log has
them. Out: pods that should not have been killed, and how often each was. The limit of a pod is the sum of its containers'
limits, in batch memory for batch pods; its request is of the machine's own memory, so a batch pod has none.
"""

from __future__ import annotations

from collections import Counter

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.domain.qos import QoSClass, qos_raw
from cotenant.events.placements import Placement
from cotenant.model.names import BATCH_MEMORY, MEMORY
from cotenant.model.quantities import resource_amount
from cotenant.model.subjects import execution_subject
from cotenant_node_executor.simulated.sampler import OutOfMemory
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.harness.nodes import GIB, ChaosNode

KEPT = 200
ROUNDING_PERMILLE = 2
"""The kernel's adjustment is in whole thousandths of the machine's memory, and one less than best-effort's at most."""
MIB = 1 << 20


class OomKills:
    """Pods that kernels killed."""

    def __init__(self, view: LogView) -> None:
        self._view = view
        self.wrong: list[tuple[str, str]] = []
        """Kills of pods that should have survived."""
        self.reasons: Counter[str] = Counter()
        self.times: Counter[tuple[str, int, str]] = Counter()
        """How often each pod was killed: by node, the node's boot, uid."""

    def ended(self, node: ChaosNode) -> None:
        """Take in the pods that a node's kernel killed in its last step."""
        for end in node.out_of_memory:
            self.times[node.node_name, node.boot, end.uid] += 1
            self.reasons["by the machine's want" if end.machine else "beyond their limit"] += 1
            placements = self.placements(node.node_name)
            if end.uid in placements and len(self.wrong) < KEPT:
                self._judge(node, end, placements)

    def placements(self, node: str) -> dict[str, Placement]:
        """Placements on a node according to the log, by uid."""
        held = (event.data for event in self._view.placed[node].values())
        return {data.uid: data for data in held if isinstance(data, Placement)}

    def _judge(self, node: ChaosNode, end: OutOfMemory, placements: dict[str, Placement]) -> None:
        own, held = placements[end.uid], end.held[end.uid]
        pod = decode_pod(own.pod)
        what = f"{own.namespace}/{own.name} on {node.node_name}, which held {held // MIB} MiB, was killed"
        subject = execution_subject(node.node_name, "runtime")
        if not end.machine:
            limit = memory_limit(pod)
            if limit is None or held <= limit:
                self.wrong.append((subject, f"{what} at a limit of {'none' if limit is None else limit // MIB} MiB"))
            return
        if held > memory_request(pod):
            return
        slack = node.machine.memory_gib * GIB * ROUNDING_PERMILLE // 1000
        for uid, other in end.held.items():
            if uid in placements and other > memory_request(decode_pod(placements[uid].pod)) + slack:
                more = f"within its request, while {placements[uid].name} ran with {other // MIB} MiB, beyond its own"
                self.wrong.append((subject, f"{what} {more}"))
                return


def memory_limit(pod: Pod) -> int | None:
    """A pod's memory limit; None: no limit."""
    resource = BATCH_MEMORY if qos_raw(pod) is QoSClass.BE else MEMORY
    limits = [resource_amount(resource, each.resources.limits.get(resource, 0)) for each in pod.spec.containers]
    return sum(limits) if all(limits) else None


def memory_request(pod: Pod) -> int:
    """What a pod requests of the machine's own memory; a limit alone counts as a request."""
    asked = [{**each.resources.limits, **each.resources.requests}.get(MEMORY, 0) for each in pod.spec.containers]
    return sum(resource_amount(MEMORY, amount) for amount in asked)
