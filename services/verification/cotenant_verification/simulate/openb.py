"""The openb trace (Alibaba cluster-trace-gpu-v2023) as nodes and pods.

In: a folder with `openb_node_list_all_node.csv` and `openb_pod_list_default.csv` (times in seconds from 0, memory
in MiB, `gpu_milli` thousandths of one GPU and counting for `num_gpu` = 1). Out: Node and Pod documents with the
moments at which pods come and go. GPUs are approximate, without a choice of devices: a node offers `nvidia.com/gpu`
(whole GPUs) and the parts of `koordinator.sh/gpu` (100 per GPU, summed); a pod asks for gpu-core and
gpu-memory-ratio in all cases and for `nvidia.com/gpu` only where it takes whole ones. So parts of one GPU may be
counted together that no single GPU could hold.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cotenant.model.names import GPU_CORE, GPU_MEMORY_RATIO, GPU_SHARED
from cotenant_console.api.client import Document, Json

NODE_FILE = "openb_node_list_all_node.csv"
POD_FILE = "openb_pod_list_default.csv"
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "creation_time",
    "deletion_time",
)
NVIDIA_GPU = "nvidia.com/gpu"
GPU_MODEL_LABEL = "node.koordinator.sh/gpu-model"
GPU_CORE_PER_GPU = 100
NAMESPACE = "openb"
MAX_PODS_PER_NODE = 256
QOS_PRIORITY = {"LS": "koord-prod", "Guaranteed": "koord-prod", "Burstable": "koord-mid", "BE": "koord-batch"}
QOS_LABEL = {"LS": "LS", "Guaranteed": "LS", "Burstable": "LS", "BE": "BE"}


class TraceError(Exception):
    """The trace cannot be read; the text states the file, the line and what is wrong there."""


@dataclass(frozen=True)
class TraceNode:
    """One machine of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True)
class TracePod:
    """One pod of the trace; moments in seconds from the trace's beginning."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...]
    qos: str
    created: int
    deleted: int

    @property
    def gpu_core(self) -> int:
        """Hundredths of GPUs in sum, a begun hundredth counted whole."""
        per_gpu = -(-self.gpu_milli // 10) if self.gpus == 1 else GPU_CORE_PER_GPU
        return self.gpus * per_gpu


@dataclass(frozen=True)
class OpenbTrace:
    """Nodes by name, and pods by the moment they come, then by name."""

    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]


def read_trace(folder: Path) -> OpenbTrace:
    """The trace in a folder. Raises TraceError."""
    nodes = sorted((_node(row) for row in _rows(folder / NODE_FILE, NODE_COLUMNS)), key=lambda node: node.name)
    pods = sorted((_pod(row) for row in _rows(folder / POD_FILE, POD_COLUMNS)), key=lambda pod: (pod.created, pod.name))
    return OpenbTrace(tuple(nodes), tuple(pods))


@dataclass(frozen=True)
class _Row:
    """One line of a file, with its place for messages."""

    place: str
    cells: dict[str, str]

    def integer(self, column: str) -> int:
        text = self.cells[column]
        if not text.isascii() or not text.isdigit():
            raise TraceError(f"{self.place}: {column} is {text!r}, not a whole number of at least 0")
        return int(text)


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise TraceError(f"{path}: column {', '.join(missing)} is missing")
            for cells in reader:
                if any(cells[column] is None for column in columns):
                    raise TraceError(f"{path}:{reader.line_num}: the line ends too early")
                yield _Row(f"{path}:{reader.line_num}", cells)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: is not a CSV file: {error}") from error


def _node(row: _Row) -> TraceNode:
    integer = row.integer
    return TraceNode(
        row.cells["sn"], integer("cpu_milli"), integer("memory_mib"), integer("gpu"), row.cells["model"]
    )


def _pod(row: _Row) -> TracePod:
    integer = row.integer
    if row.cells["qos"] not in QOS_LABEL:
        raise TraceError(f"{row.place}: qos is {row.cells['qos']!r}, not one of {', '.join(sorted(QOS_LABEL))}")
    created, deleted = integer("creation_time"), integer("deletion_time")
    if deleted < created:
        raise TraceError(f"{row.place}: deletion_time {deleted} lies before creation_time {created}")
    models = tuple(model for model in row.cells["gpu_spec"].split("|") if model)
    return TracePod(
        name=row.cells["name"],
        cpu_milli=integer("cpu_milli"),
        memory_mib=integer("memory_mib"),
        gpus=integer("num_gpu"),
        gpu_milli=integer("gpu_milli"),
        models=models,
        qos=row.cells["qos"],
        created=created,
        deleted=deleted,
    )


def offered_gpus(gpus: int) -> dict[str, int]:
    """The allocatable of a node with this many GPUs, as its Device object sums it."""
    return {NVIDIA_GPU: gpus, **dict.fromkeys((GPU_CORE, GPU_MEMORY_RATIO, GPU_SHARED), gpus * GPU_CORE_PER_GPU)}


def asked_gpus(core: int) -> Document:
    """The requests of a pod that takes this many hundredths of GPUs, equally of cores and memory."""
    return {GPU_CORE: str(core), GPU_MEMORY_RATIO: str(core)}


def pod_document(pod: TracePod) -> Document:
    """The Pod object of a pod. Its requests are its limits; batch pods request ordinary resources, as in the trace."""
    amounts: Document = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi"}
    if pod.gpus:
        amounts |= asked_gpus(pod.gpu_core)
        if pod.gpu_milli >= 1000 or pod.gpus > 1:
            amounts[NVIDIA_GPU] = str(pod.gpus)
    spec: Document = {
        "priorityClassName": QOS_PRIORITY[pod.qos],
        "containers": [{"name": "main", "image": "trace", "resources": {"requests": dict(amounts), "limits": dict(amounts)}}],
    }
    if pod.models:
        models: list[Json] = list(pod.models)
        terms: list[Json] = [{"matchExpressions": [{"key": GPU_MODEL_LABEL, "operator": "In", "values": models}]}]
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": NAMESPACE,
            "labels": {"koordinator.sh/qosClass": QOS_LABEL[pod.qos]},
        },
        "spec": spec,
    }
