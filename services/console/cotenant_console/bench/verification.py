"""An independent, slow check of what a scheduler decided: plain dictionaries, one placement at a time.

In: nodes, metrics, pods and placements as the log holds them, in its order. Out: `Verdict`: every placement is held
against its node as it was then (all resources and the number of pods, cordon, node selector, taints, load thresholds of
the default policy), nothing is placed twice, and every pod without a placement fits no node in the end. It shares no code
with the scheduler: only the typed views, quantities and the QoS rule. It knows what the benchmarks' workloads contain; a
pod with other constraints (affinity, host ports, quotas) is an error, not passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.metrics import NodeMetricComputed
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.objects.node import Node, decode_node
from cotenant.objects.pod import Pod, decode_pod, pod_requests
from cotenant.quantities import resource_amount

THRESHOLDS = {"cpu": 65, "memory": 95}
FACTORS = {"cpu": 85, "memory": 70}
UNASKED = {"cpu": 250, "memory": 200 << 20}
SHOWN = 20


class Verdict(msgspec.Struct, frozen=True):
    """`wrong` is empty if all is as it must be; at most SHOWN findings."""

    placed: int
    waiting: int
    wrong: tuple[str, ...]


class _Need(msgspec.Struct, frozen=True):
    requests: dict[str, int]
    estimate: dict[str, int]
    selector: dict[str, str]
    tolerates: tuple[tuple[str, str, str, str], ...]


class _Room:
    """A node and what is on it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.free = {name: resource_amount(name, quantity) for name, quantity in node.status.allocatable.items()}
        self.free.setdefault("pods", 110)
        self.capacity = dict(self.free)
        self.used: dict[str, int] | None = None
        """Measured usage and the estimates of what was placed since; None without a metric."""

    def refusal(self, need: _Need) -> str:
        """Why the pod cannot be here; empty if it can."""
        for name, amount in {**need.requests, "pods": 1}.items():
            if amount > self.free.get(name, 0):
                return f"{name} short by {amount - self.free.get(name, 0)}"
        if self.node.spec.unschedulable:
            return "cordoned"
        labels = self.node.metadata.labels
        if any(labels.get(key) != value for key, value in need.selector.items()):
            return "node selector"
        for taint in self.node.spec.taints:
            if taint.effect != "PreferNoSchedule" and not any(
                effect in ("", taint.effect)
                and ((operator == "Exists" and key in ("", taint.key)) or (key == taint.key and value == taint.value))
                for key, operator, value, effect in need.tolerates
            ):
                return f"taint {taint.key}"
        if self.used is not None:
            for name, threshold in THRESHOLDS.items():
                percent = Fraction(100 * (self.used[name] + need.estimate[name]), self.capacity[name])
                if int(percent + Fraction(1, 2)) > threshold:
                    return f"{name} usage {float(percent):.1f}% > {threshold}%"
        return ""

    def take(self, need: _Need) -> None:
        for name, amount in {**need.requests, "pods": 1}.items():
            self.free[name] = self.free.get(name, 0) - amount
        if self.used is not None:
            for name in THRESHOLDS:
                self.used[name] += need.estimate[name]


def _need(pod: Pod) -> _Need:
    spec = pod.spec
    if spec.affinity is not None or spec.topology_spread_constraints or any(c.ports for c in spec.containers):
        raise ValueError(f"the check does not know all constraints of pod {pod.metadata.name}")
    requests = pod_requests(pod)
    estimate = {}
    for name, factor in FACTORS.items():
        asked = requests.get(name, 0)
        estimate[name] = int(Fraction(asked * factor, 100) + Fraction(1, 2)) if asked else UNASKED[name]
    tolerates = tuple((t.key, t.operator, t.value, t.effect) for t in spec.tolerations)
    return _Need({name: amount for name, amount in requests.items() if amount}, estimate, spec.node_selector, tolerates)


def verify(events: Iterable[Event]) -> Verdict:
    """Check everything; `events` are all that LOG holds of nodes, metrics, pods and placements, in its order."""
    rooms: dict[str, _Room] = {}
    needs: dict[str, _Need] = {}
    known: dict[bytes, _Need] = {}
    placed: dict[str, str] = {}
    wrong: list[str] = []

    def say(finding: str) -> None:
        if len(wrong) < SHOWN:
            wrong.append(finding)

    for event in events:
        data = event.data
        if isinstance(data, ObjectStored) and event.subject.startswith("objects.core.nodes."):
            node = decode_node(data.object)
            rooms[node.metadata.name] = _Room(node)
        elif isinstance(data, NodeMetricComputed):
            room = rooms[data.node]
            room.used = {"cpu": data.node_usage.cpu_milli, "memory": data.node_usage.memory_bytes}
        elif isinstance(data, ObjectStored):
            document = bytes(data.object)
            spec = document[document.index(b'"spec"') :]
            if spec not in known:
                known[spec] = _need(decode_pod(document))
            needs[event.subject.rpartition(".")[2]] = known[spec]
        elif isinstance(data, Placement) and data.phase is PlacementPhase.BOUND:
            if data.name in placed:
                say(f"pod {data.name} is placed on {placed[data.name]} and again on {data.node}")
                continue
            placed[data.name] = data.node
            room, need = rooms[data.node], needs[data.name]
            if refusal := room.refusal(need):
                say(f"pod {data.name} does not fit node {data.node} ({event.ref}): {refusal}")
            room.take(need)
    left = {id(needs[name]): (name, needs[name]) for name in needs.keys() - placed.keys()}
    for name, need in left.values():
        fitting = next((node for node, room in sorted(rooms.items()) if not room.refusal(need)), None)
        if fitting is not None:
            say(f"pod {name} waits although it fits node {fitting}")
    return Verdict(len(placed), len(needs) - len(placed), tuple(wrong))
