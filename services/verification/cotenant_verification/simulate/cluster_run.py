"""`cotenant simulate -f cluster.yaml`: the whole control plane on simulated nodes, in virtual time.

In: a cluster, a seed, a span. Out: a document with the result. The same file, seed and span give the same bytes:
nothing in it comes from a wall clock, and the digest over every event of the log shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from hashlib import blake2b
from typing import cast

from cotenant.events.envelope import Event, encode_event
from cotenant.events.node.execution import Execution
from cotenant.log.contract import LOG
from cotenant.simulation import START, World, collecting_rarely
from cotenant_console.api.client import Document, Json, list_at, mapping_at, text_at
from cotenant_console.up.figures import NodeFigures, node_figures, phase_counts
from cotenant_console.up.journal import SUPPRESS_TOPIC, shrinks
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_node_executor.simulated.participant import NodeParticipant
from cotenant_verification.simulate.api import SimulatedGateway
from cotenant_verification.simulate.cluster_file import ClusterFile, node_names
from cotenant_verification.simulate.faults import Faults
from cotenant_verification.simulate.groups import gangs_of, group_lines, quotas_of, reservations_of
from cotenant_verification.simulate.participants import SIMULATED_SERVICES, participant, service_of
from cotenant_verification.simulate.tally import SimulationTally
from cotenant_verification.simulate.workloads import arrivals

SETTLE = timedelta(seconds=2)
"""Built-in objects and the file's objects come first, the nodes after half of it, then the workloads."""
SLICES = 100


class Recorder:
    """Counts events by type and digests the log."""

    def __init__(self) -> None:
        self.types: Counter[str] = Counter()
        self.suppressions = 0
        self._digest = blake2b(digest_size=16)

    def add(self, event: Event) -> None:
        """Take in one stored event."""
        self.types[event.data.TYPE] += 1
        if event.stream == LOG:
            self._digest.update(encode_event(event))
        if isinstance(event.data, Execution) and event.data.topic == SUPPRESS_TOPIC and shrinks(event.data):
            self.suppressions += 1

    @property
    def digest(self) -> str:
        """The digest of every LOG event in order."""
        return self._digest.hexdigest()


def run_cluster(cluster: ClusterFile, span_seconds: float, seed: int, progress: Callable[[float], None]) -> Document:
    """Run a cluster; `progress` is called with the completed fraction, 0..1."""
    with collecting_rarely():
        return _run_cluster(cluster, span_seconds, seed, progress)


def _run_cluster(cluster: ClusterFile, span_seconds: float, seed: int, progress: Callable[[float], None]) -> Document:
    world = World(seed=seed)
    gateway = SimulatedGateway()
    tally = SimulationTally(START, capacity_of(cluster))
    recorder = Recorder()
    world.watchers += [tally.add, recorder.add]
    world.add(gateway)
    _declare(cluster, gateway)
    services = {service: participant(service, gateway) for service in SIMULATED_SERVICES}
    for made in services.values():
        world.add(made)
    world.run_until(START + SETTLE / 2)
    nodes: dict[str, tuple[NodeParticipant, NodeSize]] = {}
    for shape in cluster.nodes:
        size = NodeSize(shape.cpu_milli, shape.memory_bytes)
        for name in node_names(shape):
            nodes[name] = NodeParticipant(simulated_node(name, size, seed=seed)), size
            world.add(nodes[name][0])
    begin = START + SETTLE
    processes = {service: service_of(made) for service, made in services.items()}
    faults = Faults(cluster.faults, begin, seed, nodes, processes)
    if cluster.faults:
        world.add(faults)
    for at, pod in arrivals(cluster, seed, span_seconds):
        gateway.create(begin + timedelta(seconds=at), pod)
    for step in range(1, SLICES + 1):
        world.run_until(begin + timedelta(seconds=span_seconds * step / SLICES))
        progress(step / SLICES)
    return result_document(gateway, tally, recorder, world, span_seconds, seed, faults.happened)


def _declare(cluster: ClusterFile, gateway: SimulatedGateway) -> None:
    """The file's namespaces, then its objects and labelled nodes."""
    moment = START + timedelta(milliseconds=100)
    for namespace in sorted({workload.namespace for workload in cluster.workloads} - {"default"}):
        gateway.create(moment, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for document in cluster.objects:
        # Read from YAML, so it is plain JSON data.
        gateway.create(moment, cast("Document", document))
    for shape in cluster.nodes:
        for name in node_names(shape) if shape.labels else []:
            metadata: Document = {"name": name, "labels": dict(shape.labels)}
            gateway.create(moment, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})


