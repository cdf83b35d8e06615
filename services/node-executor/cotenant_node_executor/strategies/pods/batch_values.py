"""The cgroup values of batch and mid pods: shares from requests, quota and memory limit from limits.

In: batch-cpu (milli-CPU) and batch-memory (bytes) of a pod's containers, or mid-cpu and mid-memory. Out: cpu.shares, CFS quota
(-1 unlimited) and memory limit (-1 unlimited) of the pod and of each container.

    shares = requests * 1024 / 1000 within 2..262144;  quota = limits * 100 µs, at least 1000, unlimited if a container
    has no limit, and always unlimited while suppression works by quota (a parent's quota must not be below
    its children's), divided by the CPU normalisation ratio where that is above 1;  memory likewise.

Batch resources apply to pods labelled BE. Source: batch resource hook, koordlet rule; an empty container map gives no values
instead of a memory limit of zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from cotenant.domain.qos import QoSClass
from cotenant_node_executor.strategies.pod_view import ContainerAmounts
from cotenant_node_executor.targets.convert import UNLIMITED, milli_to_quota_us, milli_to_shares

CFS_QUOTA = "cfsQuota"


class CgroupValues(Struct, frozen=True):
    """Values of one group in the kernel's cgroup v1 terms."""

    cpu_shares: int
    cfs_quota_us: int
    memory_limit_bytes: int


def quota_enabled(enable: bool | None, policy: str) -> bool:
    """Whether batch pods get their own quota: not while suppression works by quota."""
    return not (bool(enable) and policy == CFS_QUOTA)


def batch_values(
    qos: str, amounts: Sequence[ContainerAmounts], *, use_quota: bool, cpu_ratio: float = -1.0
) -> CgroupValues | None:
    """The values of a group with these containers (a pod, or a single container); None for no write."""
    return values_of(amounts, use_quota=use_quota, cpu_ratio=cpu_ratio) if qos == QoSClass.BE and amounts else None


def values_of(amounts: Sequence[ContainerAmounts], *, use_quota: bool, cpu_ratio: float = -1.0) -> CgroupValues:
    """The values of a group with these containers, at least one."""
    requests = sum(max(a.request_cpu_milli or 0, 0) for a in amounts)
    quota = milli_to_quota_us(_sum_limits([a.limit_cpu_milli for a in amounts])) if use_quota else UNLIMITED
    if quota > 0 and cpu_ratio > 1:
        quota = math.ceil(quota / cpu_ratio)
    return CgroupValues(
        cpu_shares=milli_to_shares(requests),
        cfs_quota_us=quota,
        memory_limit_bytes=_sum_limits([a.limit_memory_bytes for a in amounts]),
    )


def _sum_limits(limits: Sequence[int | None]) -> int:
    """The sum, or -1 if one is missing or not positive."""
    if any(limit is None or limit <= 0 for limit in limits):
        return UNLIMITED
    return sum(limit for limit in limits if limit is not None)
