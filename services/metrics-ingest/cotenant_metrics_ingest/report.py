"""The values of a NodeMetric report.

In: aggregates of samples. Out: usages in a NodeMetric's units. The rules: cpu is truncated to milli-cores, memory to bytes. A
window whose series spans less than half of it is in cold start and has no values (exactly half is enough); the window's entry
stays in the list. A status is only written for a node whose object exists. Source: koordlet NodeMetric informer.
"""

from collections.abc import Mapping, Sequence

import msgspec

from cotenant.events.node.metrics import Usage


def usage_of(cpu_cores: float, memory_bytes: float) -> Usage:
    """Truncate to integer milli-cores and bytes."""
    return Usage(cpu_milli=int(cpu_cores * 1000), memory_bytes=int(memory_bytes))


def in_cold_start(series_span_ms: int, duration_ms: int) -> bool:
    """Whether the series spans less than half the window."""
    return 2 * series_span_ms < duration_ms


def aggregated_entry(span_ms: int, duration_ms: int, values: Mapping[str, Usage]) -> dict[str, Usage | None]:
    """One window's entry by percentile key; None for each while the window is in cold start."""
    cold = in_cold_start(span_ms, duration_ms)
    return {key: None if cold else usage for key, usage in values.items()}


def writes_status(*, object_seen: bool, object_exists: bool) -> bool:
    """Whether a status is written: a node without an object has no NodeMetric."""
    return object_seen and object_exists


class GpuUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU's averages: `core_usage` in percent, memory in bytes."""

    uuid: str
    minor: int
    memory_total: int
    core_usage: float
    memory_usage: float


class DeviceUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One device in the report."""

    id: str
    minor: int
    type: str
    resources: dict[str, int]


def gpu_devices(gpus: Sequence[GpuUsage]) -> tuple[DeviceUsage, ...]:
    """Return the report's entries of GPUs; the ratio is used to total memory, truncated to integer percent."""
    return tuple(
        DeviceUsage(
            id=gpu.uuid,
            minor=gpu.minor,
            type="gpu",
            resources={
                "koordinator.sh/gpu-core": int(gpu.core_usage),
                "koordinator.sh/gpu-memory": int(gpu.memory_usage),
                "koordinator.sh/gpu-memory-ratio": int(100 * gpu.memory_usage / gpu.memory_total)
                if gpu.memory_total > 0
                else 0,
            },
        )
        for gpu in gpus
    )
