"""The values of a NodeMetric report.

In: aggregates of samples. Out: which windows have values, and entries of devices. A window whose series spans less than half of
it is in cold start and has no values (exactly half is enough); the window's entry stays in the list. Source: the informer of
NodeMetrics in koordlet.
"""

from collections.abc import Sequence

import msgspec


def in_cold_start(series_span_ms: int, duration_ms: int) -> bool:
    """Whether the series spans less than half the window."""
    return 2 * series_span_ms < duration_ms


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