def capacity_of(cluster: ClusterFile) -> dict[str, int]:
    """The allocatable of all nodes, as placements count it."""
    return {
        "cpu": sum(shape.cpu_milli * shape.count for shape in cluster.nodes),
        "memory": sum(shape.memory_bytes * shape.count for shape in cluster.nodes),
    }


def result_document(
    gateway: SimulatedGateway,
    tally: SimulationTally,
    recorder: Recorder,
    world: World,
    span_seconds: float,
    seed: int,
    faults: Mapping[str, int],
) -> Document:
    """The result of a run; every mapping in a stated order."""
    nodes, pods = gateway.documents("nodes"), gateway.documents("pods")
    return {
        "seed": seed,
        "forSeconds": span_seconds,
        "events": world.events,
        "digest": recorder.digest,
        "eventsByType": dict(sorted(recorder.types.items())),
        "pods": dict(sorted(phase_counts(pods).items())),
        "placed": tally.placed,
        "placements": tally.placements,
        "neverPlaced": tally.never_placed,
        "reasons": dict(sorted(tally.reasons().items())),
        "suppressions": recorder.suppressions,
        "faults": dict(sorted(faults.items())),
        "gangs": gangs_of(pods),
        "reservations": reservations_of(gateway.documents("reservations", "scheduling.koordinator.sh")),
        "quotas": quotas_of(gateway.documents("elasticquotas", "scheduling.sigs.k8s.io")),
        "refused": [f"{request.what}: {request.message}" for request in gateway.refused],
        "nodes": [_node(figures) for figures in node_figures(nodes, pods)],
        "waiting": _waiting(pods),
    }


def _node(figures: NodeFigures) -> Document:
    return {
        "name": figures.name,
        "pods": figures.pods,
        "batchCpuMilli": figures.batch_cpu_milli,
        "batchCpuUsedMilli": figures.batch_cpu_used_milli,
        "batchMemoryMiB": figures.batch_memory_mib,
        "batchMemoryUsedMiB": figures.batch_memory_used_mib,
    }


def _waiting(pods: Iterable[Json]) -> list[Json]:
    """Pods that wait at the end, with the scheduler's messages."""
    found: list[Json] = []
    for pod in pods:
        for condition in list_at(pod, "status", "conditions"):
            if text_at(condition, "type") == "PodScheduled" and text_at(condition, "status") == "False":
                name = f"{text_at(pod, 'metadata', 'namespace')}/{text_at(pod, 'metadata', 'name')}"
                found.append({"pod": name, "message": text_at(condition, "message")})
    return found


def document_lines(document: Document) -> list[str]:
    """The result for a terminal."""
    lines = [
        f"{text_at(document, 'forSeconds')} s of virtual time, seed {text_at(document, 'seed')}: "
        f"{text_at(document, 'events')} events, digest {text_at(document, 'digest')}",
        f"placed {text_at(document, 'placed')} pods, {text_at(document, 'neverPlaced')} never; "
        f"{text_at(document, 'suppressions')} suppressions",
    ]
    for key in ("pods", "gangs", "faults", "reasons"):
        section = mapping_at(document, key)
        if section:
            lines.append(f"{key}: " + ", ".join(f"{count} {name}" for name, count in section.items()))
    for node in list_at(document, "nodes"):
        lines.append(
            f"{text_at(node, 'name')}: {text_at(node, 'pods')} pods, batch-cpu {text_at(node, 'batchCpuUsedMilli')}m of "
            f"{text_at(node, 'batchCpuMilli')}m, batch-memory {text_at(node, 'batchMemoryUsedMiB')} of "
            f"{text_at(node, 'batchMemoryMiB')} MiB"
        )
    lines += group_lines(list_at(document, "reservations"), list_at(document, "quotas"))
    lines += [f"refused {item}" for item in list_at(document, "refused")]
    alike: dict[str, list[str]] = {}
    for item in list_at(document, "waiting"):
        alike.setdefault(text_at(item, "message"), []).append(text_at(item, "pod"))
    for message, pods in alike.items():
        more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        lines.append(f"waiting {pods[0]}{more}: {message}")
    return lines
