"""Promise 12, YARN's side: in the idle phase a NodeManager has exactly its node's offer.

    total = origin of the node's resources - batch requests of the pods placed there     whole vcores and MiB, rounded down
"""

from __future__ import annotations

from datetime import timedelta

from cotenant.events.node.resources import NodeResources
from cotenant.events.placements import Placement
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY
from cotenant.model.subjects import resources_subject, yarn_subject
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import LogView

SETTLED = timedelta(seconds=15)
"""Three passes of the copilot."""
MIB = 1 << 20


def yarn_has_what_nodes_offer(moment: Moment) -> Wrong:
    """Every running NodeManager of a node that has published its offer for SETTLED has that offer as its total."""
    copilot = moment.harness.copilot
    if copilot is None:
        return
    for name, manager in sorted(copilot.cluster.managers.items()):
        offer = moment.view.last.get(resources_subject(manager.host))
        if manager.lost or manager.host not in moment.harness.nodes:
            continue
        if offer is None or not isinstance(offer.data, NodeResources):
            continue
        changed = [event.time for event in (offer, *moment.view.placed[manager.host].values())]
        if any(at is None or moment.now - at < SETTLED for at in changed):
            continue
        cpu, memory = _offered(moment.view, manager.host, offer.data)
        present = (manager.total.vcores, manager.total.memory_mb)
        if present != (cpu // 1000, memory // MIB):
            text = f"NodeManager {name} has {present[0]} vcores and {present[1]} MB; its node offers {cpu}m and {memory} bytes"
            yield yarn_subject(manager.host), text


def _offered(view: LogView, node: str, resources: NodeResources) -> tuple[int, int]:
    cpu, memory = resources.origin.cpu_milli, resources.origin.memory_bytes
    if resources.withdrawn:
        cpu = memory = 0
    for event in view.placed[node].values():
        assert isinstance(event.data, Placement)
        cpu -= event.data.requests.get(BATCH_CPU, 0)
        memory -= event.data.requests.get(BATCH_MEMORY, 0)
    return max(cpu, 0), max(memory, 0)
