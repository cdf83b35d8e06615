"""Whether a resources event has news: a code changed, or a figure by more than its dead band.

In: the last event, the desired one, the strategy's threshold. Out: a boolean. A ratio has a band of its own.
"""

from __future__ import annotations

import msgspec

from cotenant.events.node.resources import NodeResources, NodeRisk
from cotenant_batch_resource_calculator.formulas.normalization import ratio_moved
from cotenant_batch_resource_calculator.formulas.placing import ratio_of
from cotenant_batch_resource_calculator.formulas.synchronise import any_differs


def moved(old: NodeResources, wanted: NodeResources, threshold: float) -> bool:
    """Whether a code changed, or a figure by more than the dead band."""
    if _codes(old) != _codes(wanted) or ratio_moved(ratio_of(old.cpu_normalization), ratio_of(wanted.cpu_normalization)):
        return True
    before, after = _figures(old), _figures(wanted)
    return any_differs({*before, *after}, before, after, threshold)


def _codes(resources: NodeResources) -> tuple[object, ...]:
    return (
        resources.withdrawn,
        resources.degraded,
        resources.reason,
        resources.cpu_policy,
        resources.memory_policy,
        resources.cluster_enable,
        bytes(resources.strategy),
        tuple(zone.name for zone in resources.zones),
        resources.amplification,
        resources.device_labels,
        resources.failed,
        _remembered(resources.risk),
    )


def _remembered(risk: NodeRisk | None) -> NodeRisk | None:
    """A risk budget's state for later decisions; the threshold follows from it."""
    return msgspec.structs.replace(risk, percent=0) if risk is not None else None


def _figures(resources: NodeResources) -> dict[str, int]:
    devices = {f"device {name}": amount for name, amount in resources.devices.items()}
    if resources.withdrawn:
        return devices
    return {
        **devices,
        "batch-cpu": resources.batch_cpu_milli,
        "batch-memory": resources.batch_memory_bytes,
        "mid-cpu": resources.mid_cpu_milli,
        "mid-memory": resources.mid_memory_bytes,
        "origin-cpu": resources.origin.cpu_milli,
        "origin-memory": resources.origin.memory_bytes,
        **{f"{zone.name}-cpu": zone.batch_cpu_milli for zone in resources.zones},
        **{f"{zone.name}-memory": zone.batch_memory_bytes for zone in resources.zones},
    }
