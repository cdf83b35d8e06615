"""The CPU burst configuration of a pod: the node's section with the fields of the pod's annotation on top.

In: section `cpuBurstStrategy` of the NodeSLO, annotation `koordinator.sh/cpuBurst`. Out: the configuration in force. A field
that the annotation lacks keeps the node's value, an unreadable annotation changes nothing, and so does an empty policy.
Source: CPU burst, koordlet rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.bounds import Int32
from cotenant_node_executor.strategies.sections import annotation_as, readable_section

ANNOTATION_CPU_BURST = "koordinator.sh/cpuBurst"
SECTION = "cpuBurstStrategy"
NONE, AUTO, KERNEL_ONLY, QUOTA_ONLY = POLICIES = ("none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly")


class BurstConfig(Struct, frozen=True, rename="camel", omit_defaults=True):
    """None: not set.

    `cpu_burst_percent`: of the limit, for the kernel's burst; `cfs_quota_burst_percent`: the largest quota, of the limit;
    `cfs_quota_burst_period_seconds`: how long it may be used, negative for always.
    """

    policy: str | None = None
    cpu_burst_percent: Int32 | None = None
    cfs_quota_burst_percent: Int32 | None = None
    cfs_quota_burst_period_seconds: Int32 | None = None

    @property
    def bursts_in_kernel(self) -> bool:
        return self.policy in (AUTO, KERNEL_ONLY)

    @property
    def bursts_by_quota(self) -> bool:
        return self.policy in (AUTO, QUOTA_ONLY)


class BurstStrategy(BurstConfig, frozen=True, rename="camel", omit_defaults=True):
    """The section. `share_pool_threshold_percent`: load of the share pool from which quotas shrink."""

    policy: str | None = NONE
    cpu_burst_percent: Int32 | None = 1000
    cfs_quota_burst_percent: Int32 | None = 300
    cfs_quota_burst_period_seconds: Int32 | None = -1
    share_pool_threshold_percent: Int32 = 50


burst_strategy = readable_section(SECTION, BurstStrategy)
"""The node's section, with defaults for what it leaves out."""


def policy_problems(slo: NodeSLORendered | None) -> tuple[str, ...]:
    """Why the policy is unknown; empty where it is not."""
    node = burst_strategy(slo) if slo is not None else None
    if node is None or not node.policy or node.policy in POLICIES:
        return ()
    return (f"{SECTION}: policy {node.policy[:20]!r} is unknown, expected one of {', '.join(POLICIES)}: {NONE} is used",)


def pod_config(node: BurstConfig | None, annotations: Mapping[str, str]) -> BurstConfig | None:
    """A pod's configuration; None where neither the node nor the pod has one."""
    text = annotations.get(ANNOTATION_CPU_BURST)
    return node if text is None else merged(node, text)


@lru_cache(maxsize=256)
def merged(node: BurstConfig | None, annotation: str) -> BurstConfig | None:
    """The node's configuration with the annotation's fields on top."""
    try:
        own = annotation_as(ANNOTATION_CPU_BURST, annotation, BurstConfig)
    except ValueError:
        return node
    if node is None:
        return own
    return BurstConfig(
        policy=own.policy or node.policy,
        cpu_burst_percent=_or(own.cpu_burst_percent, node.cpu_burst_percent),
        cfs_quota_burst_percent=_or(own.cfs_quota_burst_percent, node.cfs_quota_burst_percent),
        cfs_quota_burst_period_seconds=_or(own.cfs_quota_burst_period_seconds, node.cfs_quota_burst_period_seconds),
    )


def _or(value: int | None, other: int | None) -> int | None:
    return other if value is None else value
