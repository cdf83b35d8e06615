"""Totals of a node's devices, as the Node offers them.

In: the node's Device object. Out: amounts by resource name, and the labels that the Node gets. Source: Koordinator GPU and RDMA
device resource plugins, newest rule.

    gpu    sum over healthy GPUs of every resource they name; koordinator.sh/gpu = the sum of gpu-core, unless the label
           gpu-vendor names another vendor than nvidia; koordinator.sh/gpu.shared = 100 for each of them
    rdma   100 for each healthy RDMA device
    none healthy, or no object: the node offers none of them (Koordinator: reset)

gpu.shared is how many pods' shares a node's cards can hold: pods that spread over several cards request it, so it is always
present (Koordinator's gate EnableSyncGPUSharedResource). Deprecated names (`kubernetes.io/gpu-core`) count as the new ones. A
device without `health` is not healthy.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.api.objects.device import Device
from cotenant.model.bounds import saturated
from cotenant.model.names import GPU, GPU_CORE, GPU_SHARED, RDMA
from cotenant.model.quantities import QuantityError, resource_amount
from cotenant.model.values import Value

TYPE_GPU = "gpu"
TYPE_RDMA = "rdma"
PER_DEVICE = 100
LABEL_GPU_VENDOR = "node.koordinator.sh/gpu-vendor"
COPIED_LABELS = ("node.koordinator.sh/gpu-model", "node.koordinator.sh/gpu-driver-version", LABEL_GPU_VENDOR)
NVIDIA = "nvidia"
_DEPRECATED = "kubernetes.io/"
_RENAMED = frozenset({"rdma", "fpga", "gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio"})


class DeviceTotals(Value, frozen=True):
    """`error`: why the object counts as none."""

    amounts: dict[str, int] = {}
    labels: dict[str, str] = {}
    error: str = ""


def device_totals(device: Device) -> DeviceTotals:
    """Return the totals of a Device object."""
    amounts: dict[str, int] = {}
    try:
        for found in device.spec.devices:
            if not found.health:
                continue
            if found.type == TYPE_GPU:
                amounts[GPU_SHARED] = amounts.get(GPU_SHARED, 0) + PER_DEVICE
                for name, quantity in found.resources.items():
                    known = _current(name, found.resources)
                    amounts[known] = amounts.get(known, 0) + max(resource_amount(known, quantity), 0)
            elif found.type == TYPE_RDMA:
                amounts[RDMA] = amounts.get(RDMA, 0) + PER_DEVICE
    except QuantityError as error:
        return DeviceTotals(error=f"the node's Device object: {error}")
    if GPU_CORE in amounts and device.metadata.labels.get(LABEL_GPU_VENDOR, "") in ("", NVIDIA):
        amounts[GPU] = amounts[GPU_CORE]
    labels = {name: device.metadata.labels[name] for name in COPIED_LABELS if name in device.metadata.labels}
    return DeviceTotals({name: saturated(amount) for name, amount in sorted(amounts.items())}, labels)


def _current(name: str, resources: Mapping[str, object]) -> str:
    """The current name of a deprecated one, unless that is present too."""
    short = name.removeprefix(_DEPRECATED)
    renamed = f"koordinator.sh/{short}"
    return renamed if name.startswith(_DEPRECATED) and short in _RENAMED and renamed not in resources else name
