"""Observes OOM kills by the nodes' kernels: for promise 18.

In: a node after each of its steps, with the pods that its kernel killed and every pod's memory then; manifests as the log has
them. Out: pods that should not have been killed, and how often each was. The limit of a pod is the sum of its containers'
limits, in batch memory for batch pods; its request is of the machine's own memory, so a batch pod has none. While a pod is
resized in place each of these is one of several: what the node reported last as admitted and as in force, and what is asked for
unless the node has decided on it. Bound: the pods of the last sample of each node, KEPT kills.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.domain.qos import QoSClass, qos_raw
from cotenant.domain.resizing import counted_pod, pod_with_resources, stated
from cotenant.events.node.runs import RunStatus
from cotenant.events.placements import Placement
from cotenant.events.resizes import ResizeState
from cotenant.model.names import BATCH_MEMORY, MEMORY
from cotenant.model.quantities import resource_amount
from cotenant.model.subjects import execution_subject, run_subject
from cotenant_node_executor.sampling.snapshot import PodSample
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

        self._sampled: dict[str, tuple[int, Mapping[str, PodSample]]] = {}
        """Each node's boot and the pods of its last sample, by uid."""

    def ended(self, node: ChaosNode) -> None:
        """Take in the pods that a node's kernel killed in its last step."""
        boot, before = self._sampled.get(node.node_name, (node.boot, {}))
        for end in node.out_of_memory:
            self.times[node.node_name, node.boot, end.uid] += 1
            self.killed(node.node_name, node.machine.memory_gib * GIB, end, before if boot == node.boot else {})
        snapshot = node.simulated.snapshot
        self._sampled[node.node_name] = node.boot, snapshot.pods if snapshot is not None else {}

    def killed(self, node: str, memory_bytes: int, end: OutOfMemory, before: Mapping[str, PodSample]) -> None:
        """Judge one kill on a node with this memory. `before`: the node's pods at the sample before it, by uid."""
        self.reasons["by the machine's want" if end.machine else "beyond their limit"] += 1
        placements = self.placements(node)
        if end.uid not in placements or len(self.wrong) >= KEPT:
            return
        own, held = placements[end.uid], end.held[end.uid]
        what = f"{own.namespace}/{own.name} on {node}, which held {held // MIB} MiB, was killed"
        wrong = self._beyond_machine(end, placements, memory_bytes) if end.machine else self._beyond_limit(end, own, before)
        if wrong:
            self.wrong.append((execution_subject(node, "runtime"), f"{what} {wrong}"))

    def placements(self, node: str) -> dict[str, Placement]:
        """Placements on a node according to the log, by uid."""
        held = (event.data for event in self._view.placed[node].values())
        return {data.uid: data for data in held if isinstance(data, Placement)}

    def _beyond_limit(self, end: OutOfMemory, own: Placement, before: Mapping[str, PodSample]) -> str:
        """Why a kill at a pod's limit is wrong; empty: it is right."""
        held = end.held[end.uid]
        limits = [memory_limit(each) for each in self._as_resized(own)]
        least = min([each for each in limits if each is not None], default=None)
        if least is None or held <= least:
            return f"at a limit of {'none' if least is None else least // MIB} MiB"
        counted = memory_limit(counted_pod(own))
        most = None if counted is None or None in limits else max(counted, *[each for each in limits if each is not None])
        sample = before.get(end.uid)
        used = (sample.usage.memory_bytes or 0) if sample is not None else 0
        if used > least and (most is None or held <= most or used > most):
            return f"at a limit of {least // MIB} MiB, which was written while it used {used // MIB} MiB"
        return ""

    def _beyond_machine(self, end: OutOfMemory, placements: Mapping[str, Placement], memory_bytes: int) -> str:
        """Why a kill for lack of the machine's memory is wrong; empty: it is right."""
        if end.held[end.uid] > min(memory_request(each) for each in self._as_resized(placements[end.uid])):
            return ""
        slack = memory_bytes * ROUNDING_PERMILLE // 1000
        for uid, other in end.held.items():
            if uid not in placements:
                continue
            if other > max(memory_request(each) for each in self._as_resized(placements[uid])) + slack:
                return f"within its request, while {placements[uid].name} ran with {other // MIB} MiB, beyond its own"
        return ""

    def _as_resized(self, placement: Placement) -> list[Pod]:
        """The manifests of which one is in force; one, if the pod is not being resized."""
        pod, resize = decode_pod(placement.pod), placement.resize
        if resize is None:
            return [pod]
        event = self._view.last.get(run_subject(placement.node, placement.namespace, placement.name))
        run = event.data if event is not None and isinstance(event.data, RunStatus) else None
        report = run.resize if run is not None and run.uid == placement.uid else None
        found = [report.admitted or resize.admitted, report.applied] if report is not None else [resize.admitted]
        if report is None or report.sequence != resize.sequence or report.state is ResizeState.DEFERRED:
            found.append(stated(pod.spec))
        return [pod_with_resources(pod, each) for each in found if each]


def memory_limit(pod: Pod) -> int | None:
    """A pod's memory limit; None: no limit."""
    resource = BATCH_MEMORY if qos_raw(pod) is QoSClass.BE else MEMORY
    limits = [resource_amount(resource, each.resources.limits.get(resource, 0)) for each in pod.spec.containers]
    return sum(limits) if all(limits) else None


def memory_request(pod: Pod) -> int:
    """What a pod requests of the machine's own memory; a limit alone counts as a request."""
    asked = [{**each.resources.limits, **each.resources.requests}.get(MEMORY, 0) for each in pod.spec.containers]
    return sum(resource_amount(MEMORY, amount) for amount in asked)
