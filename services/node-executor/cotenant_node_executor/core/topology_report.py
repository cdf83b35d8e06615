"""The node's report of its machine: stored at the start, and when it changes.

In: the machine's facts, the host applications that have no usage, the placed pods with CPUs of their own, the node's
reservation in the node SLO, the last report on the log. Out: a `MachineTopology` event with CPU pools and kubelet's
allocations. At most one in INTERVAL.
After a report's tombstone, which comes with the node's, nothing is reported before the next start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from cotenant.domain.cpu_pools import (
    STATIC,
    HeldCpus,
    cpus_or_none,
    kubelet_allocations,
    node_reserved,
    shared_pools,
    system_qos,
)
from cotenant.domain.topology import topology_changed
from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeSLORendered
from cotenant.events.node.topology import MachineTopology, PodCpus
from cotenant.model.subjects import topology_subject
from cotenant_node_executor.sampling.slow.readings import MachineFacts
from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.strategies.pod_view import PodView

INTERVAL = timedelta(seconds=3)
"""koordlet's interval between two of its reports."""

KUBELET = "kubelet"
HOST_APPLICATION = "host-application/"
"""Before the name of a host application among what is not measured."""


class TopologyReport:
    """A fold of the reports on the log, and the next one."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._stored: MachineTopology | None = None
        self._ended = False
        self._facts: MachineFacts | None = None
        self._applications: Mapping[str, str] = {}
        """Why host applications are not measured, by name."""
        self.stale = True
        """An input of the report may have changed since it was built."""
        self._next: MachineTopology | None = None
        self._not_before: datetime | None = None

    def apply(self, event: Event, data: MachineTopology) -> None:
        """Fold a report."""
        self._stored = None if event.tombstone else msgspec.structs.replace(data, reason="")
        self._ended = event.tombstone

    @property
    def reported(self) -> MachineTopology | None:
        """The newest report, whether it is stored yet or not; None before the machine is known."""
        return self._next

    @property
    def depends_on_pods(self) -> bool:
        """Whether every pod counts, not only those with CPUs of their own: kubelet's CPUs are assigned by pod."""
        return self._facts is not None and bool(self._facts.kubelet_state)

    def observe(self, facts: MachineFacts | None, snapshot: UsageSnapshot | None) -> None:
        """Take the machine's facts, the same object while they do not change, and the newest sample."""
        if facts is not None and facts is not self._facts:
            self._facts, self.stale = facts, True
        if snapshot is not None and snapshot.unmeasured_applications != self._applications:
            self._applications, self.stale = snapshot.unmeasured_applications, True

    def decide(self, pods: Iterable[PodView], slo: NodeSLORendered | None, now: datetime) -> Event | None:
        """Return the report that is not on the log yet."""
        if self._facts is None or self._ended:
            return None
        if self.stale:
            self._next, self.stale = reported(self._facts, self._applications, pods, slo), False
        if self._next is None or self._next == self._stored or (self._not_before is not None and now < self._not_before):
            return None
        self._not_before = now + INTERVAL
        why = topology_changed(self._stored, self._next)
        return Event(subject=topology_subject(self._node), data=msgspec.structs.replace(self._next, reason=why), time=now)


def reported(
    facts: MachineFacts, unmeasured: Mapping[str, str], pods: Iterable[PodView], slo: NodeSLORendered | None
) -> MachineTopology:
    """Return the report of a machine with these pods; `unmeasured`: host applications without usage, and why."""
    topology = facts.topology
    cpus = topology.cpus
    held = [HeldCpus(pod.namespace, pod.name, pod.uid, pod.qos.value, pod.bound_cpus) for pod in pods]
    given, unknown = _given_by_kubelet(facts, held)
    rendered = slo if slo is not None else NodeSLORendered(node=topology.node)
    reservation = node_reserved(cpus, rendered.reservation_annotation)
    system = system_qos(rendered.system_qos_annotation)
    shared, best_effort = shared_pools(
        cpus,
        {cpu for pod in given for cpu in cpus_or_none(pod.cpuset)},
        held,
        set(cpus_or_none(reservation.reserved_cpus)),
        system,
    )
    return msgspec.structs.replace(
        topology,
        shared_pools=shared,
        best_effort_pools=best_effort,
        pod_cpus=given,
        reservation=msgspec.json.encode(reservation).decode() if rendered.reservation_annotation else "",
        system_qos=msgspec.json.encode(system).decode() if system is not None else "",
        numa_reservation=rendered.numa_reservation,
        unavailable={
            **topology.unavailable, **unknown, **{f"{HOST_APPLICATION}{name}": why for name, why in unmeasured.items()}
        },
    )


def _given_by_kubelet(facts: MachineFacts, pods: Iterable[HeldCpus]) -> tuple[tuple[PodCpus, ...], dict[str, str]]:
    """Return kubelet's allocations, and why they are unknown."""
    if facts.topology.kubelet.cpu_manager_policy != STATIC or not facts.kubelet_state:
        return (), {}
    try:
        return kubelet_allocations(facts.kubelet_state, pods), {}
    except ValueError as error:
        return (), {KUBELET: str(error)}
