"""The cluster that `cotenant simulate -f` reads.

In: a YAML file of kind Cluster (simulation.cotenant.io/v1alpha1): nodes by shape and count, objects as manifests, workloads and
faults. A workload is a set of replicas that run as long as the simulation, with a daily load, or jobs that
arrive at random (exponential gaps from the seed) and last for a while; either may be gangs. Out: typed structs. Errors name the
file and the field.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from enum import StrEnum
from pathlib import Path

import msgspec

from cotenant.domain.gangs import MAX_GANG
from cotenant.model.quantities import QuantityError, parse_milli, parse_value
from cotenant_console.api.client import Document
from cotenant_console.durations import parse_duration_seconds
from cotenant_console.manifests.documents import ManifestError, parse_manifests
from cotenant_verification.simulate.participants import SIMULATED_SERVICES

API_VERSION = "simulation.cotenant.io/v1alpha1"
KIND = "Cluster"
MAX_NODES = 20_000
MAX_REPLICAS = 100_000


class _Read(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of the file's contents: unknown fields are errors, as a misspelt field would silently have no effect."""


class NodeShape(_Read, frozen=True, kw_only=True):
    """`count` equal nodes, named `<name>-0` onwards."""

    name: str
    count: int = 1
    cpu: str
    memory: str
    labels: dict[str, str] = {}

    @property
    def cpu_milli(self) -> int:
        """CPU in thousandths."""
        return parse_milli(self.cpu)

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes."""
        return parse_value(self.memory)


class DailyLoad(_Read, frozen=True, kw_only=True):
    """CPU that one replica uses over a day: from `night` to `noon` and back."""

    night: str
    noon: str
    day: str = "24h"


class Arrivals(_Read, frozen=True, kw_only=True):
    """Jobs that arrive one by one: the mean gap, and the bounds of their duration."""

    every: str
    lasts_from: str
    lasts_to: str
    at_most: int = 1000


class Workload(_Read, frozen=True, kw_only=True):
    """One kind of pod, its arrival and its usage. Exactly one of `replicas` and `arrivals` is given.

    `gang`: so many pods are placed together or not at all: each arrival is a gang, or the replicas are divided into some; 0: no
    gangs. `uses_cpu` and `uses_memory`: usage of one pod; empty: the simulated node's own rule from its requests.
    """

    name: str
    namespace: str = "default"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    priority_class_name: str = ""
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    replicas: int = 0
    load: DailyLoad | None = None
    arrivals: Arrivals | None = None
    gang: int = 0
    uses_cpu: str = ""
    uses_memory: str = ""


class FaultKind(StrEnum):
    """What happens (`faults`)."""

    NODE_DEATH = "node-death"
    PARTITION = "partition"
    CRASH = "crash"
    STALL = "stall"


class PlannedFault(_Read, frozen=True, kw_only=True):
    """Something fails at a moment, for a time: the node or the service `target`, or the log."""

    at: str
    kind: FaultKind
    target: str = ""
    lasts: str


class ClusterFile(_Read, frozen=True, kw_only=True):
    """The contents of a cluster file."""

    nodes: tuple[NodeShape, ...]
    objects: tuple[dict[str, object], ...] = ()
    workloads: tuple[Workload, ...] = ()
    faults: tuple[PlannedFault, ...] = ()


def read_cluster(path: Path) -> ClusterFile:
    """The cluster of a file. Raises ManifestError."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror}") from error
    manifests = list(parse_manifests(raw, str(path)))
    if len(manifests) != 1:
        raise ManifestError(f"{path}: holds {len(manifests)} documents, not one Cluster")
    return cluster_of(manifests[0].document, str(path))


def cluster_of(document: Document, source: str) -> ClusterFile:
    """The cluster of a decoded document. Raises ManifestError."""
    if document.get("apiVersion") != API_VERSION or document.get("kind") != KIND:
        raise ManifestError(f"{source}: is not apiVersion {API_VERSION}, kind {KIND}")
    fields = {key: value for key, value in document.items() if key not in ("apiVersion", "kind", "metadata")}
    try:
        cluster = msgspec.convert(fields, ClusterFile)
    except msgspec.ValidationError as error:
        raise ManifestError(f"{source}: {error}") from error
    _check(cluster, source)
    return cluster


def _check(cluster: ClusterFile, source: str) -> None:
    """Check what types alone do not express."""

    def refuse(field: str, why: str) -> None:
        raise ManifestError(f"{source}: {field}: {why}")

    if not 1 <= sum(shape.count for shape in cluster.nodes) <= MAX_NODES:
        refuse("nodes", f"there must be 1 to {MAX_NODES} nodes in all")
    for index, shape in enumerate(cluster.nodes):
        where = f"nodes[{index}]"
        for name, text, parse in (("cpu", shape.cpu, parse_milli), ("memory", shape.memory, parse_value)):
            if _amount(text, parse, f"{source}: {where}.{name}") <= 0:
                refuse(f"{where}.{name}", "must be above 0")
        if shape.count < 0:
            refuse(f"{where}.count", "must be at least 0")
    for index, workload in enumerate(cluster.workloads):
        where = f"workloads[{index}]"
        if (workload.arrivals is None) == (workload.replicas == 0):
            refuse(where, "give either replicas or arrivals")
        if not 0 <= workload.replicas <= MAX_REPLICAS:
            refuse(f"{where}.replicas", f"must be 0 to {MAX_REPLICAS}")
        if not 0 <= workload.gang <= MAX_GANG or (workload.gang and workload.replicas % workload.gang):
            refuse(f"{where}.gang", f"must be 0 to {MAX_GANG}, and divide the number of replicas")
        if workload.uses_cpu:
            _amount(workload.uses_cpu, parse_milli, f"{source}: {where}.usesCpu")
        if workload.uses_memory:
            _amount(workload.uses_memory, parse_value, f"{source}: {where}.usesMemory")
        if workload.load is not None:
            _amount(workload.load.night, parse_milli, f"{source}: {where}.load.night")
            _amount(workload.load.noon, parse_milli, f"{source}: {where}.load.noon")
            _positive(workload.load.day, f"{source}: {where}.load.day")
        if workload.arrivals is not None:
            _positive(workload.arrivals.every, f"{source}: {where}.arrivals.every")
            shortest = _positive(workload.arrivals.lasts_from, f"{source}: {where}.arrivals.lastsFrom")
            if _positive(workload.arrivals.lasts_to, f"{source}: {where}.arrivals.lastsTo") < shortest:
                refuse(f"{where}.arrivals.lastsTo", "must not be below lastsFrom")
    nodes = {name for shape in cluster.nodes for name in node_names(shape)} if cluster.faults else set()
    for index, fault in enumerate(cluster.faults):
        _check_fault(fault, nodes, f"{source}: faults[{index}]")


_TARGETS = {
    FaultKind.NODE_DEATH: ("a node",),
    FaultKind.PARTITION: ("a node", "a service"),
    FaultKind.CRASH: ("a service",),
    FaultKind.STALL: (),
}


def _check_fault(fault: PlannedFault, nodes: Container[str], place: str) -> None:
    _positive(fault.at, f"{place}.at")
    _positive(fault.lasts, f"{place}.lasts")
    wanted = _TARGETS[fault.kind]
    known = ("a node" in wanted and fault.target in nodes) or ("a service" in wanted and fault.target in SIMULATED_SERVICES)
    if bool(wanted) != bool(fault.target) or (wanted and not known):
        services = f" ({', '.join(SIMULATED_SERVICES)})" if "a service" in wanted else ""
        what = f"must be the name of {' or '.join(wanted)}{services}" if wanted else "is not given for this kind: it is the log"
        raise ManifestError(f"{place}.target: {what}")


def node_names(shape: NodeShape) -> list[str]:
    """The names of a shape's nodes."""
    return [f"{shape.name}-{index}" for index in range(shape.count)]


def _amount(text: str, parse: Callable[[str], int], place: str) -> int:
    try:
        return int(parse(text))
    except QuantityError as error:
        raise ManifestError(f"{place}: {error}") from error


def _positive(text: str, place: str) -> float:
    try:
        seconds = parse_duration_seconds(text)
    except ValueError as error:
        raise ManifestError(f"{place}: {error}") from error
    if seconds <= 0:
        raise ManifestError(f"{place}: must be above 0")
    return seconds
